"""`trainwright recipes`: the training jobs that come with Trainwright."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from trainwright.recipes.model import Recipe


@click.group(invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """List the training jobs that come with Trainwright, show one, or make one of a job script.

    A file of your own works wherever a recipe's name does. Without a command: the list.
    """
    if context.invoked_subcommand is None:
        context.invoke(list_)


@command.command("list")
@click.option("--framework", metavar="NAME", help="Only recipes of this framework; `trainwright` for our trainer.")
@click.option("--model", metavar="TEXT", help="Only recipes whose model has this in its name.")
@click.option("--hardware", metavar="TEXT", help="Only recipes for this hardware, such as H100 or p5.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def list_(framework: str | None, model: str | None, hardware: str | None, as_json: bool) -> None:
    """List the recipes, by framework."""
    from trainwright.errors import UserError, did_you_mean
    from trainwright.recipes.load import all_names, hardware_words, recipe

    rows = [row(name, recipe(name)) for name in all_names()]
    known = sorted({str(one["framework"]) for one in rows})
    if framework is not None and framework not in known:
        raise UserError(
            f"no framework {framework!r}", fix=did_you_mean(framework, known) or f"one of {', '.join(known)}"
        )
    words = hardware_words(hardware or "")
    rows = [
        one for one in rows
        if framework in (None, one["framework"]) and (model or "").lower() in str(one["model"] or "").lower()
        and any(word in str(one["hardware"]).lower() for word in words)
    ]  # fmt: skip
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    width = max((len(str(one["name"])) for one in rows), default=0)
    shown = None
    for one in sorted(rows, key=lambda one: (one["framework"] != "trainwright", str(one["framework"]))):
        if one["framework"] != shown:
            shown = one["framework"]
            click.echo(f"{shown}:")
        click.echo(f"  {one['name']:{width}}  {one['title']}; {one['hardware']}")
        if "published" in str(one["expected"]) or "measured" in str(one["expected"]):
            click.echo(f"  {'':{width}}  {one['expected']}")
    click.echo(f"\n{len(rows)} recipes; add -debug to a name for the size that trains on a laptop", err=True)


def row(name: str, recipe: Recipe) -> dict[str, object]:
    """What a list says about a recipe."""
    from trainwright.recipes.model import Foreign

    trainer = recipe.trainer
    return {
        "name": name, "title": recipe.title, "model": recipe.model, "hardware": recipe.hardware,
        "framework": (trainer.framework or "command") if isinstance(trainer, Foreign) else "trainwright",
        "expected": recipe.expected, "reference": list(recipe.reference),
    }  # fmt: skip


@command.command()
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def frameworks(as_json: bool) -> None:
    """List the frameworks that a recipe can name."""
    from trainwright.recipes.framework import framework
    from trainwright.recipes.framework import frameworks as names

    shown = {"title", "version", "start", "family", "container", "resume"}
    rows = [{"name": name, **framework(name).model_dump(include=shown)} for name in names()]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    width = max(len(one["name"]) for one in rows)
    for one in rows:
        click.echo(f"{one['name']:{width}}  {one['title']} {one['version']}, started by {one['start']}")


@command.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def show(name: str, as_json: bool) -> None:
    """Show a recipe: how to run it, what to expect, every value. What is printed is a recipe file of its own."""
    import yaml

    from trainwright.recipes.load import header, recipe
    from trainwright.spec.units import format_seconds

    chosen = recipe(name)
    # An option that is null is one that the framework's file sets and this recipe does not.
    values = chosen.model_dump(mode="json", exclude_none=as_json, exclude_defaults=not as_json)
    if as_json:
        click.echo(json.dumps({"name": name, **values}, indent=2))
        return
    if chosen.checkpoint.every is not None:
        values["checkpoint"]["every"] = format_seconds(chosen.checkpoint.every)
    for line in header(name).splitlines():
        click.echo(f"# {line}")
    click.echo(yaml.safe_dump(values, sort_keys=False, width=110).rstrip())


@command.command()
@click.option("--from", "source", required=True, type=click.Path(exists=True, dir_okay=False), metavar="FILE",
              help="An sbatch script or a manifest.")  # fmt: skip
@click.option("-o", "--out", metavar="FILE", help="File to write. Default: standard output.")
@click.option("--force", is_flag=True, help="Overwrite the file if it is there.")
def new(source: str, out: str | None, force: bool) -> None:
    """Make a recipe of a job script: the options of a framework that we know become values of the recipe."""
    from trainwright.adopt.files import adopt
    from trainwright.adopt.recipe import recipe_of
    from trainwright.adopt.write import exact_yaml
    from trainwright.errors import UserError
    from trainwright.files import write_text
    from trainwright.recipes.model import Recipe
    from trainwright.spec.source import parse
    from trainwright.spec.validate import validated

    if out and Path(out).exists() and not force:
        raise UserError(f"{out} is there already", fix="name another file with -o, or overwrite it with --force")
    adoption = adopt([source])
    job = adoption.spec["jobs"][0]
    adopted = recipe_of(job, f"{job['name']}, from {Path(source).name}")
    content = adopted.content
    text = exact_yaml(content)
    validated(Recipe, parse(text, source)[0], source)  # as `submit` will read it
    if out:
        write_text(Path(out), text)
    click.echo(out if out else text.rstrip())
    for note in (*adopted.notes, *(f"{one.what} ({one.where}): {one.why}" for one in adoption.dropped)):
        click.echo(f"note: {note}", err=True)
    if "framework" in content["trainer"]:
        click.echo(
            "what the framework's file adds to your options: `trainwright submit --recipe … --dry-run`", err=True
        )
