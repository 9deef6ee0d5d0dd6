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


def interval_words(term: Term) -> str:
    if term.low is None or term.high is None:
        return ""
    low, high = with_unit(term.low, term.unit).split(" "), with_unit(term.high, term.unit).split(" ")
    return " ".join([*(low[:1] if low[1:] == high[1:] else low), "to", *high])


def when(moment: float | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(moment)) if moment is not None else ""


def profile_tables(profile: Mapping[str, Any]) -> list[Table]:
    """What `trainwright profile` wrote: its plain values, then each of its lists."""
    plain = tuple(
        (str(name).replace("_", " "), _cell(value))
        for name, value in profile.items()
        if not isinstance(value, dict | list)
    )
    tables = [Table(("profile", "value"), plain)] if plain else []
    for name, value in profile.items():
        if isinstance(value, dict):
            rows = tuple((str(key).replace("_", " "), _cell(item)) for key, item in value.items())
            tables.append(Table((str(name).replace("_", " "), "value"), rows[:MOST_ROWS]))
        elif isinstance(value, list) and value:
            tables.append(_list_table(str(name), value[:MOST_ROWS]))
    return tables


def _list_table(name: str, rows: list[Any]) -> Table:
    if not all(isinstance(row, dict) for row in rows):
        return Table((name.replace("_", " "),), tuple((_cell(row),) for row in rows))
    header = tuple(str(key) for key, value in rows[0].items() if not isinstance(value, dict | list))
    return Table(
        tuple(key.replace("_", " ") for key in header), tuple(tuple(_cell(row.get(k)) for k in header) for row in rows)
    )


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:,.4g}" if isinstance(value, float) else str(value)
