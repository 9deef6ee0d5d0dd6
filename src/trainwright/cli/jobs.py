"""`trainwright jobs`: what waits and runs, on every scheduler this machine knows."""

from __future__ import annotations

import dataclasses
import json

import click

from trainwright.cli.host import head_node
from trainwright.cli.table import columns


@click.command()
@click.argument("target", metavar="[SPEC|NAME]", required=False)
@click.option("--host", type=head_node, default="", metavar="USER@HEAD", help="Reach the Slurm head node over ssh.")
@click.option("--why", metavar="JOB", help="Say why a job is still waiting.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(target: str | None, host: str, why: str | None, as_json: bool) -> None:
    """One table of the jobs that wait or run: of the cluster that SPEC or NAME means, whoever submitted them, or over
    all schedulers that runs of this machine went to. Exits 1 where one does not answer: its jobs are
    then shown as unknown, with what was last seen."""
    from trainwright.runs import reach, store

    if why:
        run = store.find(why)
        click.echo(reach.scheduler_of(run).explain_pending(run.identity))
        return
    jobs = reach.all_jobs(target, host)
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(job) for job in jobs], indent=1))
    elif jobs:
        header = ("JOB", "NAME", "CLUSTER", "QUEUE", "STATE", "NODES", "WHERE OR WHY")
        rows = [
            (j.id, j.name, j.cluster or j.scheduler, j.queue, j.state, j.nodes, j.node_list or j.reason) for j in jobs
        ]
        click.echo(columns(header, rows))
    else:
        click.echo("no job waits or runs", err=True)
    if any(job.state == "unknown" for job in jobs):
        raise SystemExit(1)
