"""An EKS cluster at one moment: its control plane, node groups with what is wrong with them, and machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from trainwright.aws.cloudformation import CLUSTER_TAG, Stack
from trainwright.aws.eks import EksApi, NodeGroup
from trainwright.catalog.instances import find_instance
from trainwright.catalog.storage import unit_price
from trainwright.platforms.apply.status import Machine, StatusReader, states_by_queue, tag_of, tagged_machines
from trainwright.platforms.base import NodeStatus, QueueStatus
from trainwright.platforms.eks.apply.remove import CONTROL_PLANES, EksRemoval
from trainwright.platforms.eks.own_stacks import NODES

QUEUE_TAG = "trainwright:queue"
HEALTHY = ("ACTIVE", "CREATING", "UPDATING", "DELETING")


class EksStatus(StatusReader):
    platform = "eks"

    def own(self, stacks: Mapping[str, Stack]) -> dict[str, Stack]:
        return EksRemoval(self.name, self.account).own_stacks(stacks)

    @cached_property
    def _groups(self) -> list[NodeGroup]:
        return EksApi(self.account).node_groups(self.name)

    @cached_property
    def _nodes(self) -> list[Machine]:
        """EKS tags the nodes of groups that it manages; those of Karpenter and of other groups have our own tags."""
        rows = tagged_machines(self.account, "eks:cluster-name", [self.name])
        rows += [row for row in tagged_machines(self.account, CLUSTER_TAG, [self.name]) if tag_of(row, QUEUE_TAG)]
        return list({row["InstanceId"]: row for row in rows}.values())

    def machines(self) -> list[Machine]:
        return list(self._nodes)

    def queue_of(self, machine: Machine) -> str:
        return tag_of(machine, "eks:nodegroup-name") or tag_of(machine, QUEUE_TAG)

    def queues(self, own: Mapping[str, Stack], nodes: Sequence[NodeStatus]) -> tuple[QueueStatus, ...]:
        states = states_by_queue(nodes)
        seen = {self.queue_of(row): str(row["InstanceType"]) for row in self._nodes}
        rows = []
        for group in self._groups:
            # A group whose launch template names the type shows none of its own.
            stack = own.get(f"{NODES}-{group.name}")
            kind = group.instance or (stack.parameters.get("InstanceType", "") if stack else "")
            kind = kind or seen.get(group.name, "")
            rows.append(_queue(group.name, group.least, group.most, kind, states.get(group.name, {})))
        # Queues that have nodes and no group of EKS. How many they may have, AWS does not know: Karpenter does.
        for name in sorted(seen.keys() - {row.name for row in rows}):
            rows.append(_queue(name, 0, sum(states.get(name, {}).values()), seen[name], states.get(name, {})))
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


def _queue(name: str, least: int, most: int, kind: str, states: Mapping[str, int]) -> QueueStatus:
    known = find_instance(kind)
    cpus, gpus = (known.vcpus, known.accelerator_count) if known else (0, 0)
    return QueueStatus(name, least, most, cpus, gpus, states)
