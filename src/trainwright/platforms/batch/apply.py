"""Batch on AWS: after its stacks are made, a queue must take jobs; before they are removed, its jobs must be over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trainwright.aws.batch_queues import BatchQueues
from trainwright.aws.cloudformation import Stack
from trainwright.catalog.instances import find_instance
from trainwright.platforms.apply.build import Build
from trainwright.platforms.apply.preflight import Question
from trainwright.platforms.apply.remove import JobsOnCluster, Removal, kind_of
from trainwright.platforms.apply.stack_steps import StackDown
from trainwright.platforms.apply.status import Machine, StatusReader, states_by_queue, tag_of, tagged_machines
from trainwright.platforms.apply.steps import BuildFailed, Step
from trainwright.platforms.base import NodeStatus, QueueStatus
from trainwright.platforms.batch.default_group import (
    QUESTION,
    ask_default_group,
    closed_default_group,
    how_to_open,
    what_is_closed,
)
from trainwright.stacks.references import fill

KIND = "batch"  # the stacks of queues are called batch-QUEUE
QUEUE_TAG = "trainwright:queue"  # on the machines that a compute environment starts: the job queue's name


class BatchBuild(Build):
    """One plan of Batch on its way to AWS."""

    def questions(self) -> list[Question]:
        return [(QUESTION, lambda: ask_default_group(self.account, self.plan.spec))]

    def steps(self, stop_nodes: bool = False) -> list[Step]:
        steps = self.stack_steps()
        api = BatchQueues(self.account)
        for stack in [stack for stack in self.plan.stacks if stack.template == KIND]:
            name = stack.parameters["QueueName"]
            subnet = stack.parameters["Subnet"] if "Cards" in stack.parameters else ""
            steps.append(QueueUp(f"queue-{name}", f"job queue {name}", (stack.key,), api=api, queue=name,
                                 outputs=self.outputs, stack=stack.key, efa_subnet=subnet))  # fmt: skip
        return steps


@dataclass
class QueueUp(Step):
    """Wait until a queue and its compute environment are valid, and let them take jobs: a `down` that was ended leaves
    the queue closed."""

    api: BatchQueues = field(kw_only=True)
    queue: str = field(kw_only=True)
    stack: str = field(kw_only=True)
    outputs: Mapping[str, Mapping[str, str]] = field(kw_only=True)
    efa_subnet: str = field(kw_only=True, default="")  # of a queue with EFA, as the plan names it

    def advance(self) -> bool:
        environment = self.outputs[self.stack]["ComputeEnvironment"]
        for title, part, switch in (
            ("compute environment", self.api.environment(environment), self.api.switch_environment),
            ("job queue", self.api.queue(self.queue), self.api.switch_queue),
        ):
            if part is None:
                raise BuildFailed(
                    f"the {title} of {self.queue} is gone, and its stack is not: somebody deleted it",
                    fix="`trainwright down` and `up` again; stacks that hold data are kept",
                )
            if part.status == "INVALID":
                raise BuildFailed(f"the {title} of {self.queue} is invalid: {part.reason or 'AWS gives no reason'}")
            if not part.settled:
                self.now("changing", f"{title}: {part.status.lower()}")
                return False
            if part.state != "ENABLED":
                switch(environment if title == "compute environment" else self.queue, "ENABLED")
                self.now("changing", f"opening the {title}")
                return False
        self._require_open_group()
        self.now("ready")
        return True

    def _require_open_group(self) -> None:
        if not self.efa_subnet:
            return
        group = closed_default_group(self.api.account, fill(self.efa_subnet, self.outputs))
        if group:
            raise BuildFailed(f"jobs of {self.queue} would wait for each other: {what_is_closed(group)}",
                              fix=how_to_open(group))  # fmt: skip


class BatchRemoval(Removal):
    """One cluster of Batch on its way out. A queue is closed and empty before its stack goes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.queues = BatchQueues(self.account)

    @property
    def logs(self) -> str:
        return "CloudWatch, /aws/batch/job"

    def own_stacks(self, stacks: Mapping[str, Stack]) -> dict[str, Stack]:
        keyed = {name.removeprefix(f"{self.name}-"): stack for name, stack in stacks.items()}
        return {key: stack for key, stack in keyed.items() if kind_of(key) == KIND}

    def own_steps(self, existing: Mapping[str, Stack]) -> list[Step]:
        stacks = {key: stack for key, stack in existing.items() if kind_of(key) == KIND}
        if not stacks:
            return []
        # First: a `down` that was ended finds the stacks, and so comes back to the definitions.
        first = DefinitionsDown("definitions", "job definitions", api=self.queues, cluster=self.name)
        return [first, *(self._queue_down(key, stack, (first.key,)) for key, stack in stacks.items())]

    def _queue_down(self, key: str, stack: Stack, needs: tuple[str, ...]) -> StackDown:
        step = StackDown(key, f"stack {stack.name}", needs, api=self.stacks, name=stack.name)
        step.before = lambda stack: self._drained(stack, step)
        return step

    def require_idle(self, existing: Mapping[str, Stack], force: bool) -> None:
        jobs = {queue: rows for queue in self._queues(existing) if (rows := self.queues.jobs(queue))}
        if jobs and not force:
            lines = [f"{queue}: {job.name} ({job.id}, {job.state})" for queue, rows in jobs.items() for job in rows]
            raise JobsOnCluster(self.name, lines)

    def _queues(self, existing: Mapping[str, Stack]) -> list[str]:
        return [stack.parameters["QueueName"] for key, stack in existing.items() if kind_of(key) == KIND]

    def _drained(self, stack: Stack, step: StackDown) -> bool:
        """Close the queue, end what is on it, and wait until nothing is."""
        name = stack.parameters["QueueName"]
        queue = self.queues.queue(name)
        if queue is None or queue.status in ("DELETING", "DELETED"):
            return True
        if queue.state == "ENABLED" and queue.settled:
            self.queues.switch_queue(name, "DISABLED")
        if queue.state == "ENABLED" or not queue.settled:
            step.now("removing", f"closing job queue {name}")
            return False
        jobs = self.queues.jobs(name)
        for job in jobs:
            self.queues.terminate(job.id, "the cluster is removed with trainwright down --force")
        if jobs:
            step.now("removing", f"{len(jobs)} jobs of {name} end")
        return not jobs


