"""`trainwright recipes`: the training jobs that come with Trainwright."""

from __future__ import annotations

import json

import click


@click.group()
def command() -> None:
    """List the training jobs that come with Trainwright, or show one.

    A file of your own works wherever a recipe's name does.
    """


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def list_(as_json: bool) -> None:
    """List the recipes."""
    from trainwright.recipes.load import names, recipe

    rows = [
        {"name": n, "title": recipe(n).title, "model": recipe(n).model, "hardware": recipe(n).hardware} for n in names()
    ]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    width = max(len(str(row["name"])) for row in rows)
    for row in rows:
        click.echo(f"{row['name']:{width}}  {row['title']}")
    click.echo(f"\n{len(rows)} recipes; add -debug to a name for the size that trains on a laptop", err=True)


@command.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def show(name: str, as_json: bool) -> None:
    """Show a recipe: how to run it, what to expect, every value. What is printed is a recipe file of its own."""
    import yaml

    from trainwright.recipes.load import header, recipe
    from trainwright.spec.units import format_seconds

    chosen = recipe(name)
    values = chosen.model_dump(mode="json", exclude_none=True, exclude_defaults=not as_json)
    if as_json:
        click.echo(json.dumps({"name": name, **values}, indent=2))
        return
    if chosen.checkpoint.every is not None:
        values["checkpoint"]["every"] = format_seconds(chosen.checkpoint.every)
    for line in header(name).splitlines():
        click.echo(f"# {line}")
    click.echo(yaml.safe_dump(values, sort_keys=False, width=110).rstrip())
