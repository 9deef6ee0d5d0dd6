"""One trace of several ranks, each a process of its own, with the predicted step above them: for Perfetto or Chrome."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainwright.predict.trace import STEP, read_trace

PREDICTED = 0  # the process above the ranks
APART = 100_000_000  # between the process numbers of two ranks


def merged(traces: Sequence[Path], prediction: dict[str, Any] | None) -> dict[str, Any]:
    events: list[dict[str, Any]] = []
    for index, path in enumerate(traces, start=1):
        trace = read_trace(path)
        rank = (trace.get("distributedInfo") or {}).get("rank", index - 1)
        start = _first_step(trace)
        for event in trace["traceEvents"]:
            moved = dict(event)
            pid = event.get("pid")
            moved["pid"] = index * APART + pid if isinstance(pid, int) else f"rank {rank}: {pid}"
            if "ts" in event:
                moved["ts"] = float(event["ts"]) - start  # clocks of nodes differ: steps begin together
            if event.get("ph") == "M" and event.get("name") == "process_name":
                moved["args"] = {"name": f"rank {rank}: {event.get('args', {}).get('name', '')}"}
            events.append(moved)
    return {"traceEvents": [*_predicted(prediction), *events], "displayTimeUnit": "ms"}


def write_merged(traces: Sequence[Path], prediction: dict[str, Any] | None, path: Path) -> None:
    text = json.dumps(merged(traces, prediction)).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def _first_step(trace: dict[str, Any]) -> float:
    starts = [float(e["ts"]) for e in trace["traceEvents"] if "ts" in e and STEP.match(str(e.get("name", "")))]
    every = [float(e["ts"]) for e in trace["traceEvents"] if e.get("ph") == "X"]
    return min(starts or every or [0.0])


def _predicted(prediction: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The predicted parts of one step, one after the other, and beside them the communication behind them."""
    parts = (prediction or {}).get("parts") or {}
    if not parts:
        return []
    named = {"ph": "M", "pid": PREDICTED, "name": "process_name", "args": {"name": "predicted step"}}
    events, at = [named], 0.0
    for name, seconds in parts.items():
        if seconds > 0:
            place = {"ph": "X", "cat": "predicted", "pid": PREDICTED, "tid": 0, "ts": at}
            events.append({**place, "name": name, "dur": seconds * 1e6})
            at += seconds * 1e6
    hidden = float((prediction or {}).get("hidden_communication_s") or 0.0)
    if hidden:
        beside = {"ph": "X", "cat": "predicted", "pid": PREDICTED, "tid": 1, "ts": 0.0, "dur": hidden * 1e6}
        events.append({**beside, "name": "communication behind compute"})
    return events
