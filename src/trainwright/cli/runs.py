"""`trainwright runs`: what was submitted from this machine, and how two runs differ."""

from __future__ import annotations

import json
from typing import Any

import click

from trainwright.cli.table import columns


@click.command()
@click.argument("names", nargs=-1, metavar="[RUN [RUN]]")
@click.option("--limit", default=20, show_default=True, help="How many of the newest.")
@click.option("--all", "every", is_flag=True, help="Every run by itself, also those that a later one continues.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(names: tuple[str, ...], limit: int, every: bool, as_json: bool) -> None:
    """List the newest trainings, each by its last run; with one RUN show it, with two compare them."""
    from trainwright.runs import history

    if len(names) > 2:
        raise click.UsageError("name one run to show it, or two to compare them")
    if names:
        rows = history.compare(names)
        if as_json:
            click.echo(json.dumps({row.what: row.values for row in rows}, indent=1))
        else:
            table = [[label(row.what), *(cell(row.what, value) for value in row.values)] for row in rows]
            click.echo(columns(table[0], table[1:]))
        return
    facts = history.newest(limit, every)
    if as_json:
        click.echo(json.dumps(facts, indent=1))
        return
    if not facts:
        click.echo("no runs yet; `trainwright submit` makes one", err=True)
        return
    header = ("run", "job", "where", "state", "ranks", "step", "loss", "tokens_per_s", "goodput", "continues")
    click.echo(columns([label(key).upper() for key in header], [[cell(k, fact[k]) for k in header] for fact in facts]))


def label(key: str) -> str:
    """A fact's name as a table shows it; variables keep theirs."""
    return key if key.isupper() else key.replace("tokens_per_s", "tokens/s").replace("_", " ")


def cell(key: str, value: Any) -> str:
    """A fact as a table shows it."""
    if value is None:
        return ""
    if isinstance(value, list):
        return f"{len(value)} run{'s' if len(value) > 1 else ''}" if value else ""
    if isinstance(value, float):
        return f"{value:.0%}" if key == "goodput" else f"{value:.4f}" if key == "loss" else f"{value:,.0f}"
    return str(value)
