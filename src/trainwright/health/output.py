"""A report as text, as the patch of a Kubernetes node condition, and many reports as one table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from trainwright.health.verdict import Report

CONDITION = "TrainwrightHealthy"
ORDER = {"fail": 0, "error": 1, "warn": 2, "skip": 3, "pass": 4}


def as_text(report: Report, verbose: bool = False) -> str:
    """Faults first, then what passed; skipped checks are counted, or listed when asked for."""
    shown = [result for result in report.results if verbose or result.status != "skip"]
    shown = sorted(shown, key=lambda result: ORDER[result.status])
    width = max((len(result.id) for result in shown), default=0)
    lines = [f"{result.status:5}  {result.id:{width}}  {result.message}" for result in shown]
    left_out = sum(result.status == "skip" for result in report.results)
    lines += (
        [f"skip   {left_out} checks do not apply or could not run (--verbose lists them)"]
        if left_out and not verbose
        else []
    )
    return "\n".join([*lines, summary(report)])


def summary(report: Report) -> str:
    """The last line: the verdict, and why."""
    kind = f" ({report.instance})" if report.instance else ""
    reason = f": {report.reason}" if report.verdict != "pass" else ""
    gap = "" if report.complete else "; not complete, see the skipped checks"
    return f"{report.node}{kind}: {report.verdict}{reason}{gap} [{report.suite}, {report.seconds:.1f} s]"


def as_condition(report: Report) -> dict[str, Any]:
    """The body for `kubectl patch node NAME --subresource=status`: True while work may be placed here."""
    stamp = datetime.fromtimestamp(report.time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    first = next((fault for fault in report.faults if fault.verdict == report.verdict), None)
    name = "".join(part.capitalize() for part in first.id.replace(".", "_").split("_")) if first else ""
    condition = {
        "type": CONDITION,
        "status": "True" if report.usable else "False",
        "reason": f"{report.verdict.capitalize()}{name}",
        "message": report.reason[:1024] or "every check passed",
        "lastHeartbeatTime": stamp,
        "lastTransitionTime": stamp,
    }
    return {"status": {"conditions": [condition]}}


def columns(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Rows under a header, each column as wide as its widest cell."""
    cells = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[index]) for row in cells) for index in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )
