"""`trainwright adopt`: an existing sbatch script, manifest or cluster file becomes a spec."""

from __future__ import annotations

import json
from pathlib import Path

import click

from trainwright.errors import UserError


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False), metavar="FILE...")
@click.option("-o", "--out", metavar="FILE", help="File to write. Default: standard output.")
@click.option("--set", "values", multiple=True, metavar="NAME=VALUE", help="Fill in a placeholder of a template.")
@click.option("--force", is_flag=True, help="Overwrite the file if it is there.")
@click.option("--json", "as_json", is_flag=True, help="Spec and notes as JSON.")
def command(files: tuple[str, ...], out: str | None, values: tuple[str, ...], force: bool, as_json: bool) -> None:
    """Turn FILEs (an sbatch script, a PyTorchJob, MPIJob, JobSet or TrainJob, a ParallelCluster configuration) into a
    spec with one job each; a cluster file and a job file make one spec.

    What was carried over, assumed and dropped is told on standard error."""
    from trainwright.adopt.files import adopt
    from trainwright.adopt.write import as_data, notes_text, spec_text
    from trainwright.files import write_text

    wrong = next((value for value in values if "=" not in value), None)
    if wrong is not None:
        raise UserError(f"--set {wrong}: not NAME=VALUE")
    if out and Path(out).exists() and not force:
        raise UserError(f"{out} is there already", fix="name another file with -o, or overwrite it with --force")
    adoption = adopt(files, dict(value.split("=", 1) for value in values))
    if out:
        write_text(Path(out), spec_text(adoption))
    if as_json:
        click.echo(json.dumps(as_data(adoption), indent=1))
        return
    click.echo(out if out else spec_text(adoption).rstrip())
    click.echo(notes_text(adoption), err=True)
