"""The verdicts on collectives as text, as JSON and as a picture."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from trainwright.predict.collective_judge import Verdict
from trainwright.report.curve import Axes, Curve, svg


def verdict_text(verdict: Verdict) -> str:
    """The verdict, how its limits come about, and each size beside them."""
    lines = [f"{verdict.status.upper()} {verdict.op}: {verdict.reason}", *(f"  {line}" for line in verdict.derivation)]
    if verdict.points:
        lines.append(
            f"  {'size':>12} {'measured':>9} {'predicted':>10} {'floor':>8} {'ceiling':>8}  GB/s of bus bandwidth"
        )
    for point in verdict.points:
        guess = "-" if point.predicted is None else f"{point.predicted:.1f}"
        mark = "  below the floor" if point.busbw < point.floor else ""
        row = f"  {point.size:>12} {point.busbw:>9.2f} {guess:>10} {point.floor:>8.1f} {point.ceiling:>8.1f}"
        lines.append(row + mark)
    return "\n".join(lines)


def verdict_facts(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    return [dataclasses.asdict(verdict) for verdict in verdicts]


def picture(title: str, curves: dict[str, list[tuple[int, float]]], verdicts: Sequence[Verdict]) -> str:
    """Measured bus bandwidth over size; with one collective also its prediction, floor and ceiling."""
    lines = [Curve(name, points) for name, points in curves.items()]
    judged = [verdict for verdict in verdicts if verdict.points]
    if len(judged) == 1:
        points = judged[0].points
        if all(point.predicted is not None for point in points):
            lines.append(Curve("predicted", [(p.size, p.predicted or 0.0) for p in points], dashed=True))
        lines.append(Curve("floor", [(p.size, p.floor) for p in points], dashed=True))
        lines.append(Curve("ceiling", [(p.size, p.ceiling) for p in points], dashed=True))
    return svg(Axes(title, "message size in bytes", "bus bandwidth, GB/s", bytes=True), lines)
