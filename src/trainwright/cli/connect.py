"""`trainwright connect`: a shell on the cluster's head."""

from __future__ import annotations

import os

import click


@click.command()
@click.argument("target", metavar="SPEC|NAME")
@click.argument("words", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
def command(target: str, words: tuple[str, ...]) -> None:
    """Open a shell on the cluster's head, or run one COMMAND there: `trainwright connect demo -- sinfo`."""
    from trainwright.platforms.base import find

    platform, name, spec = find(target)
    argv, environment = platform.connect(name, spec)
    argv = [*argv[:-1], *words] if words else argv
    os.execvpe(argv[0], argv, {**os.environ, **environment})
