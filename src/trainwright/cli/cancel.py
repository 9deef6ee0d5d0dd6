"""`trainwright cancel`: end a job, leaving no process behind."""

from __future__ import annotations

import click


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
def command(runs: tuple[str, ...]) -> None:
    """Cancel the jobs of RUNs (a name, its start, a job id, or `last`); the run folders stay. A word that fits several
    runs which have not ended is refused. Exits 1 where a scheduler does not answer."""
    from trainwright.runs import reach
    from trainwright.schedulers.base import ENDED

    for run in [reach.only_live(word) for word in runs]:
        state = reach.run_state(run).state
        if state in ENDED:
            click.echo(f"{run.name} (job {run.job_id}) is over already: {state}", err=True)
            continue
        reach.cancel(run)
        click.echo(f"cancelled {run.name} (job {run.job_id})", err=True)
