"""`trainwright resume`: continue a run from its newest checkpoint."""

from __future__ import annotations

import dataclasses
import json

import click

from trainwright.cli.host import head_node


@click.command()
@click.argument("run", default="last")
@click.argument("args", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGUMENTS...]")
@click.option("--spec", type=click.Path(exists=True, dir_okay=False), help="Continue on the cluster of this spec.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change one value of the spec.")
@click.option("--nodes", type=click.IntRange(1), help="On so many nodes.")
@click.option("--queue", metavar="NAME", help="On this queue.")
@click.option("--host", type=head_node, default="", metavar="USER@HEAD", help="Reach the Slurm head node over ssh.")
@click.option("--venv", default="", metavar="FOLDER", help="Virtual environment on the nodes.")
@click.option("--force", is_flag=True, help="The scheduler does not answer, and the old job has certainly ended.")
@click.option("--dry-run", is_flag=True, help="Print the script and do nothing.")
@click.option("--follow", "follow_it", is_flag=True, help="Watch it until it ends; leaving does not stop it.")
@click.option("--json", "as_json", is_flag=True, help="Print the new run as JSON.")
def command(run: str, dry_run: bool, follow_it: bool, as_json: bool, **words: object) -> None:
    """Continue RUN (lost, failed, cancelled, or complete with more steps after `--`) from its newest checkpoint, on the
    same or another cluster, queue or number of nodes. Exits 1 where there is nothing to continue."""
    from trainwright.cli.logs import watch
    from trainwright.runs import store, submission
    from trainwright.runs.resume import ResumeRequest, prepare

    old = store.find(run)
    resumption = prepare(old, ResumeRequest(**words))  # type: ignore[arg-type]
    if dry_run:
        click.echo(resumption.planned.script.text.rstrip())
        return
    new = submission.submit(resumption.order, resumption.planned)
    if as_json:
        click.echo(json.dumps({**dataclasses.asdict(new), "folder": str(new.folder)}, indent=1))
    else:
        step = f" from step {resumption.step}" if resumption.step else ""
        click.echo(f"{new.name} (job {new.job_id}) continues {old.name}{step}", err=True)
        click.echo(new.name)
    if follow_it:
        watch(new, rank=0)
