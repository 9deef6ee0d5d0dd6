"""`trainwright down`: remove a cluster and everything that was started for it."""

from __future__ import annotations

import click


@click.command()
@click.argument("target", metavar="SPEC|NAME")
def command(target: str) -> None:
    """Stop the cluster and remove what was made for it, also after a start that went wrong half-way."""
    from trainwright.platforms.base import find

    platform, name, spec = find(target)
    platform.down(name, spec, say=lambda words: click.echo(words, err=True))
