"""How a training speeds up with nodes: measured beside predicted, with efficiency, as table, JSON and picture."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainwright.errors import UserError
from trainwright.report.curve import Axes, Curve, svg

WARM = 0.2  # the part of a run's steps that is left out: compilation, caches, first collectives


@dataclass(frozen=True, slots=True)
class Speed:
    """One run: its nodes, its tokens per second, and what was predicted before it started."""

    nodes: int
    tokens_per_s: float
    predicted: float | None = None


def node_counts(text: str) -> list[int]:
    """`1,2,4` as numbers."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise UserError(f"--nodes {text} is no list of node counts", fix="such as --nodes 1,2,4")
    return [int(word) for word in words]


def speed_of(folder: Path, nodes: int, guess: float | None = None) -> Speed:
    """From the run's own metrics and prediction; `guess` is the prediction of a run that keeps none."""
    lines = _lines(folder / "metrics.jsonl")
    rates = [line["tokens_per_s"] for line in lines[int(len(lines) * WARM) :] if line.get("tokens_per_s")]
    if not rates:
        raise UserError("the run has no metrics", where=str(folder), fix=f"trainwright logs {folder.name}")
    return Speed(nodes, statistics.median(rates), _predicted(folder / "prediction.json") or guess)


def _lines(path: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def _predicted(path: Path) -> float | None:
    if not path.exists():
        return None
    value = json.loads(path.read_text(encoding="utf-8")).get("tokens_per_s")
    return float(value) if value else None


def efficiency(rates: Sequence[tuple[int, float]]) -> list[float]:
    """Each rate per node, as a part of the smallest run's. For strong scaling and for weak alike."""
    nodes, rate = min(rates)
    return [value / count / (rate / nodes) for count, value in rates]


def facts(speeds: Sequence[Speed]) -> list[dict[str, float | int | None]]:
    """A row per node count."""
    measured = efficiency([(speed.nodes, speed.tokens_per_s) for speed in speeds])
    known = [(speed.nodes, speed.predicted) for speed in speeds if speed.predicted]
    guesses = dict(zip([n for n, _ in known], efficiency(known), strict=True)) if known else {}
    return [
        {
            "nodes": speed.nodes, "tokens_per_s": speed.tokens_per_s, "efficiency": part, "predicted": speed.predicted,
            "predicted_efficiency": guesses.get(speed.nodes),
            "off": speed.tokens_per_s / speed.predicted - 1 if speed.predicted else None,
        }
        for speed, part in zip(speeds, measured, strict=True)
    ]  # fmt: skip


def scaling_text(rows: Sequence[dict[str, float | int | None]]) -> str:
    lines = [f"{'nodes':>6} {'tokens/s':>12} {'efficiency':>11} {'predicted':>12} {'efficiency':>11} {'off by':>8}"]
    for row in rows:
        guess = "-" if row["predicted"] is None else f"{row['predicted']:,.0f}"
        part = "-" if row["predicted_efficiency"] is None else f"{row['predicted_efficiency']:.0%}"
        off = "-" if row["off"] is None else f"{row['off']:+.0%}"
        measured = f"{row['nodes']:>6} {row['tokens_per_s']:>12,.0f} {row['efficiency']:>11.0%}"
        lines.append(f"{measured} {guess:>12} {part:>11} {off:>8}")
    return "\n".join(lines)


def scaling_picture(title: str, speeds: Sequence[Speed]) -> str:
    first = min(speeds, key=lambda speed: speed.nodes)
    ideal = [(float(s.nodes), first.tokens_per_s / first.nodes * s.nodes) for s in speeds]
    curves = [
        Curve("measured", [(float(s.nodes), s.tokens_per_s) for s in speeds]),
        Curve("linear", ideal, dashed=True),
    ]
    guesses = [(float(speed.nodes), speed.predicted) for speed in speeds if speed.predicted]
    if guesses:
        curves.append(Curve("predicted", guesses, dashed=True))
    return svg(Axes(title, "nodes", "tokens per second"), curves)
