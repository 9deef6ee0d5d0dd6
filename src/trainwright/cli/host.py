"""The flag --host: a Slurm head node that ssh reaches."""

from __future__ import annotations

import click


class Host(click.ParamType):
    """An ssh destination; an empty text is no host."""

    name = "host"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value:
            return ""
        from trainwright.spec.words import ssh_destination

        try:
            return ssh_destination(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
