"""`trainwright data`: prepare, show and verify token shards. The node side parses the arguments."""

from __future__ import annotations

import sys

import click


@click.command(context_settings={"ignore_unknown_options": True}, add_help_option=False)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def command(words: tuple[str, ...]) -> None:
    """Prepare, show and verify training data."""
    from trainwright.train.data.cli import main

    sys.exit(main(list(words)))
