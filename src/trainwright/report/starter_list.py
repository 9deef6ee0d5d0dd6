"""The table that `trainwright init` prints."""

from __future__ import annotations

from collections.abc import Sequence

from trainwright.report.plan_summary import console, plain_table
from trainwright.spec.starters import Starter


def print_starters(found: Sequence[Starter]) -> None:
    """Name, first sentence and price of each starter."""
    table = plain_table("starter", "what it is", "an hour")
    for item in found:
        first = item.purpose.split(". ")[0].rstrip(".") + "."
        table.add_row(f"[bold]{item.name}[/bold]", first, item.cost.split(" an hour")[0])
    table.columns[2].justify = "right"
    console().print(table)
