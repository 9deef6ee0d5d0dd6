"""A ParallelCluster at one moment: its head node, its queues from the deployed cluster file, its reservations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from trainwright.aws.cloudformation import Stack
from trainwright.platforms.apply.status import (
    Machine,
    SchedulerState,
    StatusReader,
    states_by_queue,
    tag_of,
    tagged_machines,
)
from trainwright.platforms.base import NodeStatus, QueueStatus
from trainwright.platforms.parallelcluster.apply.slurm import ask_nodes, config_of, slurm_of


class ParallelClusterStatus(StatusReader):
    platform = "parallelcluster"
    _cluster: Stack | None = None

    def own(self, stacks: Mapping[str, Stack]) -> dict[str, Stack]:
        self._cluster = stacks.get(self.name)
        return {"cluster": self._cluster} if self._cluster is not None else {}

    def machines(self) -> list[Machine]:
        return tagged_machines(self.account, "parallelcluster:cluster-name", [self.name])

    def is_head(self, machine: Machine) -> bool:
        return tag_of(machine, "parallelcluster:node-type") == "HeadNode"

    def queue_of(self, machine: Machine) -> str:
        return tag_of(machine, "parallelcluster:queue-name")

    def ask_scheduler(self, head: Machine | None) -> Callable[[], SchedulerState | None]:
        if head is None or head["State"]["Name"] != "running":
            return lambda: SchedulerState(unknown="the head node is not running") if self._cluster is not None else None
        return ask_nodes(lambda: slurm_of(self.name, self.account, self._config), self.patience)

    @cached_property
    def _config(self) -> dict[str, Any]:
        return config_of(self._cluster, self.account)

    @property
    def _queues(self) -> list[dict[str, Any]]:
        return list(self._config.get("Scheduling", {}).get("SlurmQueues", []))

    def queues(self, own: Mapping[str, Stack], nodes: Sequence[NodeStatus]) -> tuple[QueueStatus, ...]:
        from trainwright.catalog.instances import find_instance

        states = states_by_queue(nodes)
        queues = []
        for queue in self._queues:
            parts = queue["ComputeResources"]
            types = [p.get("InstanceType") or p["Instances"][0]["InstanceType"] for p in parts]
            known = find_instance(types[0])
            queues.append(
                QueueStatus(
                    queue["Name"],
                    sum(p.get("MinCount", 0) for p in parts),
                    sum(p.get("MaxCount", 0) for p in parts),
                    known.vcpus if known else 0,
                    known.accelerator_count if known else 0,
                    states.get(queue["Name"], {}),
                )
            )
        return tuple(queues)

    def reservation_ids(self, own: Mapping[str, Stack]) -> list[str]:
        parts = [part for queue in self._queues for part in queue["ComputeResources"]]
        targets = [part.get("CapacityReservationTarget", {}) for part in parts]
        return sorted({target["CapacityReservationId"] for target in targets if "CapacityReservationId" in target})
