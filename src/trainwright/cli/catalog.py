"""`trainwright catalog`: look up instance types, accelerators, models and prices, and update them from AWS."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from trainwright.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from trainwright.aws.catalog_update import Changes
    from trainwright.catalog.pages import Page

KINDS = ("instances", "accelerators", "models", "regions")
SHOWN_PRICES = 8
SHOWN_CHANGES = 20

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def command() -> None:
    """Look up instance types, accelerators, models and prices."""


@command.command("list", short_help="List instance types, accelerators, models or regions.")
@click.option("--kind", type=click.Choice(KINDS), default="instances", show_default=True)
@click.option("--gpu", is_flag=True, help="Only types with GPUs.")
@click.option("--neuron", is_flag=True, help="Only types with AWS Neuron chips.")
@click.option("--efa", is_flag=True, help="Only types with EFA.")
@click.option("--family", help="Only one family, such as p5, also one without accelerators.")
@click.option("--region", help="Price in this region instead of the cheapest one.")
@json_option
def list_command(
    kind: str, gpu: bool, neuron: bool, efa: bool, family: str | None, region: str | None, as_json: bool
) -> None:
    """List the catalog; by default the instance types with accelerators."""
    from trainwright.catalog.listing import listing

    if region:
        _known_region(region)
    table = listing(kind, gpu=gpu, neuron=neuron, efa=efa, family=family, region=region)
    if as_json:
        click.echo(json.dumps(table.records, indent=2))
    else:
        _print_table(table.columns, table.rows, table.right)
        click.echo(table.footer, err=True)


@command.command(short_help="Show one of them: facts, prices, notes.")
@click.argument("name")
@click.option("--region", help="Only this region's price.")
@click.option("--all", "every", is_flag=True, help="Every region's price.")
@json_option
def show(name: str, region: str | None, every: bool, as_json: bool) -> None:
    """Show one instance type, accelerator or model: what it has, what it costs, and notes."""
    from trainwright.catalog.listing import known_names
    from trainwright.catalog.pages import find_page

    if region:
        _known_region(region)
    page = find_page(name, region)
    if page is None:
        known = known_names()
        family = any(one.startswith(f"{name}.") for one in known)
        raise UserError(
            f"{name!r} is a family of instance types" if family else f"nothing called {name!r} in the catalog",
            fix=f"`trainwright catalog list --family {name}` lists it"
            if family
            else did_you_mean(name, known) or "`trainwright catalog list` lists everything",
        )
    if as_json:
        click.echo(json.dumps(_page_json(page, name), indent=2))
    else:
        _print_page(page, None if every else SHOWN_PRICES)


@command.command(short_help="Fetch types and prices from AWS.")
@click.option("--region", default="us-east-1", show_default=True, help="The region to ask about.")
@click.option("--profile", help="The AWS profile to use.")
@json_option
def update(region: str, profile: str | None, as_json: bool) -> None:
    """Fetch instance types and prices from AWS into your own data folder, and print what changed."""
    _known_region(region)
    from trainwright.aws.catalog_update import update as fetch

    click.echo(f"asking EC2 and the Price List API about {region} ...", err=True)
    changes = fetch(region, profile)
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(changes), indent=2))
    else:
        _print_changes(changes)


def _known_region(name: str) -> None:
    from trainwright.catalog.regions import region

    region(name)


def _page_json(page: Page, name: str) -> dict[str, Any]:
    from trainwright.catalog.listing import record

    return {"facts": record(name), "page": dataclasses.asdict(page)}


def _print(*parts: Any) -> None:
    """Print rich renderables: in colour and as wide as the terminal, or plain, wide and without trailing blanks."""
    from rich.console import Console

    terminal = sys.stdout.isatty()
    # A pipe has no width; a generous one keeps each row on one line for grep and awk.
    console = Console(highlight=False, width=None if terminal else 160)
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


def _print_table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]], right: frozenset[str]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    _print(table)


def _print_page(page: Page, most_prices: int | None) -> None:
    from rich.text import Text

    parts: list[Any] = [Text.assemble((page.name, "bold cyan"), "  ", (page.title, "bold"))]
    for section in page.sections:
        parts += ["", Text(section.title, style="bold"), _facts(section.rows)]
    if page.prices:
        parts += ["", *_prices(page, most_prices)]
    if page.notes:
        parts += ["", Text("Notes", style="bold"), _notes(page.notes)]
    _print(*parts, "", Text(f"source: {page.source}", style="dim"))


def _facts(rows: Sequence[tuple[str, str]]) -> Any:
    from rich.table import Table

    facts = Table.grid(padding=(0, 2), pad_edge=True)
    facts.add_column(style="dim", min_width=14, no_wrap=True)
    facts.add_column(overflow="fold")
    for label, value in rows:
        facts.add_row(label, value)
    return facts


def _notes(notes: Sequence[str]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 1), pad_edge=True)
    for note in notes:
        table.add_row(Text("•", style="yellow"), note)
    return table


def _prices(page: Page, most: int | None) -> list[Any]:
    from rich.table import Table
    from rich.text import Text

    shown = page.prices[:most]
    dates = ", ".join(sorted({row.date for row in shown}))
    table = Table.grid(padding=(0, 2), pad_edge=True)
    for justify in ("left", "right", "right", "left"):
        table.add_column(justify=justify, no_wrap=True)
    table.add_row("", Text("on demand", style="dim"), Text("spot from", style="dim"), "")
    for row in shown:
        table.add_row(row.region, _usd(row.on_demand), _usd(row.spot), Text(row.title, style="dim"))
    parts: list[Any] = [Text.assemble(("Price per hour", "bold"), (f"  as of {dates}, cheapest first", "dim")), table]
    if len(page.prices) > len(shown):
        parts.append(Text(f"  {len(page.prices) - len(shown)} more regions: --all", style="dim"))
    return parts


def _print_changes(changes: Changes) -> None:
    from trainwright.aws.catalog_update import accelerated_changes

    click.echo(f"{changes.region}, {changes.date}: {changes.types_seen} types, {changes.prices_seen} prices")
    click.echo(f"  new types: {', '.join(changes.new_types) or 'none'}")
    for name, fields in changes.changed_types.items():
        click.echo(f"  {name}: {', '.join(fields)} changed")
    shown = accelerated_changes(changes)[:SHOWN_CHANGES]
    for change in shown:
        click.echo(f"  {change.instance} {change.kind}: {_usd(change.before)} -> {_usd(change.after)}")
    if len(changes.prices) > len(shown):
        click.echo(f"  and {len(changes.prices) - len(shown)} more prices (--json lists them)")
    click.echo(f"written to {changes.folder}")


def _usd(value: float | None) -> str:
    return "-" if value is None else f"${value:,.2f}" if value >= 1 else f"${value:,.4f}"
