"""The events of a run in words, sorted into the lanes of its timeline: starts, checkpoints, requeues, failures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trainwright.report.run_report.model import Event

LANES = ("starts", "checkpoints", "warnings", "requeues", "failures", "ends")
_KINDS = {
    "started": "starts", "start": "starts", "resume": "starts", "save": "checkpoints", "checkpoint": "checkpoints",
    "straggler": "warnings", "guard": "warnings", "behind": "warnings", "note": "warnings", "saved": "requeues",
    "requeued": "requeues", "stop": "requeues", "crashed": "failures", "failed": "failures", "stopped": "failures",
    "cancelled": "ends", "done": "ends", "ended": "ends",
}  # fmt: skip
MOST = 2000  # events that a page shows; of more, checkpoints are thinned out first


def timeline(events: Iterable[Mapping[str, Any]]) -> tuple[Event, ...]:
    """Every event with a time, oldest first."""
    rows = [event_of(event) for event in events if isinstance(event.get("time"), int | float)]
    rows.sort(key=lambda event: event.time)
    plain = [event for event in rows if event.lane == "checkpoints"]
    if len(rows) > MOST:
        every = -(-len(plain) // max(1, MOST - (len(rows) - len(plain))))
        kept = set(plain[:: max(1, every)])
        rows = [event for event in rows if event.lane != "checkpoints" or event in kept]
    return tuple(rows[-MOST:])


def event_of(event: Mapping[str, Any]) -> Event:
    kind = str(event.get("event", ""))
    step = event.get("step")
    at = int(step) if isinstance(step, int | float) else None
    lane = _KINDS.get(kind, "warnings")
    if kind == "ended" and event.get("code"):
        lane = "failures"
    if kind == "started" and event.get("attempt"):
        lane = "requeues"
    return Event(float(event["time"]), lane, _text(kind, event), at)


def _text(kind: str, event: Mapping[str, Any]) -> str:
    step = f" at step {event['step']}" if "step" in event else ""
    match kind:
        case "started":
            where = f" on {event['nodes']}" if event.get("nodes") else ""
            attempt = int(event.get("attempt") or 0)
            return f"job started{where}" if not attempt else f"job started again{where}, attempt {attempt + 1}"
        case "start":
            return f"training starts{step} on {event.get('world', '?')} ranks, plan {event.get('plan', '')}"
        case "resume":
            return f"resumed from the checkpoint{step}"
        case "save":
            return f"checkpoint{step}: the step waited {float(event.get('stall_s') or 0):.3g} s"
        case "checkpoint":
            return f"checkpoint{step} is complete"
        case "straggler":
            return f"straggler: rank {event.get('rank')} on {event.get('host')} {event.get('why', '')}"
        case "behind":
            return f"slower than predicted ({event.get('cause')}): {event.get('why', '')}"
        case "guard":
            return f"guard {event.get('action', '')}{step}: {event.get('why', '')}"
        case "stop":
            return f"saved and stopped{step}: {event.get('reason', '')}"
        case "failed":
            return f"failed{step}: {event.get('reason', '')}"
        case "done":
            return f"training done{step}"
        case "ended":
            return f"job ended with exit status {event.get('code')}"
        case "note":
            return str(event.get("text", ""))
    return f"job {kind}{step}"
