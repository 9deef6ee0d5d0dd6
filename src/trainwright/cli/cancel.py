"""`trainwright cancel`: end a job, leaving no process behind."""

from __future__ import annotations

import click


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
def command(runs: tuple[str, ...]) -> None:
    """Cancel jobs by RUN, job id or `last`; the run folders stay."""
    from trainwright.platforms import reach
    from trainwright.schedulers.base import ENDED
    from trainwright.schedulers.runs import find

    for word in runs:
        run = find(word)
        state = reach.run_state(run).state
        if state in ENDED:
            click.echo(f"{run.name} (job {run.job_id}) is over already: {state}", err=True)
            continue
        reach.cancel(run)
        click.echo(f"cancelled {run.name} (job {run.job_id})", err=True)
