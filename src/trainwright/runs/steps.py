"""The steps of a run as they come: from metrics.jsonl, or from the log of a trainer that writes none."""

from __future__ import annotations

import dataclasses
import json
import time
from dataclasses import dataclass, field
from typing import Any

from trainwright.runs.framework_logs import LogReader
from trainwright.runs.store import Run
from trainwright.schedulers.base import Scheduler
from trainwright.schedulers.logs import new_lines

Step = dict[str, Any]  # step, and what is known of loss, tokens_per_s, step_s, time, goodput, total


@dataclass
class StepSource:
    """New steps of a run with each call. Frameworks print from the first rank or from the last one."""

    run: Run
    scheduler: Scheduler
    logs: bool = True  # also read logs, where there is no metrics.jsonl
    position: int = 0
    seen: dict[str, str] = field(default_factory=dict)
    readers: dict[str, LogReader] = field(default_factory=dict)
    newest: tuple[float, int] | None = None  # when the newest step of a log was read

    def new(self) -> list[Step]:
        lines, self.position = new_lines(self.scheduler.shell, f"{self.run.where}/metrics.jsonl", self.position)
        steps = [step for line in lines if (step := parse(line))]
        return steps if self.position or not self.logs else self._from_logs()

    def _from_logs(self) -> list[Step]:
        steps: dict[int, Step] = {}
        for rank in sorted({0, self.run.ranks - 1}):
            for source, line in self.scheduler.logs(self.run.identity, self.run.where, self.seen, rank):
                reader = self.readers.setdefault(source, LogReader(gpus=self.run.ranks))
                record = reader.take(line)
                if record is not None:
                    known = {key: value for key, value in dataclasses.asdict(record).items() if value is not None}
                    steps[record.step] = {**steps.get(record.step, {}), **known}
        return self._timed(list(steps.values()))

    def _timed(self, steps: list[Step]) -> list[Step]:
        """A log has no times: where it does not say how long a step took, the clock does, from one call to the next."""
        if steps:
            now, last = time.time(), int(steps[-1]["step"])
            if self.newest and last > self.newest[1]:
                steps[-1].setdefault("step_s", (now - self.newest[0]) / (last - self.newest[1]))
            self.newest = (now, last)
        return steps


def steps_so_far(run: Run, scheduler: Scheduler, most: int | None = None) -> list[Step]:
    """The steps of a run; with `most`, those of so many bytes at the end of metrics.jsonl, which a list of many long
    runs can afford. Nor does a list ask an API for the log of each."""
    size = scheduler.shell.size(f"{run.where}/metrics.jsonl") if most else 0
    # The first line after that position may be cut: what does not parse is no step.
    return StepSource(run, scheduler, scheduler.ships, position=max(0, size - (most or 0))).new()


def parse(line: str) -> Step | None:
    """A line of metrics.jsonl; None for the last line of a run that was cut off."""
    try:
        step = json.loads(line)
    except ValueError:
        return None
    return step if isinstance(step, dict) and "step" in step else None
