"""`trainwright watch`: jobs and runs as they go, in the terminal, as lines, or as a page on loopback."""

from __future__ import annotations

import sys

import click


@click.command()
@click.argument("run", required=False, metavar="[RUN]")
@click.option("--web", is_flag=True, help="A page on loopback that updates by itself; its address holds a token.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="For --web; default: any free one.")
@click.option("--plain", is_flag=True, help="A line per change, also on a terminal.")
@click.option("--once", is_flag=True, help="Say how things are now, and exit.")
@click.option("--json", "as_json", is_flag=True, help="A JSON object per change.")
def command(run: str | None, web: bool, port: int, plain: bool, once: bool, as_json: bool) -> None:
    """Watch all jobs and queues, and RUN (a name, its start, a job id, or `last`) in depth. Piped, a line per change
    until the run is over; exits 1 where it failed or was lost."""
    from trainwright.report.watch.snapshot import Watcher
    from trainwright.runs import store

    lines = [option for option, given in (("--plain", plain), ("--once", once), ("--json", as_json)) if given]
    if web and lines:
        raise click.UsageError(f"--web serves a page and takes no {' or '.join(lines)}")
    watcher = Watcher(store.find(run).name if run else "")
    if web:
        from trainwright.report.watch.web import serve

        serve(watcher.chosen, port, lambda text: click.echo(text))
        return
    if plain or once or as_json or not sys.stdout.isatty():
        from trainwright.report.watch.plain import follow_plain
        from trainwright.runs.history import FAILED

        end = follow_plain(watcher, lambda text: click.echo(text), as_json, once=once)
        sys.exit(1 if end is not None and end.state in {*FAILED, "lost"} else 0)
    try:
        from trainwright.report.watch.app import WatchApp
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "textual":
            raise
        from trainwright.errors import UserError

        raise UserError("the live view needs textual", fix="pip install trainwright[watch], or --plain") from error
    WatchApp(watcher).run()
