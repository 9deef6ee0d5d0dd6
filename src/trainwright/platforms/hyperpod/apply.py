"""HyperPod on AWS: after the stacks around it, the scripts that its nodes run with the stacks' ids in them, the key
pair, and the cluster, which is a stack too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from trainwright.aws.cloudformation import Stack
from trainwright.aws.hyperpod import HyperPodApi, HyperPodCluster, HyperPodNode
from trainwright.catalog.instances import find_instance
from trainwright.errors import UserError
from trainwright.platforms.apply.build import Build, Files, without_header
from trainwright.platforms.apply.remove import SlurmRemoval
from trainwright.platforms.apply.stack_steps import StackDown, StackOrder, StackUp
from trainwright.platforms.apply.status import Machine, SchedulerState, StatusReader, states_by_queue
from trainwright.platforms.apply.steps import Step
from trainwright.platforms.apply.uploads import Uploads
from trainwright.platforms.base import NodeStatus, QueueStatus
from trainwright.platforms.hyperpod.cluster_file import CONTROLLER
from trainwright.platforms.hyperpod.plan import CLUSTER_FILE
from trainwright.platforms.parallelcluster.apply.key_pair import KeyPair, KeyPairsDown
from trainwright.platforms.parallelcluster.apply.slurm import ask_nodes, open_jobs
from trainwright.stacks.references import fill

KEY, ROLE = "hyperpod", "role"  # stacks of this platform's own
UNHEALTHY = ("Failure", "NotFound")


@dataclass(frozen=True)
class ClusterOrder(StackOrder):
    """The cluster's stack: its template is a file of the plan, in which outputs of other stacks are filled in."""

    text: str = ""
    outputs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def body(self) -> str:
        return fill(self.text, self.outputs)

    def filled(self, outputs: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
        return {}


@dataclass
class FilledUploads(Uploads):
    """Uploads whose texts name outputs of stacks."""

    filled: Callable[[], Mapping[str, bytes]] = field(kw_only=True)

    def advance(self) -> bool:
        self.files = self.filled()
        return super().advance()


class WithHyperPod(Build):
    """What both kinds of HyperPod add to a build: the scripts that nodes fetch, and the cluster's stack."""

    def names(self) -> dict[str, str]:
        return {**super().names(), KEY: f"{self.name}-{KEY}"}

    def scripts_step(self) -> FilledUploads:
        title = f"{len(self.plan.scripts)} files that nodes fetch"
        return FilledUploads(
            "scripts", title, tuple(order.key for order in self.orders()), buckets=self.buckets,
            bucket=lambda: self.outputs["bucket"]["BucketName"], prefix=f"trainwright/{self.name}/", files={},
            filled=self._uploads,
        )  # fmt: skip

    def _uploads(self) -> dict[str, bytes]:
        plan = self.plan
        return {
            key: fill(plan.files[file], self.outputs).encode() if file in plan.files else plan.content(file)
            for file, key in plan.scripts.items()
        }

    def cluster_step(self, needs: tuple[str, ...]) -> StackUp:
        text = without_header(self.plan.files[CLUSTER_FILE])
        order = ClusterOrder(KEY, f"{self.name}-{KEY}", "", {}, self.tags, text, self.outputs)
        return StackUp(
            KEY, f"HyperPod cluster {self.name}", needs, api=self.stacks, order=order, outputs=self.outputs,
            force=self.force,
        )  # fmt: skip

    def files_of(self, key: str) -> tuple[str, ...]:
        return (CLUSTER_FILE,) if key == KEY else super().files_of(key)

    def cluster_files(
        self, existing: Mapping[str, Stack], outputs: Mapping[str, dict[str, str]]
    ) -> tuple[Files, Files]:
        cluster = existing.get(KEY)
        if cluster is None or not cluster.usable:
            return {}, {}
        try:
            planned = fill(without_header(self.plan.files[CLUSTER_FILE]), outputs)
        except UserError:  # a stack that it refers to is not there
            return {}, {}
        return {CLUSTER_FILE: self.stacks.template(cluster.name)}, {CLUSTER_FILE: planned}


class HyperPodBuild(WithHyperPod):
    """One plan of HyperPod with Slurm on its way to AWS."""

    def steps(self, stop_nodes: bool = False) -> list[Step]:
        steps = [*self.stack_steps(), self.scripts_step()]
        key = self.plan.spec.head.key
        if key is not None:
            steps.append(KeyPair("key", f"key pair {key}", account=self.account, name=key, tags=self.tags))
        return [*steps, self.cluster_step(tuple(step.key for step in steps))]


def hyperpod_stacks(name: str, stacks: Mapping[str, Stack]) -> dict[str, Stack]:
    """Key -> stack of what only HyperPod has, out of all stacks of a cluster by their name."""
    return {key: stacks[f"{name}-{key}"] for key in (KEY, ROLE) if f"{name}-{key}" in stacks}


class HyperPodRemoval(SlurmRemoval):
    """One cluster of HyperPod on its way out: the cluster, then its role and key, then the shared stacks."""

    @property
    def logs(self) -> str:
        return f"CloudWatch, /aws/sagemaker/Clusters/{self.name}/*"

    def own_stacks(self, stacks: Mapping[str, Stack]) -> dict[str, Stack]:
        return hyperpod_stacks(self.name, stacks)

    def open_jobs(self, existing: Mapping[str, Stack]) -> list[str] | None:
        from trainwright.platforms.hyperpod.platform import slurm_on_controller

        return open_jobs(slurm_on_controller(self.name, self.account.region), self.say) if KEY in existing else None

    def own_steps(self, existing: Mapping[str, Stack]) -> list[Step]:
        steps: list[Step] = []
        for key in (KEY, ROLE):
            if key in existing:
                name, needs = existing[key].name, tuple(step.key for step in steps)
                steps.append(StackDown(key, f"stack {name}", needs, api=self.stacks, name=name))
        after = tuple(step.key for step in steps)
        return [*steps, KeyPairsDown("key", "key pair", after, account=self.account, cluster=self.name)]


class HyperPodStatus(StatusReader):
    """Nodes as SageMaker sees them."""

    platform = "hyperpod"

    def own(self, stacks: Mapping[str, Stack]) -> dict[str, Stack]:
        return hyperpod_stacks(self.name, stacks)

    @cached_property
    def cluster(self) -> HyperPodCluster | None:
        return HyperPodApi(self.account).cluster(self.name)

    def machines(self) -> list[Machine]:
        """In the words of EC2, which the rest reads."""
        return [_machine(node) for node in HyperPodApi(self.account).nodes(self.name)]

    def is_head(self, machine: Machine) -> bool:
        return self.queue_of(machine) == CONTROLLER

    def ask_scheduler(self, head: Machine | None) -> Callable[[], SchedulerState | None]:
        from trainwright.platforms.hyperpod.platform import slurm_on_controller

        if head is None or head["State"]["Name"] != "running":
            return lambda: SchedulerState(unknown="the controller is not running") if self.cluster else None
        return ask_nodes(lambda: slurm_on_controller(self.name, self.account.region), self.patience)

    def queue_of(self, machine: Machine) -> str:
        return str(machine["Group"])

    def queues(self, own: Mapping[str, Stack], nodes: Sequence[NodeStatus]) -> tuple[QueueStatus, ...]:
        states = states_by_queue(nodes)
        rows = []
        for name, (type_, count) in (self.cluster.groups if self.cluster is not None else {}).items():
            machine = find_instance(type_)
            cpus, gpus = (machine.vcpus, machine.accelerator_count) if machine else (0, 0)
            if name != CONTROLLER:
                rows.append(QueueStatus(name, count, count, cpus, gpus, states.get(name, {})))
        return tuple(rows)

    def problems(self, own: Mapping[str, Stack]) -> tuple[str, ...]:
        if KEY not in own or not own[KEY].usable:
            return ()
        if self.cluster is None:
            return (f"HyperPod cluster {self.name} is gone, and its stack is not; `trainwright down` and `up` again",)
        problems = []
        if self.cluster.status in ("Failed", "RollingBack"):
            problems.append(f"HyperPod cluster {self.name} is {self.cluster.status}: {self.cluster.failure}")
        nodes = HyperPodApi(self.account).nodes(self.name)
        problems += [
            f"node {n.id} of {n.group}: {n.status} {n.message}".strip() for n in nodes if n.status in UNHEALTHY
        ]
        return tuple(problems)


def _machine(node: HyperPodNode) -> Machine:
    message: dict[str, Any] = {"StateReason": {"Message": node.message}} if node.message else {}
    return {
        "InstanceId": node.id, "InstanceType": node.type, "LaunchTime": node.launched, "Group": node.group,
        "State": {"Name": _state(node.status)}, **message,
    }  # fmt: skip


def _state(status: str) -> str:
    """A node's state in words that all platforms share, where there are some."""
    words = {"ShuttingDown": "shutting-down", "DeepHealthCheckInProgress": "checked"}
    return words.get(status, status.lower())
