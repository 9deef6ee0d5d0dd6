"""Share of the time that trains despite failures: Daly's formula, a simulation to check it, the best interval."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

DAY = 86_400.0
# Llama 3 405B: 466 interruptions in 54 days on 16,384 GPUs in 2,048 nodes (arXiv:2407.21783, section 3.3.4).
FAILURES_PER_NODE_DAY = 466 / (54 * 2048)
SPOT_FAILURES = 20.0  # times the usual rate: spot nodes are also reclaimed
START_S = 900.0  # from the launch of the instances to the first step: boot, mount, import, compile; it is paid for
RESTART_S = 600.0  # find and replace the failed node, start the job, load the checkpoint


@dataclass(frozen=True, slots=True)
class Goodput:
    """Share of the wall-clock time that trains, and the values it was computed from."""

    effective: float
    interval_s: float
    stall_s: float
    restart_s: float
    mean_time_between_failures_s: float
    failures_per_day: float


def failures_per_node_day(price_kind: str) -> float:
    return FAILURES_PER_NODE_DAY * (SPOT_FAILURES if price_kind == "spot" else 1.0)


def best_interval(stall: float, mtbf: float) -> float:
    """Young's optimum: checkpoint stalls and lost work cost the same time."""
    return max(stall, math.sqrt(2.0 * max(stall, 1e-3) * mtbf))


def effective_time(interval: float, stall: float, restart: float, mtbf: float) -> float:
    """Daly (2006): expected wall time of one segment of `interval` useful seconds under exponential failures, in which
    a failure costs the work since the last checkpoint and a restart that can itself fail."""
    rate = 1.0 / mtbf
    wall = math.exp(restart * rate) * mtbf * math.expm1((interval + stall) * rate)
    return interval / wall


def goodput(
    nodes: int,
    stall: float,
    interval: float | None = None,
    restart: float = RESTART_S,
    failure_rate: float = FAILURES_PER_NODE_DAY,
) -> Goodput:
    """`failure_rate`: failures per node and day."""
    per_day = max(failure_rate * nodes, 1e-9)
    mtbf = DAY / per_day
    every = interval or best_interval(stall, mtbf)
    return Goodput(effective_time(every, stall, restart, mtbf), every, stall, restart, mtbf, per_day)


def simulate(
    useful: float, interval: float, stall: float, restart: float, mtbf: float, seed: int = 0, runs: int = 20
) -> float:
    """Simulate `runs` trainings of `useful` seconds, failure by failure; returns the mean effective share."""
    rng = random.Random(seed)
    wall = 0.0
    for _ in range(runs):
        done, clock = 0.0, 0.0
        fails_at = rng.expovariate(1.0 / mtbf)
        while done < useful:
            segment = min(interval, useful - done)
            if clock + segment + stall <= fails_at:
                clock += segment + stall
                done += segment
                continue
            clock = fails_at
            while (again := rng.expovariate(1.0 / mtbf)) < restart:
                clock += again
            clock += restart
            fails_at = clock + again - restart
        wall += clock
    return runs * useful / wall
