"""Reads a run for its report: from its folder here, from a copy of one elsewhere, or from nothing but a log."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from trainwright.runs.framework_logs import LogReader
from trainwright.runs.store import Run

NAMES = (
    "step", "time", "loss", "eval_loss", "tokens_per_s", "grad_norm", "lr", "step_s", "data_wait_s",
    "checkpoint_stall_s", "memory_gb", "mfu", "goodput", "tokens", "tflops_gpu", "samples_per_s",
)  # fmt: skip
REMOTE = ("metrics.jsonl", "events.jsonl", "timings.jsonl", "result.json", "config.json")
PREDICTED = (
    "tokens_per_s", "tokens_per_s_per_gpu", "low", "high", "step_time_s", "gpus", "mfu", "memory_gib",
)  # fmt: skip
CHUNK = 2**20
MOST_LOGS = 8  # frameworks print steps from the first rank or from the last one


@dataclass
class Steps:
    """Every step of a run by column; a value that was not logged is None."""

    columns: dict[str, list[float | None]] = field(default_factory=lambda: {name: [] for name in NAMES})
    framework: str = "trainwright"
    total: int | None = None
    lost: int = 0  # steps whose loss was logged and is not finite

    def add(self, row: Mapping[str, Any]) -> None:
        for name in NAMES:
            self.columns[name].append(_number(row.get(name)))
        # Our trainer writes a loss that is not finite as null; a log of another framework may leave it out of a line.
        logged = "loss" in row and (row["loss"] is not None or self.framework == "trainwright")
        self.lost += logged and self.columns["loss"][-1] is None
        total = _number(row.get("total"))
        self.total = int(total) if total else self.total

    def __len__(self) -> int:
        return len(self.columns["step"])

    def values(self, name: str) -> list[float]:
        """The known values of a column."""
        return [value for value in self.columns[name] if value is not None]

    def last(self, name: str) -> float | None:
        return next((value for value in reversed(self.columns[name]) if value is not None), None)

    def rows(self, *names: str) -> Iterator[dict[str, float | None]]:
        """The steps one by one, with these columns."""
        for values in zip(*(self.columns[name] for name in names), strict=True):
            yield dict(zip(names, values, strict=True))


def _number(value: object) -> float | None:
    """A finite number, or None: a log may hold anything."""
    if value is None or (type(value) is float and -1e300 < value < 1e300):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e300 and math.isfinite(value) else None


def read_steps(folder: Path, ranks: int) -> Steps:
    """From metrics.jsonl, else from the logs of a trainer that writes none."""
    steps = Steps()
    path = folder / "metrics.jsonl"
    if path.exists():
        for row in json_lines(path):
            if _number(row.get("step")) is not None:
                steps.add(row)
    return steps if len(steps) else _from_logs(folder, ranks)


def _from_logs(folder: Path, ranks: int) -> Steps:
    logs = [*sorted((folder / "logs").glob("*.log")), *sorted(folder.glob("job*.log"))]
    ends = {f"rank-{rank}.log" for rank in (0, ranks - 1)}
    chosen = [log for log in logs if log.name in ends] + [log for log in logs if log.name not in ends]
    read = [log_steps(log, ranks) for log in chosen[:MOST_LOGS]]
    return max(read, key=len, default=Steps(framework=""))


def log_steps(path: Path, ranks: int | None) -> Steps:
    """The steps of one log of any framework that is understood."""
    reader = LogReader(gpus=ranks)
    records: dict[int, dict[str, Any]] = {}
    with path.open(encoding="utf-8", errors="replace", newline="") as log:
        while text := log.read(CHUNK):
            records.update({record.step: asdict(record) for record in reader.feed(text)})
    records.update({record.step: asdict(record) for record in reader.close()})
    steps = Steps(framework=reader.framework)
    for _, row in sorted(records.items()):
        steps.add(row)
    return steps


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a JSONL file; a line that was cut off, or holds something else, is left out."""
    if not path.exists():
        return
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict):
                yield row


def json_file(path: Path) -> dict[str, Any]:
    """A JSON object, or an empty one where there is none to read."""
    try:
        row = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError):
        return {}
    return row if isinstance(row, dict) else {}


def read_prediction(folder: Path) -> dict[str, Any]:
    """`prediction.json`, where it holds the numbers that a measurement is held against; else nothing was predicted."""
    row = json_file(folder / "prediction.json")
    return row if all(_number(row.get(name)) for name in PREDICTED) else {}


def local_copy(run: Run, into: Path) -> Path:
    """The run's folder; of a run on another machine a copy with what its job has written there."""
    from trainwright.runs.reach import scheduler_of, shell_of

    if not run.host and run.where == str(run.folder):
        return run.folder
    scheduler, shell, copy = scheduler_of(run), shell_of(run), into / run.name
    (copy / "logs").mkdir(parents=True)
    for path in (*run.folder.iterdir(), *run.folder.glob("profile/summary.json")):
        if path.is_file():
            (copy / path.relative_to(run.folder)).parent.mkdir(exist_ok=True)
            (copy / path.relative_to(run.folder)).write_bytes(path.read_bytes())
    if not scheduler.ships:  # the nodes have no folder of ours: what the ranks print comes from an API
        for rank in sorted({0, run.ranks - 1}):
            lines = scheduler.logs(run.identity, run.where, {}, rank)
            (copy / f"logs/rank-{rank}.log").write_text("".join(f"{line}\n" for _, line in lines), encoding="utf-8")
        return copy
    benches = [name for name in shell.listing(run.where) if name.startswith("bench-") and name.endswith(".json")]
    ends = sorted({f"logs/rank-{rank}.log" for rank in (0, run.ranks - 1)})
    for name in (*REMOTE, *benches, *ends):
        if data := shell.read(f"{run.where}/{name}"):
            (copy / name).write_bytes(data)
    return copy
