"""`trainwright cancel`: end a job, leaving no process behind."""

from __future__ import annotations

import click


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
def command(runs: tuple[str, ...]) -> None:
    """Cancel jobs by RUN, job id or `last`; the run folders stay."""
    from trainwright.runs import reach
    from trainwright.runs.store import find
    from trainwright.schedulers.base import ENDED

    for word in runs:
        run = find(word)
        state = reach.run_state(run).state
        if state in ENDED:
            click.echo(f"{run.name} (job {run.job_id}) is over already: {state}", err=True)
            continue
        reach.cancel(run)
        click.echo(f"cancelled {run.name} (job {run.job_id})", err=True)
