"""`trainwright drill`: prove that a cluster brings jobs back, by causing the faults."""

from __future__ import annotations

import dataclasses
import json
import sys

import click

from trainwright.cli.host import head_node
from trainwright.cli.table import columns


@click.command()
@click.argument("spec", type=click.Path(exists=True, dir_okay=False))
@click.argument("job", required=False)
@click.option("--fault", "faults", multiple=True, metavar="NAME", help="node, rank, controller, time, script, cancel.")
@click.option("--steps", default=24, show_default=True, help="Steps of the job that is disturbed.")
@click.option("--every", default=4, show_default=True, help="Steps between its checkpoints.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change one value of the spec.")
@click.option("--host", type=head_node, default="", metavar="USER@HEAD", help="Reach the Slurm head node over ssh.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(
    spec: str,
    job: str | None,
    faults: tuple[str, ...],
    steps: int,
    every: int,
    overrides: tuple[str, ...],
    host: str,
    as_json: bool,
) -> None:
    """Cause faults on SPEC's running cluster and print what each cost beside what it may cost. Exit 1 if one fails."""
    from trainwright.runs.drill import FAULTS, Drill, drill_order, faults_for

    wrong = [fault for fault in faults if fault not in FAULTS]
    if wrong:
        raise click.UsageError(f"no fault {wrong[0]!r}; there are {', '.join(FAULTS)}")
    order = drill_order(spec, job or "", overrides, host, steps, every)
    drill = Drill(order, faults_for(order), lambda words: click.echo(words, err=True))
    outcomes = drill.run(faults or FAULTS)
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(outcome) for outcome in outcomes], indent=1))
    else:
        header = ("FAULT", "VERDICT", "STEPS LOST", "ALLOWED", "SECONDS LOST", "ALLOWED", "WHAT HAPPENED")
        rows = [
            (one.fault, one.status, one.lost_steps, one.allowed_steps, f"{one.lost_seconds:.1f}",
             f"{one.allowed_seconds:.0f}", one.note)
            for one in outcomes
        ]  # fmt: skip
        click.echo(columns(header, rows))
    if any(outcome.status in {"fail", "error"} for outcome in outcomes):
        sys.exit(1)
