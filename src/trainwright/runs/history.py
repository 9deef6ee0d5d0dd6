"""What became of earlier runs, read from their folders and from whichever scheduler still knows them."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

from trainwright.runs import store
from trainwright.runs.cause import Cause, cause_of, log_ends
from trainwright.runs.follow import Progress
from trainwright.runs.reach import run_state, scheduler_of, shell_of
from trainwright.runs.store import Run
from trainwright.schedulers.base import JobStatus
from trainwright.schedulers.logs import new_lines

FAILED = frozenset({"failed", "timeout", "node-failed"})


@dataclass(frozen=True)
class Row:
    """One fact about each of the runs compared."""

    what: str
    values: tuple[str, ...]


def newest(limit: int) -> list[dict[str, str]]:
    return [facts(run) for run in itertools.islice(store.all_runs(), limit)]


def facts(run: Run, status: JobStatus | None = None) -> dict[str, str]:
    """The few words that tell one run from another."""
    progress = last_metrics(run)
    return {
        "run": run.name,
        "job": run.job_id,
        "where": run.cluster or run.scheduler,
        "state": (status or run_state(run)).state,
        "ranks": str(run.ranks),
        "step": str(progress.step or ""),
        "loss": "" if progress.loss is None else f"{progress.loss:.4f}",
    }


def last_metrics(run: Run) -> Progress:
    progress = Progress(run.steps)
    progress.take(new_lines(shell_of(run), f"{run.where}/metrics.jsonl", 0)[0])
    return progress


def compare(names: Sequence[str]) -> list[Row]:
    """Facts, commit and environment of one run or two, side by side; with two, only the variables that differ."""
    found = [store.find(name) for name in names]
    each = [_everything(run) for run in found]
    rows = [Row(key, tuple(fact[key] for fact in each)) for key in each[0]]
    lines = [_environment(run) for run in found]
    for name in sorted(set().union(*lines)):
        values = tuple(line.get(name, "") for line in lines)
        if len(found) == 1 or len(set(values)) > 1:
            rows.append(Row(name, values))
    return rows


def _everything(run: Run) -> dict[str, str]:
    status = run_state(run)
    return {
        **facts(run, status),
        "speed": _speed(run),
        "predicted": _predicted(run),
        "failed by": str(failure(run, status) or ""),
        "restarts": str(_restarts(run)),
        "submitted": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.submitted or run.created)),
        "commit": _commit(run),
        "folder": f"{run.host}:{run.where}" if run.host else run.where,
    }


def failure(run: Run, status: JobStatus) -> Cause | None:
    """Why a run that failed did so, by the words of its ranks."""
    if status.state not in FAILED:
        return None
    scheduler = scheduler_of(run)
    if scheduler.ships:
        return cause_of(log_ends(run.where, shell_of(run)))
    logs: dict[str, list[str]] = {}
    for source, line in scheduler.logs(run.identity, run.where, {}):
        logs.setdefault(source, []).append(line)
    return cause_of(logs.items())


def _speed(run: Run) -> str:
    speed = last_metrics(run).tokens_per_second
    return f"{speed:.0f} tokens/s" if speed else ""


def _predicted(run: Run) -> str:
    path = run.folder / "prediction.json"
    speed = json.loads(path.read_text()).get("tokens_per_s") if path.exists() else None
    return f"{speed:.0f} tokens/s" if speed else ""


def _commit(run: Run) -> str:
    path = run.folder / "git.json"
    if not path.exists():
        return ""
    state = json.loads(path.read_text())
    return str(state["commit"])[:10] + (" with changes" if state["changed"] else "")


def _restarts(run: Run) -> int:
    path = run.folder / "events.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return max(0, sum('"source": "job", "event": "started"' in line for line in lines) - 1)


def _environment(run: Run) -> dict[str, str]:
    path = run.folder / "environment"
    lines = path.read_text().splitlines() if path.exists() else []
    pairs = (line.split("  #", 1)[0].strip().partition("=") for line in lines if "=" in line)
    return {name: value for name, _, value in pairs}
