"""`trainwright down`: remove a cluster and everything that was started for it."""

from __future__ import annotations

import click


@click.command()
@click.argument("target", metavar="SPEC|NAME", required=False)
@click.option("--force", is_flag=True, help="Also end the jobs that wait or run on it.")
@click.option("--left", "left", is_flag=True, help="End the clusters whose folder is gone (`status` lists them).")
def command(target: str | None, force: bool, left: bool) -> None:
    """Stop the cluster and remove what was made for it, also after a start that failed half-way. With jobs on it, they
    are listed and nothing is done."""
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
    platform, name, spec = find(target)
    remember_runs(name)
    platform.down(name, spec, say=lambda words: click.echo(words, err=True), force=force)
