"""The table that `trainwright init` prints."""

from __future__ import annotations

from collections.abc import Sequence

from trainwright.report.plan_summary import console, plain_table
from trainwright.spec.starters import Starter


def print_starters(starters: Sequence[Starter]) -> None:
    """Name, first sentence and price of each starter."""
    table = plain_table("starter", "what it is", "an hour")
    for item in starters:
        first = item.purpose.split(". ")[0].rstrip(".") + "."
        price, _, rest = item.cost.partition(" an hour")
        words = {"paid in advance with the training plan": " + plan", "paid in advance": " + block"}
        more = next((short for long, short in words.items() if long in rest), "")
        table.add_row(f"[bold]{item.name}[/bold]", first, price + more)
    table.columns[2].justify = "right"
    table.columns[0].no_wrap = table.columns[2].no_wrap = True
    console().print(table)
