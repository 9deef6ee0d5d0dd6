"""CAP: capacity. How many nodes, of which type, from which reservation."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.check.model import File, known
from trainwright.check.registry import Problem, problem, rule


@rule("CAP001", "error")
def counts_fit_the_capacity(file: File) -> Iterator[Problem]:
    """A queue's counts must fit together and fit its capacity.

    The largest count cannot be below the smallest. A Capacity Block is bought whole and for a fixed time, so its
    nodes are static: the smallest and the largest count are equal, above zero, and the block's id is named.

    Why: the cluster is refused, or (a block without its id) nodes are asked for on demand and never come.

    Fix: make MaxCount at least MinCount; for a block set both to the block's size and name its id.

    Source: ParallelCluster, ComputeResourceSizeValidator; Capacity Blocks documentation.
    """
    for _, queue in file.queues:
        low, high = known(queue.min_count), known(queue.max_count)
        if queue.max_count is not None and low is not None and high is not None and high < low:
            yield problem(
                queue.max_count,
                f"{queue.label}: the largest count ({high}) is below the smallest ({low})",
                f"raise it to {low} or more",
            )
        if known(queue.capacity) != "block":
            continue
        at = queue.max_count or queue.min_count or queue.capacity
        if at is not None and (low or 0) != (high if high is not None else 10) and low != high:
            yield problem(
                at,
                f"{queue.label}: a Capacity Block needs equal counts, not {low or 0} to {high}",
                "set both to the block's size",
            )
        elif at is not None and low == 0 == high:
            yield problem(at, f"{queue.label}: a Capacity Block with no nodes", "set both counts to the block's size")
        if queue.reservation is None and queue.capacity is not None:
            yield problem(
                queue.capacity,
                f"{queue.label}: a Capacity Block without its id",
                "name the block's reservation id (cr-…)",
            )
