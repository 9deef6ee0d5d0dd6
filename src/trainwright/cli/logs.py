"""`trainwright logs`: what the ranks of a run print."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from trainwright.runs.progress import Progress
    from trainwright.runs.store import Run
    from trainwright.schedulers.base import JobStatus, Scheduler


@click.command()
@click.argument("run", default="last")
@click.option("-f", "--follow", "follow_it", is_flag=True, help="Go on until the job ends.")
@click.option("--rank", type=click.IntRange(0), help="Only this rank.")
@click.option("-n", "--tail", type=click.IntRange(1), metavar="LINES", help="Only the last lines of each log.")
def command(run: str, follow_it: bool, rank: int | None, tail: int | None) -> None:
    """Print the logs of RUN (a run, a job id, or `last`), each line with the rank it comes from."""
    from trainwright.report.log_text import for_stream
    from trainwright.runs import reach, store

    if follow_it and tail:
        raise click.UsageError("--tail shows the end of what is there, --follow what comes: name one of the two")
    chosen = store.find(run)
    if follow_it:
        watch(chosen, rank)
        return
    empty = True
    lines = reach.log_lines(chosen, rank)
    for line in ends(lines, tail) if tail else lines:
        empty = False
        click.echo(for_stream(line, sys.stdout))
    if empty:
        said = "nothing was printed" if rank is None else f"rank {rank} printed nothing"
        click.echo(f"{said}; {chosen.name} has {chosen.ranks} ranks and is {reach.run_state(chosen).state}", err=True)


def ends(lines: Iterable[str], count: int) -> Iterator[str]:
    """The last lines of each log, in the order of the logs."""
    kept: dict[str, deque[str]] = {}
    for line in lines:
        kept.setdefault(line.partition("] ")[0], deque(maxlen=count)).append(line)
    return chain.from_iterable(kept.values())


def watch(run: Run, rank: int | None) -> None:
    """Follow a run to its end: log lines to stdout, how far it is to stderr. Exit 1 unless it completed."""
    from trainwright.runs import reach

    scheduler = reach.scheduler_of(run)
    pause = 0.5 if scheduler.ships else 2.0
    try:
        status = (_with_bar if sys.stderr.isatty() else _plainly)(run, scheduler, rank, pause)
    except KeyboardInterrupt:
        click.echo(f"\nthe job goes on; `trainwright logs -f {run.name}` follows it again", err=True)
        return
    code = "" if status.exit_code is None else f", exit status {status.exit_code}"
    click.echo(f"{run.name}: {status.state}{code}", err=True)
    if status.state != "completed":
        show_cause(run, status)
        sys.exit(1)


def _with_bar(run: Run, scheduler: Scheduler, rank: int | None, pause: float) -> JobStatus:
    from trainwright.report.run_bar import RunBar
    from trainwright.runs.follow import follow

    with RunBar() as bar:
        return follow(run, scheduler, rank, bar.line, bar.show, pause)


def _plainly(run: Run, scheduler: Scheduler, rank: int | None, pause: float) -> JobStatus:
    """Not on a terminal: stderr gets the states and, at the end, how far the run came. The steps are in the log."""
    from trainwright.report.log_text import for_stream
    from trainwright.runs.follow import follow

    last: list[str] = [""]

    def show(progress: Progress, status: JobStatus) -> None:
        words = f"{status.state} ({status.reason})" if status.reason else status.state
        if words != last[0]:
            click.echo(words if not (status.over and progress.step) else progress.line(), err=True)
        last[0] = words

    return follow(run, scheduler, rank, lambda text: click.echo(for_stream(text, sys.stdout)), show, pause)


def show_cause(run: Run, status: JobStatus) -> None:
    """Why a run failed, where to read more, and how to continue it where it has a checkpoint."""
    from trainwright.runs.history import failure
    from trainwright.runs.resume import resumable_step

    cause = failure(run, status)
    if cause is not None:
        click.echo(f"  why: {cause}", err=True)
        rank = "" if cause.rank is None else f" --rank {cause.rank}"
        click.echo(f"  see: trainwright logs {run.name}{rank}", err=True)
    step = resumable_step(run)
    if step:
        click.echo(f"  continue from step {step}: trainwright resume {run.name}", err=True)
