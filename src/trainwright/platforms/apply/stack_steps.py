"""One CloudFormation stack: made, changed or removed, from whatever state an earlier run left it in."""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from trainwright.aws.cloudformation import BROKEN, NOTHING_CHANGED, Stack, StackApi, first_failure
from trainwright.platforms.apply.steps import BuildFailed, Step
from trainwright.stacks.library import template
from trainwright.stacks.references import fill

DATA_KINDS = ("AWS::FSx::FileSystem", "AWS::S3::Bucket", "AWS::RDS::DBCluster")


@dataclass(frozen=True)
class StackOrder:
    """What a stack must become: its name in AWS, template and parameters, which may name outputs of other stacks."""

    key: str
    name: str
    template: str
    parameters: Mapping[str, str]
    tags: Mapping[str, str]

    def filled(self, outputs: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
        """Every parameter with its value, the template's defaults included."""
        given = {name: fill(value, outputs) for name, value in self.parameters.items()}
        return {**template(self.template).defaults, **given}

    @property
    def body(self) -> str:
        return template(self.template).tagged(self.tags)


@dataclass
class StackStep(Step):
    """A step that follows one stack: at its parts while it is under way, and at the whole in between."""

    api: StackApi = field(kw_only=True)
    _id: str = ""  # while it is under way

    @property
    @abstractmethod
    def stack_name(self) -> str: ...

    @abstractmethod
    def act(self, stack: Stack | None) -> bool:
        """Do what the stack, as it is now, calls for; True when the step is over."""

    def advance(self) -> bool:
        if self._id and self.peek(lambda: self.api.part_states(self._id)):
            return False
        stack = self.api.describe(self.stack_name)
        self._id = stack.id if stack is not None and stack.busy else ""
        return self.act(stack)


@dataclass
class StackUp(StackStep):
    """Create a stack, or change it to what is ordered. `lost` says whether what the stack should hold is `gone`, or on
    its way (`going`): a `down` was ended half-way."""

    order: StackOrder = field(kw_only=True)
    outputs: dict[str, dict[str, str]] = field(
        kw_only=True
    )  # of all stacks that are done, by key; this one adds its own
    lost: Callable[[Stack], str] = field(kw_only=True, default=lambda stack: "")
    force: bool = field(kw_only=True, default=False)
    _created_here: bool = False
    _changes: int = 0  # that were begun here
    _seen_changing: bool = False
    _deleted_here: bool = False

    @property
    def stack_name(self) -> str:
        return self.order.name

    def act(self, stack: Stack | None) -> bool:
        if stack is None:
            return self._create()
        if stack.busy:
            self._created_here |= stack.status == "CREATE_IN_PROGRESS"
            self._seen_changing |= self._changes > 0
            return self._wait(stack)
        if stack.status in BROKEN:
            return self._restart(stack)
        if not stack.usable:
            raise BuildFailed(f"stack {stack.name} is {stack.status}: {stack.reason}", fix="look at it in the console")
        if stack.status == "UPDATE_ROLLBACK_COMPLETE" and self._change_failed():
            raise failed(self.api, stack, self.order.name)
        if lost := self.lost(stack):
            return self._remove_rest(stack, lost)
        if self._unchanged(stack):
            self.outputs[self.key] = dict(stack.outputs)
            self.now("ready", "changed" if self.state == "changing" else "")
            self.parts = {}
            return True
        return self._change(stack)

    def _remove_rest(self, stack: Stack, lost: str) -> bool:
        """Remove a stack whose data a `down` removed; only then it can be made again. Its security group is in use
        until the file system is gone."""
        self.now("removing", "what an earlier `down` left")
        if lost == "gone":
            self._delete(stack)
        return False

    def _delete(self, stack: Stack) -> None:
        self.api.delete(stack.name)
        self._deleted_here = True

    def _create(self) -> bool:
        self.api.create(self.order.name, self.order.body, self.order.filled(self.outputs), self.order.tags)
        self._created_here = True
        self.now("creating")
        return False

    def _wait(self, stack: Stack) -> bool:
        words = {"CREATE_IN_PROGRESS": "creating", "DELETE_IN_PROGRESS": "removing"}
        word = words.get(stack.status, "rolling back" if "ROLLBACK" in stack.status else "changing")
        self.now(word, stack.status if word == "changing" else "")
        return False

    def _restart(self, stack: Stack) -> bool:
        """A stack that never came to be is removed and made again; one that failed just now is reported."""
        if self._created_here and stack.status != "DELETE_FAILED":
            raise failed(self.api, stack, self.order.name)
        if stack.status == "DELETE_FAILED" and self._deleted_here:
            raise failed(self.api, stack, self.order.name)
        lost = self.lost(stack)
        if lost == "going":
            return self._remove_rest(stack, lost)
        if stack.status == "DELETE_FAILED" and not lost and self._holds_data():
            raise BuildFailed(
                f"stack {stack.name} is half removed and still holds data",
                fix=f"finish with `trainwright down` and --delete-data {self.key}, or delete the stack in the console",
            )
        self._delete(stack)
        self.now("removing", "what an earlier attempt left")
        return False

    def _change_failed(self) -> bool:
        """Whether a stack that is rolled back became so by a change of this run: it would fail again, for ever. Just
        after a change is begun, AWS may still show how an earlier one ended."""
        return self._seen_changing or self._changes > 1

    def _holds_data(self) -> bool:
        return any(kind in self.order.body for kind in DATA_KINDS)

    def _unchanged(self, stack: Stack) -> bool:
        wanted = self.order.filled(self.outputs)
        same = wanted == dict(stack.parameters) and dict(self.order.tags) == dict(stack.tags)
        return same and self.api.template(stack.name) == self.order.body

    def _change(self, stack: Stack) -> bool:
        parameters = self.order.filled(self.outputs)
        digest = hashlib.sha256(json.dumps([self.order.body, parameters, dict(self.order.tags)]).encode()).hexdigest()
        title = f"trainwright-{digest[:16]}"
        seen = self.api.changes(stack.name, title)
        if seen is None:
            self.api.change(stack.name, title, self.order.body, parameters, self.order.tags)
            self.now("changing", "change set")
            return False
        status, reason, changes = seen
        if status.endswith(("_PENDING", "_IN_PROGRESS")):
            return False
        if status == "FAILED":
            self.api.drop_change(stack.name, title)
            if not any(words in reason for words in NOTHING_CHANGED):
                raise BuildFailed(f"stack {stack.name} cannot be changed: {reason}", where=stack.name)
            self.outputs[self.key] = dict(stack.outputs)
            self.now("ready")
            return True
        lost = [change.resource for change in changes if change.replaces and change.kind in DATA_KINDS]
        if lost and not self.force:
            self.api.drop_change(stack.name, title)
            raise BuildFailed(
                f"this change replaces {', '.join(lost)} of stack {stack.name}: a new, empty one would be made",
                fix="undo the change of the spec, or use another `mount` for a second file system",
            )
        self.api.execute(stack.name, title)
        self._changes += 1
        self.now("changing", ", ".join(change.resource for change in changes))
        return False


@dataclass
class StackDown(StackStep):
    """Remove a stack and wait until it is gone. `before` removes what must be gone first and says when it is."""

    name: str = field(kw_only=True)
    before: Callable[[Stack], bool] = field(kw_only=True, default=lambda stack: True)
    blocked: int = 0  # how often something else was in the way
    _deleted_here: bool = False

    @property
    def stack_name(self) -> str:
        return self.name

    def act(self, stack: Stack | None) -> bool:
        if stack is None:
            self.now("gone")
            return True
        if stack.busy and stack.status != "DELETE_IN_PROGRESS":
            self.now("waiting", f"until {stack.status} ends")
            return False
        if stack.status == "DELETE_IN_PROGRESS":
            self._deleted_here = True
            self.now("removing")
            return False
        if stack.status == "DELETE_FAILED" and self._deleted_here:
            raise failed(self.api, stack, self.name)
        if not self.before(stack):
            return False
        self.api.delete(self.name)
        self._deleted_here = True
        self.now("removing")
        return False


def failed(api: StackApi, stack: Stack, name: str) -> BuildFailed:
    """What went wrong, from the stack's own history."""
    event = first_failure(api.events(stack.id), stack.name)
    verbs = {"DELETE": "be deleted", "UPDATE": "be changed"}
    verb = next((words for start, words in verbs.items() if stack.status.startswith(start)), "be created")
    if event is None:
        return BuildFailed(f"stack {name} could not {verb}: {stack.reason or stack.status}", where=name)
    return BuildFailed(
        f"stack {name} could not {verb}: {event.resource} ({event.kind}): {event.reason}",
        where=name,
        fix="remove the cause, then run the same command again: it goes on from here",
    )
