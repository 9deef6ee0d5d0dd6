"""`trainwright train`: the trainer. Words go to the node side's own parser, which runs where click is not installed."""

from __future__ import annotations

import sys

import click


@click.command(context_settings={"ignore_unknown_options": True}, add_help_option=False)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def command(words: tuple[str, ...]) -> None:
    """Train a model: alone, under torchrun, or under srun."""
    from trainwright.train.__main__ import main

    sys.exit(main(list(words)))
