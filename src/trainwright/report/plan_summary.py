"""What `trainwright plan` prints on the terminal: what would be created, what it costs, what was filled in, what would
change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from trainwright.platforms.plan.bill import Bill, Line
from trainwright.platforms.plan.difference import HARD, Difference
from trainwright.platforms.plan.tree import ClusterPlan
from trainwright.spec.defaults import Default

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

EFFECT_STYLE = {"live": "green", "drain": "yellow", "stop": "yellow", "replace": "red"}
EFFECT_WORDS = {
    "live": "on the running cluster",
    "drain": "after running jobs end",
    "stop": "compute fleet stopped",
    "replace": "cluster recreated",
}
PLAIN_WIDTH = 120
NARROW = 100


def console() -> Console:
    """Colours on a terminal only; a pipe gets lines wide enough not to break."""
    from rich.console import Console

    terminal = Console(highlight=False)
    return terminal if terminal.is_terminal else Console(highlight=False, width=PLAIN_WIDTH)


def print_summary(out: Console, plan: ClusterPlan, folder: str, files: Mapping[str, str]) -> None:
    """What would be created and what it costs."""
    spec = plan.spec
    where = " · ".join(part for part in (spec.platform, spec.region, spec.zone) if part)
    out.print(f"[bold]{spec.name}[/bold]  [dim]{where}[/dim]")
    if spec.platform == "local":
        out.print("\nNothing is deployed: the cluster runs on this machine, and costs nothing.")
    else:
        out.print()
        out.print(_created(plan))
        out.print()
        out.print(_bill(plan.bill, out.width))
        _print_total(out, plan.bill)
        if spec.head.key and spec.head.ssh_from == "0.0.0.0/0":
            out.print("[yellow]ssh is open to every address:[/] set head.ssh_from to your own, such as 203.0.113.0/24")
    out.print(f"\n[dim]{len(files) + 1} files in[/dim] {folder}[dim]; picture.svg shows the cluster[/dim]")


def print_defaults(out: Console, defaults: tuple[Default, ...]) -> None:
    """Every value that was filled in, with the reason."""
    table = plain_table("filled in", "value", "because")
    for default in defaults:
        table.add_row(default.path, default.value, f"[dim]{default.why}[/dim]")
    out.print()
    out.print(table)


def print_difference(out: Console, difference: Difference, lines: bool) -> None:
    """What would change against the earlier plan."""
    out.print()
    if not difference.lines:
        out.print("[green]No change[/green] against the earlier plan.")
        return
    if lines:
        out.print(difference.lines, markup=False)
    from rich.markup import escape

    table = plain_table("change", "from", "to", "when", "")
    for change in sorted(difference.changes, key=lambda c: -HARD[c.effect]):
        stack = change.file.removeprefix("stacks/").removesuffix(".parameters.json")
        what = escape(change.path if change.file == "cluster.yaml" else f"{stack} {change.path}".strip())
        when = f"[{EFFECT_STYLE[change.effect]}]{EFFECT_WORDS[change.effect]}[/]"
        more = "" if EFFECT_WORDS[change.effect] in change.say else f"[dim]{change.say}[/dim]"
        table.add_row(what, _value(change.old), _value(change.new), when, more)
    out.print(table)
    style = EFFECT_STYLE[difference.hardest]
    out.print(f"[{style}]Taken together: {EFFECT_WORDS[difference.hardest]}.[/{style}]")


def _value(value: object) -> str:
    from rich.markup import escape

    text = "–" if value is None else str(value)
    return escape(text if len(text) <= 60 else text[:57] + "...")


def _created(plan: ClusterPlan) -> Table:
    table = plain_table("would be created", "", "")
    for stack in plan.stacks:
        table.add_row(f"{plan.spec.name}-{stack.key}", f"stacks/{stack.key}.yaml", f"[dim]{stack.why}[/dim]")
    nodes = ", ".join(f"{_count(q.count.min, q.count.max)} × {q.instance}" for q in plan.spec.queues if q.count)
    head = f"head {plan.spec.head.instance}; " if plan.spec.head.instance else ""
    hyperpod = "hyperpod.yaml" in plan.files
    if "cluster.yaml" in plan.files:
        words = "the cluster of EKS that they join" if hyperpod else f"{head}{nodes}"
        table.add_row(plan.spec.name, "cluster.yaml", f"[dim]{words}[/dim]")
    if hyperpod:
        table.add_row(f"{plan.spec.name}-hyperpod", "hyperpod.yaml", f"[dim]{head}{nodes}[/dim]")
    return table


def _bill(bill: Bill, width: int) -> Table:
    """The bill; a narrow terminal gets the hourly total of each part, with its note below."""
    narrow = width < NARROW
    amounts = ("nodes", "an hour") if narrow else ("nodes", "each, an hour", "an hour", "a month")
    table = plain_table("part", "what", *amounts, *(() if narrow else ("",)))
    for column in table.columns[2 : 2 + len(amounts)]:
        column.justify, column.no_wrap = "right", True
    part = ""
    for line in bill.lines:
        name = line.part if line.part != part else ""
        part = line.part
        count, each, hour, month = _amounts(line)
        note = f"[dim]{line.note}[/dim]" if line.note else ""
        if narrow:
            table.add_row(name, f"{line.what}\n{note}".rstrip(), count, hour)
        else:
            table.add_row(name, line.what, count, each, hour, month, note)
    return table


def _amounts(line: Line) -> tuple[str, str, str, str]:
    count = _count(line.least, line.most) if line.part.startswith("queue") else ""
    if line.usd_hour_each is None:
        return count, "–", "–", "–"
    return count, f"${line.usd_hour_each:,.2f}", f"${line.usd_hour_most:,.2f}", f"${line.usd_hour_most * 730:,.0f}"


def _print_total(out: Console, bill: Bill) -> None:
    full = f"[bold green]${bill.usd_hour_full:,.2f} an hour[/], ${bill.usd_month_full:,.0f} a month with all nodes up"
    idle = f"; ${bill.usd_hour_idle:,.2f} an hour with no job" if bill.usd_hour_idle < bill.usd_hour_full else ""
    out.print(f"\n{full}{idle}")
    out.print(f"[dim]list prices of {bill.dates_text}, {bill.region}, before discounts and traffic[/dim]")
    for line in bill.unpriced:
        out.print(f"[yellow]not in the sum:[/] {line.part} {line.what} ({line.note})")


def _count(least: int, most: int) -> str:
    return str(most) if least == most else f"{least}-{most}"


def plain_table(*columns: str) -> Table:
    """A table without lines around it."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
