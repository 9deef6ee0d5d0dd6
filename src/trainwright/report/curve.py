"""Draws curves over message size, node count or worker count as one SVG file that a browser or a README shows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 400, 90, 190, 40, 55
COLOURS = ("#0b7285", "#c92a2a", "#5f3dc4", "#2b8a3e", "#e67700", "#495057", "#a61e4d", "#1864ab")


@dataclass(frozen=True, slots=True)
class Curve:
    """One line: its name, its points, and whether it is a limit (dashed) or a measurement."""

    name: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Axes:
    """Titles, and whether x grows by doubling."""

    title: str
    x: str
    y: str
    doubling: bool = True
    bytes: bool = False


def svg(axes: Axes, curves: Sequence[Curve]) -> str:
    """The whole file."""
    points = [point for curve in curves for point in curve.points]
    if not points:
        points = [(1.0, 0.0)]
    low, high = min(x for x, _ in points), max(x for x, _ in points)
    top = _round_up(max(y for _, y in points) or 1.0)

    def place(x: float, y: float) -> tuple[float, float]:
        across = _scale(x, axes) - _scale(low, axes)
        span = (_scale(high, axes) - _scale(low, axes)) or 1.0
        width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
        return LEFT + across / span * width, HEIGHT - BOTTOM - y / top * height

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"'
        ' font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="15" font-weight="bold">{escape(axes.title)}</text>',
        *_grid(axes, sorted({x for x, _ in points}), top, place),
    ]
    for index, curve in enumerate(curves):
        parts += _curve(curve, COLOURS[index % len(COLOURS)], index, place)
    return "\n".join([*parts, "</svg>\n"])


def loader_picture(result: dict[str, Any]) -> str:
    """A result of `bench loader`: rate by threads, a curve per loader."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for row in result["rows"]:
        curves.setdefault(row["name"], []).append((float(row["threads"]), row["per_s"]))
    kind = result["kind_of_data"]
    return svg(Axes(f"{kind} per second", "threads", f"{kind}/s"), [Curve(*item) for item in curves.items()])


def _scale(x: float, axes: Axes) -> float:
    return math.log2(x) if axes.doubling and x > 0 else x


def _grid(axes: Axes, xs: Sequence[float], top: float, place: object) -> list[str]:
    assert callable(place)
    parts = []
    for step in range(5):
        y = place(xs[0], top * step / 4)[1]
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dee2e6"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_number(top * step / 4)}</text>')
    for x in _ticks(axes, xs):
        at = place(x, 0)[0]
        word = _bytes(x) if axes.bytes else _number(x)
        parts.append(f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{word}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 12}" text-anchor="middle">{escape(axes.x)}</text>')
    turn = f"rotate(-90 18 {HEIGHT / 2})"
    parts.append(f'<text x="18" y="{HEIGHT / 2}" text-anchor="middle" transform="{turn}">{escape(axes.y)}</text>')
    return parts


def _ticks(axes: Axes, xs: Sequence[float]) -> Sequence[float]:
    """Where x is labelled: at the points where these are whole numbers (sizes, nodes), else at powers of two."""
    if axes.doubling and not all(float(x).is_integer() for x in xs):
        powers = range(math.ceil(math.log2(xs[0])), math.floor(math.log2(xs[-1])) + 1)
        xs = [2.0**power for power in powers]
    return xs[:: max(1, math.ceil(len(xs) / 9))]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:g}"


def _curve(curve: Curve, colour: str, index: int, place: object) -> list[str]:
    assert callable(place)
    at = [place(x, y) for x, y in sorted(curve.points)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
    dash = ' stroke-dasharray="6 4"' if curve.dashed else ""
    parts = [f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>']
    if not curve.dashed:
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in at]
    x, y = WIDTH - RIGHT + 14, TOP + 12 + 20 * index
    parts.append(f'<line x1="{x}" x2="{x + 22}" y1="{y - 4}" y2="{y - 4}" stroke="{colour}" stroke-width="2"{dash}/>')
    return [*parts, f'<text x="{x + 28}" y="{y}">{escape(curve.name)}</text>']


def _round_up(value: float) -> float:
    """The next 1, 2, 4, 5 or 10 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 5, 10) if step * power >= value)


def _bytes(x: float) -> str:
    units = ((2**30, "G"), (2**20, "M"), (2**10, "K"))
    return next((f"{x / unit:g}{name}" for unit, name in units if x >= unit), f"{x:g}")
