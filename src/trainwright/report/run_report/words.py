"""Numbers of a report as people read them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from trainwright.predict.render import seconds
from trainwright.report.run_report.model import Table, Term

MOST_ROWS = 40


def with_unit(value: float | None, unit: str) -> str:
    """`1.25 s`, `38.1 %`, `$1,234`; empty where the value is not known."""
    if value is None:
        return ""
    if unit == "%":
        return f"{value:.1%}"
    if unit == "s":
        return seconds(value) if value >= 1e-4 or value == 0 else f"{value * 1e6:.0f} µs"
    if unit.startswith("$"):
        return f"${value:,.0f}"
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{text} {unit}" if unit else text


def printable(text: str) -> str:
    """Without control characters: what a job writes can neither end a line nor control a terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text).rstrip()


def interval_words(term: Term) -> str:
    if term.low is None or term.high is None:
        return ""
    low, high = with_unit(term.low, term.unit).split(" "), with_unit(term.high, term.unit).split(" ")
    return " ".join([*(low[:1] if low[1:] == high[1:] else low), "to", *high])


def when(moment: float | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(moment)) if moment is not None else ""


def profile_tables(profile: Mapping[str, Any]) -> list[Table]:
    """What `trainwright profile` wrote about each profiled rank: in words, term by term, the largest kernels."""
    tables = []
    for row in profile_ranks(profile):
        rank = f"rank {row.get('rank', '?')}"
        tables.append(Table((f"{rank}, in words",), tuple((str(line),) for line in row.get("words") or ())))
        terms = tuple(
            (str(term.get("name")), with_unit(term.get("measured_s"), "s"), with_unit(term.get("predicted_s"), "s"))
            for term in row.get("terms") or ()
        )
        tables.append(Table((f"{rank}: part of a step", "measured", "predicted"), terms))
        kernels = tuple(
            (str(kernel.get("name")), str(kernel.get("kind")), with_unit(kernel.get("seconds"), "s"))
            for kernel in (row.get("kernels") or ())[:MOST_ROWS]
        )
        tables.append(Table((f"{rank}: largest kernels", "kind", "per step"), kernels))
    return [table for table in tables if table.rows]


def profile_ranks(profile: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The profiled ranks of a summary; a file that holds something else has none."""
    ranks = profile.get("ranks")
    return [row for row in ranks if isinstance(row, dict)] if isinstance(ranks, list) else []
