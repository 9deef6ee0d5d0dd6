"""The flag --host: a Slurm head node that ssh reaches."""

from __future__ import annotations

import click


def head_node(value: str) -> str:
    """The type of the flag: an ssh destination, or an empty text for none."""
    if not value:
        return ""
    from trainwright.spec.words import ssh_destination

    try:
        return ssh_destination(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
