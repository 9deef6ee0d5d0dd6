"""What became of earlier runs, from their folders and from whichever scheduler still knows them. Runs that continue one
another are one training: its steps are those of all its runs, and its goodput counts the time between them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainwright.runs import store
from trainwright.runs.cause import Cause, cause_of, log_ends
from trainwright.runs.follow import progress_of
from trainwright.runs.reach import run_state, scheduler_of, shell_of
from trainwright.runs.steps import steps_so_far
from trainwright.runs.store import Run
from trainwright.schedulers.base import JobStatus
from trainwright.schedulers.logs import new_lines

FAILED = frozenset({"failed", "timeout", "node-failed"})


@dataclass(frozen=True)
class Row:
    """One fact about each of the runs compared."""

    what: str
    values: tuple[Any, ...]


def newest(limit: int, all_of_them: bool = False) -> list[dict[str, Any]]:
    """The newest trainings, each by its last run; or every run by itself."""
    runs = list(store.all_runs())
    continued = {run.continues for run in runs} if not all_of_them else set()
    shown = [run for run in runs if run.name not in continued][:limit]
    return [facts(run) for run in shown]


def facts(run: Run, status: JobStatus | None = None) -> dict[str, Any]:
    """The facts of a run. Numbers are numbers; what is not known is None."""
    progress = progress_of(run)
    before = earlier(run)
    step = progress.step or max((progress_of(one).step for one in before), default=0)
    return {
        "run": run.name,
        "job": run.job_id,
        "where": run.cluster or run.scheduler,
        "state": (status or run_state(run)).state,
        "ranks": run.ranks,
        "step": step or None,
        "steps": run.steps,
        "loss": progress.loss,
        "tokens_per_s": progress.speed,
        "goodput": goodput(run) if before else progress.goodput,
        "continues": [one.name for one in before],
    }


def earlier(run: Run) -> list[Run]:
    """The runs that this one continues, the first one first."""
    chain: list[Run] = []
    while run.continues and (previous := store.read(run.continues)) and previous not in chain:
        chain.insert(0, previous)
        run = previous
    return chain


def goodput(run: Run) -> float | None:
    """The share of the time since the training was first submitted that went into steps which count: a step that a
    later run did again counts once."""
    chain = [*earlier(run), run]
    seconds: dict[int, float] = {}
    last = began = chain[0].submitted or chain[0].created
    for one in chain:
        before = None
        for record in steps_so_far(one, scheduler_of(one)):
            done = record["step"] - before if before is not None and record["step"] > before else 1
            seconds[record["step"]] = record.get("step_s", 0.0) * done
            before, last = record["step"], max(last, record.get("time", last))
    return sum(seconds.values()) / (last - began) if seconds and last > began else None


def compare(names: Sequence[str]) -> list[Row]:
    """Facts, commit and environment of one run or two, side by side; with two, only the variables that differ."""
    runs = [store.find(name) for name in names]
    each = [_everything(run) for run in runs]
    rows = [Row(key, tuple(fact[key] for fact in each)) for key in each[0]]
    environments = [_environment(run) for run in runs]
    for name in sorted(set().union(*environments)):
        values = tuple(environment.get(name, "") for environment in environments)
        if len(runs) == 1 or len(set(values)) > 1:
            rows.append(Row(name, values))
    return rows


def _everything(run: Run) -> dict[str, Any]:
    status = run_state(run)
    return {
        **facts(run, status),
        "predicted_tokens_per_s": progress_of(run).predicted,
        "reason": status.reason,
        "failed by": str(failure(run, status) or ""),
        "restarts": _restarts(run),
        "recovered from": str(recovered(run, status) or ""),
        "submitted": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.submitted or run.created)),
        "commit": _commit(run),
        "folder": f"{run.host}:{run.where}" if run.host else run.where,
    }


def failure(run: Run, status: JobStatus) -> Cause | None:
    """Why a run failed, from the errors of its ranks."""
    return _cause(run) if status.state in FAILED else None


def recovered(run: Run, status: JobStatus) -> Cause | None:
    """Why a run that came back after a crash had crashed: its logs hold every start of it."""
    crashed = any(event.get("event") == "crashed" for event in _events(run))
    return _cause(run) if crashed and status.state not in FAILED else None


def _cause(run: Run) -> Cause | None:
    scheduler = scheduler_of(run)
    if scheduler.ships:
        return cause_of(log_ends(run.where, shell_of(run)))
    logs: dict[str, list[str]] = {}
    for source, line in scheduler.logs(run.identity, run.where, {}):
        logs.setdefault(source, []).append(line)
    return cause_of(logs.items())


def _events(run: Run) -> list[dict[str, Any]]:
    lines = new_lines(shell_of(run), f"{run.where}/events.jsonl", 0)[0]
    return [json.loads(line) for line in lines if re.fullmatch(r"\{.*\}", line)]


def _commit(run: Run) -> str:
    path = run.folder / "git.json"
    if not path.exists():
        return ""
    state = json.loads(path.read_text())
    return str(state["commit"])[:10] + (" with changes" if state["changed"] else "")


def _restarts(run: Run) -> int:
    starts = [event for event in _events(run) if event.get("source") == "job" and event.get("event") == "started"]
    return max(0, len(starts) - 1)


def _environment(run: Run) -> dict[str, str]:
    path = run.folder / "environment"
    lines = path.read_text().splitlines() if path.exists() else []
    pairs = (line.split("  #", 1)[0].strip().partition("=") for line in lines if "=" in line)
    return {name: value for name, _, value in pairs}
