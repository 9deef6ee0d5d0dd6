"""A resolved job for people (`plan --explain`, `submit --dry-run --explain`) and for the run folder (`resolved.json`):
every value with its origin."""

from __future__ import annotations

import dataclasses
from typing import Any

from trainwright.jobs.resolved import ResolvedJob
from trainwright.spec.units import format_seconds
from trainwright.train.parallel.plan import ParallelPlan

AXES = tuple(field.name for field in dataclasses.fields(ParallelPlan))
DURATIONS = ("every", "checkpoint every", "time")


def rows(job: ResolvedJob) -> list[tuple[str, str, str]]:
    """(name, value, origin) for all that was decided; axes of the plan that are 1 are left out."""
    placement = job.placement
    derived = [
        ("instance", placement.queue.instance or "none", f"queue {placement.queue.name}"),
        ("ranks", str(job.ranks), "nodes x processes"),
        ("cpus", str(placement.cpus or "all"), "per process: the node's cores, shared out"),
        (
            "run folder",
            job.run_root or "of this machine",
            "the cluster's first shared file system" if job.run_root else "",
        ),
        ("runtime", "container" if job.runtime.container else job.runtime.venv or "the node's own Python", ""),
    ]
    decided = [
        (name, _text(name, decision.value), str(decision.origin))
        for name, decision in job.decisions.items()
        if not (name in AXES and decision.value == 1) and name != "parallel"
    ]
    return [*decided, *derived]


def explain_job(job: ResolvedJob) -> str:
    """A table: what, value, where it comes from."""
    table = rows(job)
    names, values = max(len(name) for name, _, _ in table), max(len(value) for _, value, _ in table)
    lines = [f"  {name:<{names}}  {value:<{values}}  {origin}".rstrip() for name, value, origin in table]
    return "\n".join([f"job {job.name}", *lines])


def record(job: ResolvedJob) -> dict[str, Any]:
    """The job as `resolved.json` keeps it."""
    return {
        "job": job.name,
        "trainer": job.trainer,
        "ranks": job.ranks,
        "values": {name: {"value": value, "origin": origin} for name, value, origin in rows(job)},
        "environment": {line.name: line.why for line in job.environment},
    }


def _text(name: str, value: Any) -> str:
    if hasattr(value, "model_dump"):
        plain = value.model_dump(exclude_none=True)
        return ", ".join(f"{key}: {_text(key, item)}" for key, item in plain.items())
    if name in DURATIONS and isinstance(value, int | float):
        return format_seconds(value)
    return str(value)
