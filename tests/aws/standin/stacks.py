"""CloudFormation: stacks that are really made, one wave of resources after the other, over time; with events, rollback,
retained resources, change sets, and deletions that fail. One engine serves one account."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from standin import cluster_resources, database_resources  # noqa: F401  # adds its types
from standin.batch import Batch
from standin.clock import Clock
from standin.eks import Eks
from standin.fsx import Fsx
from standin.hyperpod import PodCluster
from standin.resources import HANDLERS, Place
from standin.template import Scope, TemplateError, parameters, parse, waves

ACCOUNT = "123456789012"
DELETE_ATTEMPTS = 3  # CloudFormation tries the deletion of a resource again before it gives up
DELETE_PAUSE = 60.0
OPEN = ("CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE")


class StackError(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class Resource:
    logical: str
    kind: str
    props: dict[str, Any]
    physical: str = ""
    attributes: dict[str, Any] = field(default_factory=dict)
    status: str = "CREATE_IN_PROGRESS"
    reason: str = ""
    deletion: str = "Delete"
    at: float = 0.0


@dataclass
class ChangeSet:
    name: str
    id: str
    body: str
    values: dict[str, str]
    tags: dict[str, str]
    changes: list[dict[str, Any]]
    status: str = "CREATE_COMPLETE"
    execution: str = "AVAILABLE"
    reason: str = ""


@dataclass
class Stack:
    name: str
    id: str
    body: str
    template: dict[str, Any]
    given: dict[str, str]
    values: dict[str, str]
    tags: dict[str, str]
    created: float
    token: str = ""
    rollback: bool = True
    status: str = "CREATE_IN_PROGRESS"
    reason: str = ""
    updated: float | None = None
    deleted: float | None = None
    resources: dict[str, Resource] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    outputs: list[dict[str, str]] = field(default_factory=list)
    change_sets: dict[str, ChangeSet] = field(default_factory=dict)
    work: Iterator[float] | None = None
    wake: float = 0.0


class Region:
    """The stacks and the FSx of one region. `client(service)` gives boto3 clients that reach moto itself."""

    def __init__(self, name: str, clock: Clock, client: Callable[[str], Any], faults: Any) -> None:
        self.name, self.clock, self.client, self.faults = name, clock, client, faults
        self.fsx = Fsx(clock, name, ACCOUNT, client)
        self.stacks: dict[str, Stack] = {}  # by id
        self.launch_data: dict[str, dict[str, Any]] = {}  # of launch templates, by id
        self.reserved: dict[str, list[str]] = {}  # capacity reservation -> instances that were started in it
        self.heads: dict[str, Place] = {}  # cluster -> its head node, which starts and stops nodes
        self._managed = clock.now()
        self._moment = clock.now()
        self.hyperpod: dict[str, PodCluster] = {}  # by name
        self.eks = Eks()
        self.batch = Batch(name, ACCOUNT, lambda: self._moment, clock.takes)
        self._zones: list[str] = []

    # Time

    def tick(self) -> None:
        """Do all that is due by now, in the order of time."""
        now = self.clock.now()
        while True:
            due = [s for s in self.stacks.values() if s.work is not None and s.wake <= now]
            if not due:
                break
            stack = min(due, key=lambda s: s.wake)
            self._moment = stack.wake
            try:
                assert stack.work is not None
                stack.wake += self.clock.takes(next(stack.work))
            except StopIteration:
                stack.work = None
        self._moment = now
        self.fsx.tick()
        if self.heads and now - self._managed >= self.clock.takes(60.0):
            self._managed = now
            for head in list(self.heads.values()):
                cluster_resources.manage_fleet(head)
        self.batch.settle()

    def _begin(self, stack: Stack, work: Iterator[float]) -> None:
        stack.work, stack.wake = work, self.clock.now()

    # Look-ups

    def find(self, name: str) -> Stack:
        self.tick()
        return self.named(name)

    def named(self, name: str) -> Stack:
        """By id, or by name where it is not deleted."""
        if name in self.stacks:
            return self.stacks[name]
        for stack in self.stacks.values():
            if stack.name == name and stack.deleted is None:
                return stack
        raise StackError("ValidationError", f"Stack with id {name} does not exist")

    def zones(self) -> list[str]:
        if not self._zones:
            rows = self.client("ec2").describe_availability_zones()["AvailabilityZones"]
            self._zones = [row["ZoneName"] for row in rows]
        return self._zones

    def exists(self, kind: str, id: str) -> bool:
        calls = {
            "AWS::EC2::VPC::Id": ("describe_vpcs", "VpcIds"),
            "AWS::EC2::Subnet::Id": ("describe_subnets", "SubnetIds"),
            "AWS::EC2::SecurityGroup::Id": ("describe_security_groups", "GroupIds"),
        }
        call, key = calls[kind]
        try:
            getattr(self.client("ec2"), call)(**{key: [id]})
        except Exception:
            return False
        return True

    # Operations

    def create(
        self, name: str, body: str, given: dict[str, str], tags: dict[str, str], token: str, rollback: bool
    ) -> Stack:
        for stack in self.stacks.values():
            if stack.name == name and stack.deleted is None:
                if token and stack.token == token:
                    return stack
                raise StackError("AlreadyExistsException", f"Stack [{name}] already exists")
        template, values = self._parsed(body, given)
        id = f"arn:aws:cloudformation:{self.name}:{ACCOUNT}:stack/{name}/{uuid.uuid4()}"
        stack = Stack(name, id, body, template, given, values, tags, self.clock.now(), token, rollback)
        self._scope(stack).check_rules()
        self.stacks[id] = stack
        self._event(stack, None, "CREATE_IN_PROGRESS", "User Initiated")
        self._begin(stack, self._create(stack))
        self.tick()
        return stack

    def delete(self, name: str) -> None:
        try:
            stack = self.find(name)
        except StackError:
            return  # deleting what is not there succeeds
        if stack.status in ("DELETE_IN_PROGRESS", "DELETE_COMPLETE"):
            return
        self._set(stack, "DELETE_IN_PROGRESS", "User Initiated")
        self._begin(stack, self._delete(stack))
        self.tick()

    def nested(self, name: str, body: str, given: dict[str, str], tags: dict[str, str]) -> Stack:
        """A stack inside another one, made at once."""
        template, values = self._parsed(body, given)
        id = f"arn:aws:cloudformation:{self.name}:{ACCOUNT}:stack/{name}/{uuid.uuid4()}"
        stack = Stack(name, id, body, template, given, values, tags, self._moment)
        self.stacks[id] = stack
        self._event(stack, None, "CREATE_IN_PROGRESS")
        list(self._create(stack))
        return stack

    def update_nested(self, id: str, body: str, given: dict[str, str], tags: dict[str, str]) -> None:
        stack = self.stacks[id]
        template, values = self._parsed(body, given)
        before = (stack.body, stack.template, stack.given, stack.values, stack.tags)
        stack.body, stack.template, stack.given, stack.values, stack.tags = body, template, given, values, tags
        self._set(stack, "UPDATE_IN_PROGRESS")
        list(self._update(stack, before))
        if stack.status != "UPDATE_COMPLETE":
            failed = next(event for event in stack.events if event["ResourceStatus"].endswith("_FAILED"))
            raise ValueError(f"Embedded stack {id} was not updated: {failed.get('ResourceStatusReason')}")

    def remove_nested(self, id: str) -> None:
        stack = self.stacks[id]
        if stack.deleted is None:
            self._set(stack, "DELETE_IN_PROGRESS")
            list(self._delete(stack))

    def change_set(self, name: str, title: str, body: str, given: dict[str, str], tags: dict[str, str]) -> ChangeSet:
        stack = self.find(name)
        if stack.status not in OPEN:
            raise StackError("ValidationError", f"Stack:{stack.id} is in {stack.status} state and can not be updated.")
        if title in stack.change_sets:
            raise StackError("AlreadyExistsException", f"ChangeSet {title} already exists")
        template, values = self._parsed(body, given)
        draft = Stack(name, stack.id, body, template, given, values, tags, stack.created, resources=stack.resources)
        self._scope(draft).check_rules()
        changes = self._changes(stack, draft)
        id = f"arn:aws:cloudformation:{self.name}:{ACCOUNT}:changeSet/{title}/{uuid.uuid4()}"
        made = ChangeSet(title, id, body, given, tags, changes)
        if not changes and not template.get("Outputs", {}).keys() - stack.template.get("Outputs", {}).keys():
            made.status, made.execution = "FAILED", "UNAVAILABLE"
            made.reason = (
                "The submitted information didn't contain changes. Submit different information to create a change set."
            )
        stack.change_sets[title] = made
        return made

    def find_change_set(self, title: str, name: str | None) -> tuple[Stack, ChangeSet]:
        for stack in [self.find(name)] if name else list(self.stacks.values()):
            for made in stack.change_sets.values():
                if title in (made.name, made.id):
                    return stack, made
        raise StackError("ChangeSetNotFound", f"ChangeSet [{title}] does not exist")

    def execute(self, title: str, name: str | None) -> None:
        stack, made = self.find_change_set(title, name)
        if made.execution != "AVAILABLE" or stack.status not in OPEN:
            raise StackError("InvalidChangeSetStatus", f"ChangeSet [{made.id}] cannot be executed")
        self.update(stack, made.body, made.values, made.tags)

    def update(self, stack: Stack, body: str, given: dict[str, str], tags: dict[str, str]) -> None:
        if stack.status not in OPEN:
            raise StackError("ValidationError", f"Stack:{stack.id} is in {stack.status} state and can not be updated.")
        template, values = self._parsed(body, given)
        draft = Stack(
            stack.name, stack.id, body, template, given, values, tags, stack.created, resources=stack.resources
        )
        if not self._changes(stack, draft):
            raise StackError("ValidationError", "No updates are to be performed.")
        before = (stack.body, stack.template, stack.given, stack.values, stack.tags)
        stack.body, stack.template, stack.given, stack.values, stack.tags = body, template, given, values, tags
        stack.change_sets.clear()
        stack.updated = self.clock.now()
        self._set(stack, "UPDATE_IN_PROGRESS", "User Initiated")
        self._begin(stack, self._update(stack, before))
        self.tick()

    # Work, as generators that yield how long they take

    def _create(self, stack: Stack) -> Iterator[float]:
        try:
            order = waves(self._scope(stack).wanted())
            for wave in order:
                made = [self._make(stack, logical) for logical in wave]
                yield max(HANDLERS[one.kind].seconds for one in made)
                for one in made:
                    self._finish(stack, one)
        except _Failed as failed:
            yield from self._roll_back(stack, failed)
            return
        stack.outputs = self._scope(stack).outputs()
        self._set(stack, "CREATE_COMPLETE")

    def _make(self, stack: Stack, logical: str) -> Resource:
        declared = stack.template["Resources"][logical]
        one = Resource(
            logical, declared["Type"], {}, deletion=declared.get("DeletionPolicy", "Delete"), at=self._moment
        )
        stack.resources[logical] = one
        if one.kind not in HANDLERS:
            self._fail(stack, one, f"Template error: the stand-in has no resource type {one.kind}")
        try:
            one.props = self._scope(stack).value(declared.get("Properties", {}))
            one.physical, one.attributes = HANDLERS[one.kind].create(one.props, self.place(stack, logical))
        except _Failed:
            raise
        except Exception as error:
            self._fail(stack, one, f"{error}")
        self._event(stack, one, "CREATE_IN_PROGRESS", "Resource creation Initiated")
        return one

    def _finish(self, stack: Stack, one: Resource) -> None:
        reason = self.faults.resource_failure(stack.name, one.logical, "create")
        if reason:
            self._fail(stack, one, reason)
        one.status = "CREATE_COMPLETE"
        self._event(stack, one, "CREATE_COMPLETE")

    def _fail(self, stack: Stack, one: Resource, reason: str) -> None:
        one.status, one.reason = "CREATE_FAILED", reason
        self._event(stack, one, "CREATE_FAILED", reason)
        raise _Failed(one.logical, reason)

    def _roll_back(self, stack: Stack, failed: _Failed) -> Iterator[float]:
        for one in stack.resources.values():
            if one.status == "CREATE_IN_PROGRESS":
                one.status, one.reason = "CREATE_FAILED", "Resource creation cancelled"
                self._event(stack, one, "CREATE_FAILED", "Resource creation cancelled")
        why = f"The following resource(s) failed to create: [{failed.logical}]. "
        if not stack.rollback:
            self._set(stack, "CREATE_FAILED", why)
            return
        self._set(stack, "ROLLBACK_IN_PROGRESS", why + "Rollback requested by user.")
        stuck = yield from self._remove_all(stack, kept=("Retain",))
        self._set(stack, "ROLLBACK_FAILED" if stuck else "ROLLBACK_COMPLETE", "")

    def _delete(self, stack: Stack) -> Iterator[float]:
        stuck = yield from self._remove_all(stack, kept=("Retain", "RetainExceptOnCreate"))
        if stuck:
            names = ", ".join(stuck)
            self._set(stack, "DELETE_FAILED", f"The following resource(s) failed to delete: [{names}]. ")
            return
        stack.deleted = self._moment
        self._set(stack, "DELETE_COMPLETE")

    def _remove_all(self, stack: Stack, kept: tuple[str, ...]) -> Any:
        """Delete the resources in reverse order; the names of those that cannot be deleted."""
        stuck: list[str] = []
        wanted = {name: body for name, body in self._scope(stack).wanted().items() if name in stack.resources}
        for wave in reversed(waves(wanted)):
            there = [
                stack.resources[n]
                for n in wave
                if stack.resources[n].status not in ("DELETE_COMPLETE", "DELETE_SKIPPED")
            ]
            there = [one for one in there if one.physical]
            for one in there:
                if stuck:
                    continue
                if one.deletion in kept:
                    one.status = "DELETE_SKIPPED"
                    self._event(stack, one, "DELETE_SKIPPED")
                    continue
                reason = yield from self._remove(stack, one)
                if reason:
                    one.status, one.reason = "DELETE_FAILED", reason
                    self._event(stack, one, "DELETE_FAILED", reason)
                    stuck.append(one.logical)
            if there:
                yield 15.0
        return stuck

    def _remove(self, stack: Stack, one: Resource) -> Any:
        """Delete one resource; the reason where that fails again and again."""
        reason = ""
        for attempt in range(DELETE_ATTEMPTS):
            if attempt:
                yield DELETE_PAUSE
            reason = self.faults.resource_failure(stack.name, one.logical, "delete")
            if reason:
                break
            try:
                HANDLERS[one.kind].delete(one.physical, one.props, self.place(stack, one.logical))
            except Exception as error:
                if _is_missing(error):
                    reason = ""
                else:
                    reason = f"{error}"
                    continue
            if HANDLERS[one.kind].deletion:
                yield HANDLERS[one.kind].deletion
            one.status, one.physical = "DELETE_COMPLETE", ""
            self._event(stack, one, "DELETE_COMPLETE")
            return ""
        return reason

    def _update(self, stack: Stack, before: tuple[Any, ...]) -> Iterator[float]:
        wanted = self._scope(stack).wanted()
        try:
            for wave in waves(wanted):
                for logical in wave:
                    yield from self._update_one(stack, logical)
        except _Failed as failed:
            stack.body, stack.template, stack.given, stack.values, stack.tags = before
            self._set(
                stack,
                "UPDATE_ROLLBACK_IN_PROGRESS",
                f"The following resource(s) failed to update: [{failed.logical}]. ",
            )
            yield 30.0
            self._set(stack, "UPDATE_ROLLBACK_COMPLETE")
            return
        for logical in [name for name in stack.resources if name not in wanted]:
            one = stack.resources.pop(logical)
            if one.deletion not in ("Retain", "RetainExceptOnCreate"):
                yield from self._remove(stack, one)
        stack.outputs = self._scope(stack).outputs()
        self._set(stack, "UPDATE_COMPLETE")
        head = self.heads.get(stack.name)
        if head is not None and cluster_resources.fleet(head) == "RUNNING":
            cluster_resources.reconcile(head)

    def _update_one(self, stack: Stack, logical: str) -> Iterator[float]:
        declared = stack.template["Resources"][logical]
        old = stack.resources.get(logical)
        if old is None:
            made = self._make(stack, logical)
            yield HANDLERS[made.kind].seconds
            self._finish(stack, made)
            return
        props = self._scope(stack).value(declared.get("Properties", {}))
        changed = _changed(old.props, props)
        old.deletion = declared.get("DeletionPolicy", "Delete")
        if not changed:
            return
        handler = HANDLERS[old.kind]
        self._event(stack, old, "UPDATE_IN_PROGRESS")
        try:
            if reason := self.faults.resource_failure(stack.name, logical, "update"):
                raise StackError("ValidationError", reason)
            if not _immutable(changed, handler):
                if handler.update:
                    handler.update(old.physical, props, self.place(stack, logical))
                old.props = props
            else:
                keep = declared.get("UpdateReplacePolicy", "Delete") == "Retain"
                made = self._make(stack, logical)
                yield handler.seconds
                self._finish(stack, made)
                if not keep:
                    handler.delete(old.physical, old.props, self.place(stack, logical))
        except _Failed:
            raise
        except Exception as error:
            self._event(stack, old, "UPDATE_FAILED", str(error))
            raise _Failed(logical, str(error)) from error
        yield 20.0
        self._event(stack, stack.resources[logical], "UPDATE_COMPLETE")

    # Helpers

    def _parsed(self, body: str, given: dict[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
        try:
            template = parse(body)
            return template, parameters(template, given, self.exists)
        except TemplateError as error:
            raise StackError("ValidationError", str(error)) from error

    def _scope(self, stack: Stack) -> Scope:
        pseudo = {
            "AWS::Region": self.name,
            "AWS::AccountId": ACCOUNT,
            "AWS::StackName": stack.name,
            "AWS::StackId": stack.id,
            "AWS::Partition": "aws",
            "AWS::URLSuffix": "amazonaws.com",
            "AWS::NotificationARNs": [],
        }

        def resource(logical: str, attribute: str | None) -> Any:
            one = stack.resources.get(logical)
            if one is None or not one.physical:
                return f"{stack.name}.{logical}.unknown"
            if attribute is None:
                return one.physical
            if attribute not in one.attributes:
                raise TemplateError(f"Attribute {attribute} of {logical} ({one.kind}) is not known")
            return one.attributes[attribute]

        return Scope(stack.template, stack.values, pseudo, self.zones(), resource)

    def _changes(self, stack: Stack, draft: Stack) -> list[dict[str, Any]]:
        scope = self._scope(draft)
        wanted = scope.wanted()
        changes = []
        for logical, declared in wanted.items():
            old = stack.resources.get(logical)
            if old is None:
                changes.append(_change("Add", logical, declared["Type"], ""))
                continue
            changed = _changed(old.props, scope.value(declared.get("Properties", {})))
            if changed or stack.tags != draft.tags:
                replaced = "True" if _immutable(changed, HANDLERS[old.kind]) else "False"
                changes.append(_change("Modify", logical, old.kind, old.physical, replaced))
        for logical, old in stack.resources.items():
            if logical not in wanted:
                changes.append(_change("Remove", logical, old.kind, old.physical))
        return changes

    def place(self, stack: Stack, logical: str) -> Place:
        return Place(self.name, ACCOUNT, self.client, self.fsx, stack.name, logical, stack.tags, self)

    def _set(self, stack: Stack, status: str, reason: str = "") -> None:
        stack.status, stack.reason = status, reason
        self._event(stack, None, status, reason)

    def _event(self, stack: Stack, one: Resource | None, status: str, reason: str = "") -> None:
        event = {
            "StackId": stack.id,
            "StackName": stack.name,
            "EventId": str(uuid.uuid4()),
            "LogicalResourceId": one.logical if one else stack.name,
            "PhysicalResourceId": one.physical if one else stack.id,
            "ResourceType": one.kind if one else "AWS::CloudFormation::Stack",
            "Timestamp": self.clock.when(self._moment),
            "ResourceStatus": status,
        }
        if one:
            one.at = self._moment
        stack.events.insert(0, event | ({"ResourceStatusReason": reason} if reason else {}))


class _Failed(Exception):
    def __init__(self, logical: str, reason: str) -> None:
        super().__init__(reason)
        self.logical = logical


def _is_missing(error: Exception) -> bool:
    code = getattr(error, "response", {}).get("Error", {}).get("Code", "")
    return "NotFound" in code or code in ("NoSuchEntity", "NoSuchBucket", "ResourceNotFoundException")


def _changed(old: dict[str, Any], new: dict[str, Any]) -> set[str]:
    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(inner) for key, inner in value.items()}
        return [plain(inner) for inner in value] if isinstance(value, list) else str(value)

    def flat(props: dict[str, Any]) -> dict[str, Any]:
        """Settings one level down by their own name: some of them can change, others cannot."""
        rows: dict[str, Any] = {}
        for key, value in props.items():
            inner = {f"{key}.{name}": one for name, one in value.items()} if isinstance(value, dict) else {key: value}
            rows |= inner
        return rows

    before, after = flat(old), flat(new)
    return {key for key in {*before, *after} if plain(before.get(key)) != plain(after.get(key))}


def _immutable(changed: set[str], handler: Any) -> bool:
    return any(key not in handler.mutable and key.split(".")[0] not in handler.mutable for key in changed)


def _change(action: str, logical: str, kind: str, physical: str, replacement: str = "") -> dict[str, Any]:
    row = {"Action": action, "LogicalResourceId": logical, "ResourceType": kind, "PhysicalResourceId": physical}
    return {"Type": "Resource", "ResourceChange": row | ({"Replacement": replacement} if replacement else {})}
