"""`trainwright init`: list the starter specs, or write one."""

from __future__ import annotations

import json
from pathlib import Path

import click

from trainwright.errors import UserError


@click.command()
@click.argument("starter", required=False)
@click.option("-o", "--out", metavar="FILE", default="trainwright.yaml", show_default=True, help="File to write.")
@click.option("--name", help="Name of the cluster. Default: the starter's.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(starter: str | None, out: str, name: str | None, force: bool, as_json: bool) -> None:
    """List the starter specs, or write the one named STARTER.

    The schema is written beside it, so that an editor completes and explains the file.
    """
    from trainwright.spec.starters import starter as find

    if starter is None:
        _list(as_json)
        return
    chosen = find(starter)
    path = Path(out)
    if path.exists() and not force:
        raise UserError(f"{path} already exists", fix="name another file with -o, or overwrite it with --force")
    _write(path, chosen.text, name)
    if as_json:
        click.echo(json.dumps({"starter": chosen.name, "file": str(path), "cost": chosen.cost}))
        return
    click.echo(str(path))
    click.echo(f"{chosen.purpose}\nCost: {chosen.cost}.\nChange: {chosen.change}", err=True)
    click.echo(f"Then: trainwright check {path}; trainwright plan {path}", err=True)


def _write(path: Path, text: str, name: str | None) -> None:
    from trainwright.files import write_text
    from trainwright.spec.schema import schema_text
    from trainwright.spec.starters import SCHEMA_FILE, renamed

    write_text(path, renamed(text, name) if name else text)
    write_text(path.parent / SCHEMA_FILE, schema_text() + "\n")


def _list(as_json: bool) -> None:
    from trainwright.spec.starters import starters

    if as_json:
        rows = [{"name": s.name, "purpose": s.purpose, "cost": s.cost, "change": s.change} for s in starters()]
        click.echo(json.dumps(rows, indent=2))
        return
    from trainwright.report.starter_list import print_starters

    print_starters(starters())
    click.echo("Write one: trainwright init p5-reservation", err=True)