@dataclass
class DefinitionsDown(Step):
    """Deregister what `submit` registered: a definition belongs to no stack. Jobs that still run keep theirs."""

    api: BatchQueues = field(kw_only=True)
    cluster: str = field(kw_only=True)

    def advance(self) -> bool:
        for definition in self.api.definitions(self.cluster):
            self.api.deregister(definition)
        self.now("gone")
        return True


class BatchStatus(StatusReader):
    """Queues as Batch sees them. Its machines carry the queue's name as a tag."""

    platform = "batch"

    def own(self, stacks: Mapping[str, Stack]) -> dict[str, Stack]:
        keyed = {name.removeprefix(f"{self.name}-"): stack for name, stack in stacks.items()}
        self._own = {key: stack for key, stack in keyed.items() if kind_of(key) == KIND}
        return self._own

    def machines(self) -> list[Machine]:
        names = [stack.parameters["QueueName"] for stack in self._own.values()]
        return tagged_machines(self.account, QUEUE_TAG, names) if names else []

    def queue_of(self, machine: Machine) -> str:
        return tag_of(machine, QUEUE_TAG)

    def queues(self, own: Mapping[str, Stack], nodes: Sequence[NodeStatus]) -> tuple[QueueStatus, ...]:
        states = states_by_queue(nodes)
        rows = []
        for stack in own.values():
            name, machine = stack.parameters["QueueName"], find_instance(stack.parameters["InstanceType"])
            cpus = machine.vcpus if machine else 1
            least, most = (int(stack.parameters[key]) // cpus for key in ("MinVcpus", "MaxVcpus"))
            gpus = machine.accelerator_count if machine else 0
            rows.append(QueueStatus(name, least, most, cpus, gpus, states.get(name, {})))
        return tuple(rows)

    def reservation_ids(self, own: Mapping[str, Stack]) -> list[str]:
        return sorted({id for stack in own.values() if (id := stack.parameters.get("Reservation"))})

    def problems(self, own: Mapping[str, Stack]) -> tuple[str, ...]:
        api, problems = BatchQueues(self.account), []
        for stack in [stack for stack in own.values() if stack.usable]:
            name = stack.parameters["QueueName"]
            parts = {"job queue": api.queue(name), "compute environment": None}
            if "ComputeEnvironment" in stack.outputs:
                parts["compute environment"] = api.environment(stack.outputs["ComputeEnvironment"])
            for title, part in parts.items():
                if part is None:
                    problems.append(f"the {title} of {name} is gone; `trainwright down` and `up` again")
                elif part.status == "INVALID":
                    problems.append(f"the {title} of {name} is invalid: {part.reason}")
                elif part.state != "ENABLED":
                    problems.append(f"the {title} of {name} takes no jobs ({part.state}); `trainwright up` opens it")
        return tuple(problems)
