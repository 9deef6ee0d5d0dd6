"""`up`: from a plan to the ordered steps, the same that the plan's deploy.sh takes, and what would change by them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from trainwright.aws.cloudformation import CLUSTER_TAG, Stack, StackApi
from trainwright.aws.fsx import FsxApi
from trainwright.aws.s3 import BucketApi
from trainwright.aws.session import Account
from trainwright.errors import UserError
from trainwright.platforms.parallelcluster.apply.cluster_steps import ClusterUp, Tool, deployed_config
from trainwright.platforms.parallelcluster.apply.small_steps import KeyPair, Scripts
from trainwright.platforms.parallelcluster.apply.stack_steps import StackOrder, StackUp, failed
from trainwright.platforms.parallelcluster.apply.steps import BuildFailed, Step
from trainwright.platforms.plan.difference import Difference, difference
from trainwright.platforms.plan.tree import ClusterPlan
from trainwright.stacks.references import fill, references

CLUSTER = "cluster"
OUTPUT_OF_FILE_SYSTEM = "FileSystemId"


@dataclass
class Build:
    """One plan on its way to AWS."""

    plan: ClusterPlan
    account: Account
    tool: Tool
    force: bool = False
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.stacks = StackApi(self.account)
        self.buckets = BucketApi(self.account)
        self.fsx = FsxApi(self.account)

    @property
    def name(self) -> str:
        return self.plan.spec.name

    @property
    def tags(self) -> dict[str, str]:
        return {**self.plan.spec.tags, CLUSTER_TAG: self.name}

    def orders(self) -> list[StackOrder]:
        return [
            StackOrder(stack.key, f"{self.name}-{stack.key}", stack.template, stack.parameters, self.tags)
            for stack in self.plan.stacks
        ]

    def steps(self, stop_fleet: bool = False) -> list[Step]:
        """Everything to make, in the order of the list; what needs nothing of another goes side by side."""
        steps: list[Step] = []
        for order, stack in zip(self.orders(), self.plan.stacks, strict=True):
            named = references(json.dumps(dict(order.parameters)))
            needs = tuple(dict.fromkeys(key for key, _ in named))
            steps.append(
                StackUp(
                    order.key,
                    f"stack {order.name}: {stack.why}",
                    needs,
                    api=self.stacks,
                    order=order,
                    outputs=self.outputs,
                    lost=self._lost,
                    force=self.force,
                )
            )
        if self.plan.scripts:
            steps.append(self._scripts())
        if self.plan.spec.head.key is not None:
            key = self.plan.spec.head.key
            steps.append(KeyPair("key", f"key pair {key}", account=self.account, name=key, tags=self.tags))
        needs = tuple(step.key for step in steps)
        steps.append(
            ClusterUp(
                CLUSTER,
                f"cluster {self.name}",
                needs,
                api=self.stacks,
                buckets=self.buckets,
                tool=self.tool,
                name=self.name,
                config=self.config,
                stop_fleet=stop_fleet,
                explain=self._cause,
            )
        )
        return steps

    def _scripts(self) -> Scripts:
        files = {key: self.plan.content(file) for file, key in self.plan.scripts.items()}
        return Scripts(
            "scripts",
            f"{len(files)} files that nodes fetch",
            ("bucket",),
            buckets=self.buckets,
            bucket=lambda: self.outputs["bucket"]["BucketName"],
            prefix=f"trainwright/{self.name}/",
            files=files,
        )

    def config(self) -> str:
        """The cluster file with the ids of what the stacks made."""
        return fill(_without_header(self.plan.files["cluster.yaml"]), self.outputs)

    def _lost(self, stack: Stack) -> str:
        """Whether the file system or bucket of a stack is `gone` or `going`; empty where it is there."""
        file_system, bucket = stack.outputs.get(OUTPUT_OF_FILE_SYSTEM), stack.outputs.get("BucketName")
        if file_system:
            row = self.fsx.find(file_system)
            return "gone" if row is None else "going" if row.state == "DELETING" else ""
        return "gone" if bucket and not self.buckets.exists(bucket) else ""

    def _cause(self, stack: Stack) -> BuildFailed:
        """Why the cluster failed: from its events and its nodes' logs where they show a known cause."""
        from trainwright.aws.cluster_logs import stack_texts
        from trainwright.platforms.diagnosis.explain import explain

        plain = failed(self.stacks, stack, self.name)
        explanation = explain(stack_texts(stack.name, self.account.region))
        if explanation is None:
            return plain
        return BuildFailed(f"{explanation.paragraph} ({plain.what})", where=self.name, fix=plain.fix)

    # What would change

    def existing(self) -> dict[str, Stack]:
        """The stacks of this cluster that are there, by their key; the cluster itself under `cluster`."""
        found = {stack.name: stack for stack in self.stacks.of_cluster(self.name)}
        names = {order.key: order.name for order in self.orders()} | {CLUSTER: self.name}
        return {key: found[name] for key, name in names.items() if name in found}

    def changes(self, existing: Mapping[str, Stack]) -> Difference:
        """How the plan differs from what is deployed. Only what is there can change; the rest is new."""
        old: dict[str, str] = {}
        new: dict[str, str] = {}
        outputs = {key: dict(stack.outputs) for key, stack in existing.items() if stack.usable}
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
        cluster = existing.get(CLUSTER)
        deployed = deployed_config(cluster, self.buckets) if cluster is not None and cluster.usable else None
        if deployed is not None:
            try:
                new["cluster.yaml"] = fill(_without_header(self.plan.files["cluster.yaml"]), outputs)
                old["cluster.yaml"] = deployed
            except UserError:
                pass
        return difference(old, new)


def _parameters(values: Mapping[str, str]) -> str:
    return json.dumps([{"ParameterKey": k, "ParameterValue": v} for k, v in sorted(values.items())])


def _without_header(text: str) -> str:
    """The file as data needs it: the comment on top names how to fill it in, which is done by now."""
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
