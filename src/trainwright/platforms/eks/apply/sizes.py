"""How many nodes a group starts with or keeps. A plan knows neither whether a capacity block has begun nor to which
size somebody has scaled a group that is up: AWS is asked."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trainwright.aws.cloudformation import CLUSTER_TAG
from trainwright.aws.eks import EksApi
from trainwright.aws.session import Account, AwsRefused
from trainwright.platforms.apply.preflight_capacity import reservation
from trainwright.platforms.apply.status import tag_of, tagged_machines
from trainwright.spec.model import Queue, Spec


@dataclass(frozen=True)
class GroupSizes:
    """The sizes of one cluster's node groups."""

    account: Account
    spec: Spec

    @cached_property
    def running(self) -> dict[str, int]:
        """The nodes that each group should have now, by its name; of groups that EKS manages."""
        return {group.name: group.desired for group in EksApi(self.account).node_groups(self.spec.name)}

    @cached_property
    def blocks(self) -> dict[str, dict[str, Any]]:
        """The capacity block of each queue whose nodes are in a group, as EC2 shows it."""
        rows = {}
        for queue in self._on_blocks:
            try:
                rows[queue.name] = reservation(self.account, str(queue.capacity.id))
            except AwsRefused:
                continue  # the preflight says what is wrong with it
        return rows

    @property
    def _on_blocks(self) -> list[Queue]:
        """Karpenter starts its nodes itself when there is a job, and HyperPod those of its own groups."""
        if self.spec.platform != "eks":
            return []
        grouped = [queue for queue in self.spec.queues if queue.provisioner != "karpenter"]
        return [queue for queue in grouped if queue.capacity.kind == "block" and queue.capacity.id]

    def desired(self, group: str, planned: int, least: int, most: int) -> int:
        """The size for a group that is made or changed: never fewer nodes than there are, unless the spec says so, as
        that would end jobs."""
        return min(max(self._by_block(group, self.running.get(group, planned)), least), most)

    def to_scale(self) -> dict[str, int]:
        """Group -> nodes, of the groups on blocks that have another size than they should."""
        sizes = {}
        for queue in self._on_blocks:
            size = self.running.get(queue.name)
            if size is None:
                size = self._machines(queue.name)
            if (wanted := self._by_block(queue.name, size)) != size:
                sizes[queue.name] = wanted
        return sizes

    def _by_block(self, group: str, size: int) -> int:
        """On a capacity block no node before it begins, as every launch would fail, and from then on at least as many
        as the queue always has."""
        if group not in self.blocks:
            return size
        return max(size, self._least(group)) if self._active(group) else 0

    def waiting(self) -> tuple[str, ...]:
        """For each queue whose block has not begun: when it begins and what to run then."""
        return tuple(_later(queue, self.blocks[queue.name]) for queue in self._on_blocks if self._waits(queue.name))

    def _waits(self, queue: str) -> bool:
        return queue in self.blocks and not self._active(queue)

    def _active(self, queue: str) -> bool:
        return bool(self.blocks[queue]["State"] == "active")

    def _least(self, queue: str) -> int:
        return next((one.count.min for one in self.spec.queues if one.name == queue and one.count), 0)

    def _machines(self, queue: str) -> int:
        """The nodes of a group that EKS does not manage and so does not show."""
        rows = tagged_machines(self.account, CLUSTER_TAG, [self.spec.name])
        return sum(tag_of(row, "trainwright:queue") == queue for row in rows)


def _later(queue: Queue, row: dict[str, Any]) -> str:
    start = row.get("StartDate")
    begins = f"begins at {start:%Y-%m-%d %H:%M} UTC" if start else f"is {row['State']}"
    return (
        f"queue {queue.name} has no nodes yet: capacity block {queue.capacity.id} {begins}. "
        "Run the same `trainwright up` then: it starts them"
    )
