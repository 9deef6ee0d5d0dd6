"""The live view where stdout is no terminal: a line per change, which `grep`, `tee` and a log keep."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable

from trainwright.report.run_report.words import printable
from trainwright.report.watch.snapshot import LIVE, RunView, Snapshot, Watcher
from trainwright.report.watch.words import run_line

PAUSE = 2.0  # seconds


def follow_plain(
    watcher: Watcher, say: Callable[[str], None], as_json: bool = False, pause: float = PAUSE, once: bool = False
) -> RunView | None:
    """Say what changes until the run is over, or, where none was chosen, until no job waits or runs."""
    before: dict[str, str] = {}
    while True:
        snapshot = watcher.poll()
        for key, text in (_json(snapshot) if as_json else _lines(snapshot, bool(watcher.chosen))).items():
            if before.get(key) != text:
                say(text)
                before[key] = text
        run = snapshot.run
        waiting = any(job.state in LIVE for job in snapshot.jobs)
        if once or (run is None or run.over if watcher.chosen else not waiting and (run is None or run.over)):
            return run
        time.sleep(pause)


def _lines(snapshot: Snapshot, one: bool) -> dict[str, str]:
    """Key -> line: a line is said again only when it changes."""
    lines = {}
    if not one:
        lines = {
            f"job {job.name}": f"{job.name}  {job.state}  {job.cluster or job.scheduler}  {job.node_list or job.reason}"
            for job in snapshot.jobs
        }
        lines |= {f"queue {c} {q}": f"queue {q} of {c}: {states}" for c, q, states in snapshot.queues}
    run = snapshot.run
    if run is not None:
        lines["run"] = run_line(run)
        if run.behind:
            lines["behind"] = f"{run.name}  {run.behind}"
    return {key: printable(line) for key, line in lines.items()}


def _json(snapshot: Snapshot) -> dict[str, str]:
    plain = dataclasses.asdict(snapshot)
    moment = plain.pop("time")
    text = json.dumps(plain, allow_nan=False)
    return {"all": text} if moment else {}
