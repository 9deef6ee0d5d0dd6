"""`up`: from a plan to the ordered steps, the same that the plan's deploy.sh takes, and what would change by them. A
platform adds its own steps after those of the stacks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from trainwright.aws.cloudformation import Stack, StackApi
from trainwright.aws.fsx import FsxApi
from trainwright.aws.s3 import BucketApi
from trainwright.aws.session import Account
from trainwright.errors import UserError
from trainwright.platforms.apply.preflight import Question
from trainwright.platforms.apply.stack_steps import StackOrder, StackUp
from trainwright.platforms.apply.steps import Step
from trainwright.platforms.plan.difference import Difference, difference
from trainwright.platforms.plan.tree import ClusterPlan
from trainwright.platforms.tags import cluster_tags
from trainwright.platforms.wiring import StackPlan
from trainwright.stacks.references import references

OUTPUT_OF_FILE_SYSTEM = "FileSystemId"
Files = dict[str, str]


@dataclass
class Build:
    """One plan on its way to AWS. This class makes the plan's stacks; a platform's own adds to `steps` what is no stack
    of the plan, and to `names`, `files_of` and `cluster_files` what `up --dry-run` shows of it."""

    plan: ClusterPlan
    account: Account
    force: bool = field(default=False, kw_only=True)
    outputs: dict[str, dict[str, str]] = field(default_factory=dict, kw_only=True)  # of finished stacks, by key

    def __post_init__(self) -> None:
        self.stacks = StackApi(self.account)
        self.buckets = BucketApi(self.account)
        self.fsx = FsxApi(self.account)

    @property
    def name(self) -> str:
        return self.plan.spec.name

    @property
    def tags(self) -> dict[str, str]:
        return cluster_tags(self.plan.spec)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know of the way in which it is made."""
        return ()

    @property
    def left_to_do(self) -> tuple[str, ...]:
        """What the user has to do later, after everything is made."""
        return ()

    def require(self) -> None:
        """Refuse where this machine lacks what the steps need."""

    def planned(self) -> tuple[StackPlan, ...]:
        """The stacks to make, each after those that it names."""
        return self.plan.stacks

    def orders(self) -> list[StackOrder]:
        return [
            StackOrder(stack.key, f"{self.name}-{stack.key}", stack.template, stack.parameters, self.tags)
            for stack in self.planned()
        ]

    def steps(self, stop_nodes: bool = False) -> list[Step]:
        """Everything to make, in the order of the list; what needs nothing of another goes side by side. `stop_nodes`:
        a change needs the compute nodes stopped."""
        return self.stack_steps()

    def questions(self) -> list[Question]:
        """What only this platform asks AWS before anything is made, each with its title."""
        return []

    def stack_steps(self) -> list[Step]:
        """The plan's stacks; each needs those whose outputs it names."""
        steps: list[Step] = []
        for order, stack in zip(self.orders(), self.planned(), strict=True):
            steps.append(
                StackUp(
                    order.key,
                    f"stack {order.name}: {stack.why}",
                    self.needs_of(stack),
                    api=self.stacks,
                    order=order,
                    outputs=self.outputs,
                    lost=self._lost,
                    force=self.force,
                )
            )
        return steps

    def needs_of(self, stack: StackPlan) -> tuple[str, ...]:
        """The keys of the steps before a stack."""
        return tuple(dict.fromkeys(key for key, _ in references(json.dumps(dict(stack.parameters)))))

    def _lost(self, stack: Stack) -> str:
        """Whether the file system or bucket of a stack is `gone` or `going`; empty where it is there."""
        file_system, bucket = stack.outputs.get(OUTPUT_OF_FILE_SYSTEM), stack.outputs.get("BucketName")
        if file_system:
            row = self.fsx.find(file_system)
            return "gone" if row is None else "going" if row.state == "DELETING" else ""
        return "gone" if bucket and not self.buckets.exists(bucket) else ""

    # What would change

    def names(self) -> dict[str, str]:
        """Key -> name in AWS, of every stack that `up` may find."""
        return {order.key: order.name for order in self.orders()}

    def existing(self) -> dict[str, Stack]:
        """The stacks of this cluster that are there, by their key."""
        there = {stack.name: stack for stack in self.stacks.of_cluster(self.name)}
        return {key: there[name] for key, name in self.names().items() if name in there}

    def files_of(self, key: str) -> tuple[str, ...]:
        """The files of the plan that a step makes real, by how their names start; none where a step only makes what is
        missing."""
        return (f"stacks/{key}.",) if key in {order.key for order in self.orders()} else ()

    def cluster_files(
        self, existing: Mapping[str, Stack], outputs: Mapping[str, dict[str, str]]
    ) -> tuple[Files, Files]:
        """(deployed, planned) text of the files that are no stacks."""
        return {}, {}

    def changes(self, existing: Mapping[str, Stack]) -> Difference:
        """How the plan differs from what is deployed. Only what is there can change; the rest is new."""
        outputs = {key: dict(stack.outputs) for key, stack in existing.items() if stack.usable}
        old: Files = {}
        new: Files = {}
        for order in self.orders():
            stack = existing.get(order.key)
            if stack is None or not stack.usable:
                continue
            name = f"stacks/{order.key}.parameters.json"
            try:
                wanted = order.filled(outputs)
            except UserError:  # a stack that it refers to is not there
                continue
            old[name], new[name] = _parameters(stack.parameters), _parameters(wanted)
            if self.stacks.template(stack.name) != order.body:
                new[f"stacks/{order.key}.yaml"], old[f"stacks/{order.key}.yaml"] = order.body, "another"
        deployed, planned = self.cluster_files(existing, outputs)
        return difference({**old, **deployed}, {**new, **planned})


def _parameters(values: Mapping[str, str]) -> str:
    return json.dumps([{"ParameterKey": k, "ParameterValue": v} for k, v in sorted(values.items())])


def without_header(text: str) -> str:
    """A file of the plan as data: the comment on top names how to fill it in, which is done by now."""
    lines = text.splitlines(keepends=True)
    start = next(i for i, line in enumerate(lines) if not line.startswith("#"))
    return "".join(lines[start:])


def refuse_impossible(changes: Difference, force: bool) -> bool:
    """Refuse what a live cluster cannot take; True where its nodes must be stopped for the change."""
    replaced = [change for change in changes.changes if change.effect == "replace"]
    if replaced:
        lines = "; ".join(f"{change.file} {change.path}: {change.say}" for change in replaced[:6])
        raise UserError(
            f"this cannot be changed on a cluster that is up: {lines}",
            fix="undo the change of the spec, or `trainwright down` first (data is kept unless you name it)",
        )
    stopped = [change for change in changes.changes if change.effect == "stop"]
    if stopped and not force:
        lines = "; ".join(f"{change.path}: {change.say}" for change in stopped[:6])
        raise UserError(
            f"this change needs the compute nodes stopped, which ends running jobs: {lines}",
            fix="wait until the jobs are over, then run `up --force`",
        )
    return bool(stopped)
