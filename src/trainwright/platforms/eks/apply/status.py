"""An EKS cluster at one moment: its control plane, node groups with what is wrong with them, and machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from trainwright.aws.cloudformation import Stack
from trainwright.aws.eks import EksApi, NodeGroup
from trainwright.catalog.instances import find_instance
from trainwright.catalog.storage import unit_price
from trainwright.platforms.apply.status import Machine, StatusReader, states_by_queue, tag_of, tagged_machines
from trainwright.platforms.base import NodeStatus, QueueStatus
from trainwright.platforms.eks.apply.remove import CONTROL_PLANES, EksRemoval
from trainwright.platforms.eks.own_stacks import NODES

HEALTHY = ("ACTIVE", "CREATING", "UPDATING", "DELETING")


class EksStatus(StatusReader):
    platform = "eks"

    def own(self, stacks: Mapping[str, Stack]) -> dict[str, Stack]:
        return EksRemoval(self.name, self.account).own_stacks(stacks)

    @cached_property
    def _groups(self) -> list[NodeGroup]:
        return EksApi(self.account).node_groups(self.name)

    def machines(self) -> list[Machine]:
        return tagged_machines(self.account, "eks:cluster-name", [self.name])

    def queue_of(self, machine: Machine) -> str:
        return tag_of(machine, "eks:nodegroup-name")

    def queues(self, own: Mapping[str, Stack], nodes: Sequence[NodeStatus]) -> tuple[QueueStatus, ...]:
        states, rows = states_by_queue(nodes), []
        for group in self._groups:
            # A group whose launch template names the type shows none of its own.
            stack = own.get(f"{NODES}-{group.name}")
            kind = group.instance or (stack.parameters.get("InstanceType", "") if stack else "")
            known = find_instance(kind)
            cpus, gpus = (known.vcpus, known.accelerator_count) if known else (0, 0)
            rows.append(QueueStatus(group.name, group.least, group.most, cpus, gpus, states.get(group.name, {})))
        return tuple(rows)

    def reservation_ids(self, own: Mapping[str, Stack]) -> list[str]:
        return sorted({id for stack in own.values() if (id := stack.parameters.get("Reservation"))})

    def costs(self, own: Mapping[str, Stack]) -> dict[str, float]:
        price = unit_price("eks/cluster-hour", self.account.region).usd
        return {key: price for key in own if key in CONTROL_PLANES}

    def problems(self, own: Mapping[str, Stack]) -> tuple[str, ...]:
        lines = [f"node group {g.name}: {issue}" for g in self._groups for issue in g.issues]
        lines += [f"node group {g.name} is {g.status}" for g in self._groups if g.status not in HEALTHY]
        cluster = EksApi(self.account).cluster(self.name) if any(key in own for key in CONTROL_PLANES) else None
        if cluster is not None and cluster.status == "FAILED":
            lines.append("the control plane has failed")
        return tuple(lines)
