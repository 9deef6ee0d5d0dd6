"""`trainwright down`: remove a cluster and everything that was started for it."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from trainwright.platforms.apply.target import Target


@click.command()
@click.argument("target", metavar="SPEC|NAME", required=False)
@click.option("--force", is_flag=True, help="Also end the jobs that wait or run on it.")
@click.option("--left", "left", is_flag=True, help="End the clusters whose folder is gone (`status` lists them).")
@click.option("--region", metavar="REGION", help="A cluster on AWS, by its name in this region.")
@click.option(
    "--delete-data", "named", multiple=True, metavar="STACK", help="Also remove this stack with its data (AWS)."
)
@click.option("--yes", is_flag=True, help="Do not ask before the removal (AWS); data is kept unless named.")
def command(target: str | None, force: bool, left: bool, region: str | None, named: tuple[str, ...], yes: bool) -> None:
    """Stop the cluster and remove what was made for it, also after a start that failed half-way. With jobs on it, they
    are listed and nothing is done.

    On AWS, what holds data (buckets, file systems, the database) is kept unless you name it, here or when asked; the
    end is a list of what is left and what it costs."""
    from trainwright.platforms.base import find
    from trainwright.platforms.local import leftovers
    from trainwright.runs.reach import remember_runs

    if left == bool(target):
        raise click.UsageError("name a spec or a cluster, or say --left")
    if not target:
        for one in leftovers.leftovers():
            if not one.there:
                leftovers.end(one)
                click.echo(f"ended {len(one.pids)} processes of cluster {one.name}", err=True)
        return
    from trainwright.platforms.apply.target import on_aws

    place = on_aws(target, region)
    if place is not None:
        _on_aws(place, named, yes, force)
        return
    platform, name, spec = find(target)
    remember_runs(name)
    platform.down(name, spec, say=lambda words: click.echo(words, err=True), force=force)


def _on_aws(place: Target, named: tuple[str, ...], yes: bool, force: bool) -> None:
    from trainwright.aws.session import Account
    from trainwright.platforms.apply.left import left_over
    from trainwright.platforms.apply.steps import run
    from trainwright.report.build_view import BuildView

    name, region = place.name, place.region
    removal = place.platform.removal(name, Account(region), partial(click.echo, err=True))
    existing = removal.existing()
    removal.require_idle(existing, force)
    if not named and not yes and sys.stdin.isatty():
        named = _asked(removal.name, removal.data(existing))
    steps, kept = removal.steps(existing, named)
    for step in steps:
        click.echo(f"  remove {step.title}", err=True)
    for key in kept:
        click.echo(f"  keep   stack {name}-{key}", err=True)
    if not yes and not click.confirm(f"remove cluster {name} in {region}?", err=True):
        raise SystemExit(1)
    with BuildView(name, "down") as view:
        run(steps, view)
    for line in left_over(removal):
        click.echo(line)


def _asked(cluster: str, data: dict[str, str]) -> tuple[str, ...]:
    """What holds data and the user gives up, each by typing its name."""
    named = []
    for key, lost in data.items():
        words = f"{cluster}-{key} holds data. Type {key} to delete {lost}; Enter keeps it"
        if click.prompt(words, default="", show_default=False, err=True).strip() == key:
            named.append(key)
    return tuple(named)
