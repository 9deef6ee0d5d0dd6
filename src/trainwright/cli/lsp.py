"""`trainwright lsp`: check files while they are written, in any editor that speaks the language server protocol."""

from __future__ import annotations

import os

import click

from trainwright.errors import UserError


@click.command()
def command() -> None:
    """Run the language server on standard input and output; an editor starts it.

    It reports what `check` reports, offers its fixes, shows a rule's page on hover, and completes specs.
    """
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        import pygls  # noqa: F401
    except ImportError as error:
        raise UserError("the language server needs pygls", fix='pip install "trainwright[lsp]"') from error
    from trainwright.check.lsp import create

    create().start_io()
