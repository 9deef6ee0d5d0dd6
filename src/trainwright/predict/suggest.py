"""What to change when a job does not fit: the nearest plan that does on the same machines, or on more of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainwright.predict.constants import Constants
from trainwright.predict.hardware import cluster
from trainwright.predict.memory import least_recompute, memory
from trainwright.predict.plan import Batch
from trainwright.predict.prediction import TIGHT
from trainwright.predict.search import plans
from trainwright.predict.setup import Setup
from trainwright.predict.step import step_time

MORE_NODES = (2, 4, 8, 16, 32)


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A job that fits, and how it differs from the one asked for: in flags, and in keys of a job of a spec."""

    setup: Setup
    nodes: int
    words: str
    keys: str


def changes(asked: Setup, other: Setup) -> int:
    """How many degrees differ: the measure of nearness."""
    names = ("replicate", "shard", "tp", "pp", "cp", "interleave")
    return sum(1 for n in names if getattr(asked.plan, n) != getattr(other.plan, n)) + int(asked.batch != other.batch)


def nearest_that_fits(asked: Setup, instance: str, c: Constants) -> Suggestion | None:
    """Fewest changes first, then speed; more nodes where no plan on these fits."""
    sequences = asked.batch.sequences(asked.plan)
    for times in (1, *MORE_NODES):
        nodes = asked.cluster.nodes * times
        machines = cluster(instance, nodes) if times > 1 else asked.cluster
        fitting = []
        for plan in plans(asked.shape, machines, asked.batch.seq):
            share = sequences // plan.dp
            for micro in (m for m in {1, asked.batch.micro} if share >= 1 and share % m == 0):
                made = asked.but(cluster=machines, plan=plan, batch=Batch(asked.batch.seq, micro, share // micro))
                made = least_recompute(made, c)
                if memory(made, c).total <= TIGHT * machines.device.memory:
                    fitting.append(made)
        if fitting:
            best = min(fitting, key=lambda s: (changes(asked, s), step_time(s, c).total))
            changed = list(_difference(asked, best, nodes))
            return Suggestion(best, nodes, " ".join(flag for flag, _ in changed), ", ".join(key for _, key in changed))
    return None


def _difference(asked: Setup, best: Setup, nodes: int) -> Iterator[tuple[str, str]]:
    """What differs from what was asked for: as a flag, and as a key of a job."""
    if nodes != asked.cluster.nodes:
        yield f"--nodes {nodes}", f"nodes: {nodes}"
    if best.plan != asked.plan:
        degrees = best.plan.text()
        written = degrees.replace("=", ": ").replace(",", ", ").replace("interleave", "vp")
        yield f"--parallel {degrees}", f"parallel: {{{written}}}"
    if best.batch.micro != asked.batch.micro:
        yield f"--micro-batch {best.batch.micro}", f"batch.micro: {best.batch.micro}"
    if best.recompute != asked.recompute:
        yield f"--recompute {best.recompute}", f"recompute: {best.recompute}"
