"""`trainwright runs`: what was submitted from this machine, and how two runs differ."""

from __future__ import annotations

import json

import click

from trainwright.cli.table import columns


@click.command()
@click.argument("names", nargs=-1, metavar="[RUN [RUN]]")
@click.option("--limit", default=20, show_default=True, help="How many of the newest.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(names: tuple[str, ...], limit: int, as_json: bool) -> None:
    """List the newest runs; with one RUN show it, with two compare them."""
    from trainwright.runs import history

    if len(names) > 2:
        raise click.UsageError("name one run to show it, or two to compare them")
    if names:
        rows = history.compare(names)
        if as_json:
            click.echo(json.dumps({row.what: row.values for row in rows}, indent=1))
        else:
            click.echo(columns([rows[0].what, *rows[0].values], [(row.what, *row.values) for row in rows[1:]]))
        return
    facts = history.newest(limit)
    if as_json:
        click.echo(json.dumps(facts, indent=1))
        return
    if not facts:
        click.echo("no runs yet; `trainwright submit` makes one", err=True)
        return
    header = ("RUN", "JOB", "WHERE", "STATE", "RANKS", "STEP", "LOSS")
    click.echo(columns(header, [[fact[name.lower()] for name in header] for fact in facts]))
