"""`trainwright schema`: the spec's JSON schema, from the one definition that also validates it."""

from __future__ import annotations

import click


@click.command()
def command() -> None:
    """Print the JSON schema of the spec.

    Editors complete and explain a spec that points at it:  # yaml-language-server: $schema=trainwright.schema.json
    """
    from trainwright.spec.schema import schema_text

    click.echo(schema_text())
