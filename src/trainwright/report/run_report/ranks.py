"""Step time by rank: a heat map per kind of time, a row per rank, and the stragglers, from timings.jsonl."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from pathlib import Path

from trainwright.health import stragglers
from trainwright.report.run_report.folder import json_lines
from trainwright.report.run_report.model import HeatMap, RankRow
from trainwright.report.run_report.series import HeatColumns

KINDS = {
    "step_s": "Step time by rank",
    "data_s": "Wait for data by rank",
    "compute_s": "A fixed piece of work by rank",
}
SAMPLE = 501  # measurements per rank that its median is taken over


@dataclass
class RankTimes:
    """What is kept while the measurements are read one by one."""

    columns: dict[str, HeatColumns] = field(default_factory=lambda: {name: HeatColumns() for name in KINDS})
    sample: list[stragglers.Timings] = field(default_factory=list)
    newest: list[stragglers.Timings] = field(default_factory=list)
    every: int = 1  # of the measurements, one in so many is in the sample
    count: int = 0
    worst: dict[int, tuple[float, int]] = field(default_factory=dict)

    def take(self, row: stragglers.Timings) -> None:
        for name, columns in self.columns.items():
            columns.take(row.step, getattr(row, name))
        for rank, seconds in enumerate(row.step_s):
            if seconds > self.worst.get(rank, (0.0, 0))[0]:
                self.worst[rank] = (seconds, row.step)
        self.newest = [*self.newest, row][-stragglers.WINDOW :]
        if self.count % self.every == 0:
            self.sample.append(row)
        if len(self.sample) > 2 * SAMPLE:
            self.sample, self.every = self.sample[::2], self.every * 2
        self.count += 1


def read_ranks(folder: Path) -> RankTimes:
    times = RankTimes()
    for line in json_lines(folder / stragglers.FILE):
        try:
            row = stragglers.timings_of(line)
        except (KeyError, TypeError):
            continue
        times.take(row)
    return times


def heat_maps(times: RankTimes) -> tuple[HeatMap, ...]:
    """A map per kind of time, for runs of several ranks."""
    maps = []
    for name, title in KINDS.items():
        columns = times.columns[name]
        ranks = len(columns.rows[-1]) if columns.rows else 0
        kept = [at for at, row in enumerate(columns.rows) if len(row) == ranks]
        if ranks > 1:
            cells = tuple(value for at in kept for value in columns.rows[at])
            maps.append(HeatMap(name, title, "s", tuple(columns.steps[at] for at in kept), ranks, cells))
    return tuple(maps)


def rank_rows(times: RankTimes) -> tuple[RankRow, ...]:
    if not times.newest:
        return ()
    hosts = times.newest[-1].hosts
    sample = [row for row in times.sample if len(row.hosts) == len(hosts)] or times.newest[-1:]
    return tuple(
        RankRow(
            rank,
            host,
            statistics.median(row.step_s[rank] for row in sample),
            statistics.median(row.data_s[rank] for row in sample),
            statistics.median(row.compute_s[rank] for row in sample),
            *times.worst.get(rank, (0.0, 0)),
        )
        for rank, host in enumerate(hosts)
    )


def named_stragglers(times: RankTimes) -> tuple[str, ...]:
    return tuple(
        f"rank {one.rank} on {one.host} {one.message}"
        for one in (stragglers.find(times.newest) if times.newest else [])
    )
