"""What to change when a job does not fit: the nearest plan that does on the same machines, or on more of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from trainwright.predict.constants import Constants
from trainwright.predict.hardware import Cluster, cluster
from trainwright.predict.memory import TIGHT, host_fits, least_recompute, memory
from trainwright.predict.search import plans
from trainwright.predict.setup import Batch, Setup, zero_stage
from trainwright.predict.step import step_time

MORE_NODES = (2, 4, 8, 16, 32)
AXES = ("replicate", "shard", "tp", "pp", "cp", "virtual_stages")


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A job that fits, and how it differs from the one asked for: as flags, and as keys of a job in a spec."""

    setup: Setup
    flags: str
    keys: str


def nearest_that_fits(asked: Setup, c: Constants) -> Suggestion | None:
    """Fewest changes first, then speed; more nodes where no plan on these fits."""
    for factor in (1, *MORE_NODES):
        machines = cluster(asked.cluster.instance, asked.cluster.nodes * factor) if factor > 1 else asked.cluster
        fitting = list(fitting_setups(asked, machines, c))
        if fitting:
            best = min(fitting, key=lambda s: (changes(asked, s), step_time(s, c).total))
            changed = list(_difference(asked, best))
            return Suggestion(best, " ".join(flag for flag, _ in changed), ", ".join(key for _, key in changed))
    return None


def fitting_setups(asked: Setup, machines: Cluster, c: Constants) -> Iterator[Setup]:
    """The job under every plan for these machines, where it fits."""
    sequences = asked.batch.sequences(asked.plan)
    for plan in plans(asked.shape, machines, asked.batch.sequence):
        share = sequences // plan.data
        for micro in (m for m in {1, asked.batch.micro} if share >= 1 and share % m == 0):
            batch = Batch(asked.batch.sequence, micro, share // micro)
            zero = zero_stage(plan, asked.profile)
            put_off = asked.zero_bubble and plan.pp > 1
            other = replace(asked, cluster=machines, plan=plan, zero=zero, batch=batch, zero_bubble=put_off)
            s = other if put_off else least_recompute(other, c)  # such a schedule goes without recomputation
            if memory(s, c).total <= TIGHT * machines.device.memory and host_fits(s):
                yield s


def changes(asked: Setup, other: Setup) -> int:
    """How many axes and batch sizes differ: the measure of nearness."""
    return sum(1 for n in AXES if getattr(asked.plan, n) != getattr(other.plan, n)) + int(asked.batch != other.batch)


def _difference(asked: Setup, best: Setup) -> Iterator[tuple[str, str]]:
    """What differs from the job asked for: as a flag, and as a key of a job."""
    if best.cluster.nodes != asked.cluster.nodes:
        yield f"--nodes {best.cluster.nodes}", f"nodes: {best.cluster.nodes}"
    if best.plan != asked.plan:
        written = str(best.plan)
        yield f"--parallel {written}", f"parallel: {{{written.replace('=', ': ').replace(',', ', ')}}}"
    if best.batch.micro != asked.batch.micro:
        yield f"--micro-batch {best.batch.micro}", f"batch.micro_batch: {best.batch.micro}"
    if best.recompute != asked.recompute:
        yield f"--recompute {best.recompute}", f"recompute: {best.recompute}"
