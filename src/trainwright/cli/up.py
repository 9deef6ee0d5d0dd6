"""`trainwright up`: make the cluster a spec describes."""

from __future__ import annotations

import dataclasses
import json
import time

import click


@click.command()
@click.argument("spec", type=click.Path(exists=True, dir_okay=False))
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change one value of the spec.")
@click.option("--force", is_flag=True, help="Apply a change even where it ends running jobs.")
@click.option("--json", "as_json", is_flag=True, help="Print the cluster as JSON.")
def command(spec: str, overrides: tuple[str, ...], force: bool, as_json: bool) -> None:
    """Make the cluster SPEC describes: on platform local, the only one so far, a real Slurm in seconds."""
    from trainwright.check.gate import require_clean
    from trainwright.cli.findings import show_findings
    from trainwright.cli.status import show
    from trainwright.platforms.base import platform_named
    from trainwright.runs.reach import remember_runs
    from trainwright.spec.load import load

    began = time.monotonic()
    checked = load(spec, overrides)
    show_findings(require_clean(checked).findings)
    loaded = checked.spec
    remember_runs(loaded.name)
    status = platform_named(loaded.platform).up(loaded, lambda words: click.echo(words, err=True), force)
    click.echo(f"cluster {loaded.name} is up after {time.monotonic() - began:.1f} s", err=True)
    click.echo(json.dumps(dataclasses.asdict(status), indent=1) if as_json else show(status))
