"""What a changed parameter does to a stack that is deployed; the facts are in updates.csv."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from trainwright.catalog.tables import read_table


@cache
def parameter_effects() -> dict[tuple[str, str], tuple[str, str]]:
    """(template, parameter) -> (effect, explanation)."""
    table = read_table(Path(__file__).with_name("updates.csv"))
    return {(row["template"], row["parameter"]): (row["effect"], row["say"]) for row in table.records()}
