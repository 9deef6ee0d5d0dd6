"""`trainwright demo`: the whole story, for real, on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from trainwright.demo.story import Context, Outcome, Step

_MARKS = {"pass": ("✓", "green"), "fail": ("✗", "red"), "error": ("✗", "red"), "skip": ("–", "yellow")}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print every step's facts as JSON at the end.")
@click.option("--web", is_flag=True, help="Open the live page while it runs; on a terminal it stays until Ctrl-C.")
@click.option("--clean", "clean_it", is_flag=True, help="Stop and remove whatever a demo left behind, and exit.")
def command(as_json: bool, web: bool, clean_it: bool) -> None:
    """Check, predict, prove, run, break, plan and report a training cluster on this machine: about two minutes, no
    account, no GPU."""
    from trainwright.demo import steps
    from trainwright.home import home

    folder = home() / "demo"
    if clean_it:
        removed = steps.clean(folder)
        click.echo(f"removed {len(removed)} parts" if removed else "nothing was left")
        return
    steps.clean(folder)
    folder.mkdir(parents=True)
    os.environ["TRAINWRIGHT_HOME"] = str(folder / "home")
    os.environ["TRAINWRIGHT_ENDS_WITH"] = str(os.getpid())  # its cluster ends with it, also where it is killed
    context = _context(folder)
    with _live_page() if web else contextlib.nullcontext():
        outcomes = steps.run(context, _announce)
        _summary(outcomes, folder, context.results.get("report"))
    if as_json:
        click.echo(json.dumps([outcome.row() for outcome in outcomes], indent=2))
    sys.exit(0 if all(outcome.status in ("pass", "skip") for outcome in outcomes) else 1)


def _context(folder: Path) -> Context:
    from trainwright.demo.story import Context

    terminal = sys.stderr.isatty()

    def say(text: str) -> None:
        click.echo(("\r\033[K" if terminal else "") + f"   {text}", err=True)

    def live(text: str) -> None:
        if terminal:
            click.echo(f"\r\033[K   {text}", nl=False, err=True)

    return Context(folder, say, live)


def _announce(number: int, step: Step) -> None:
    click.echo(
        ("\r\033[K" if sys.stderr.isatty() else "") + click.style(f"\n{number}  {step.title}", bold=True), err=True
    )


@contextlib.contextmanager
def _live_page() -> Iterator[None]:
    """The page of `watch --web` for as long as the demo runs."""
    import threading
    import webbrowser

    from trainwright.report.watch.web import WatchServer

    server = WatchServer()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    click.echo(f"live page: {server.address}", err=True)
    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or sys.platform == "darwin":
        webbrowser.open(server.address)
    try:
        yield
        if sys.stderr.isatty() and sys.stdin.isatty():
            click.echo("the live page stays until Ctrl-C", err=True)
            server.ended.wait()
    except KeyboardInterrupt:
        click.echo("", err=True)
    finally:
        server.shutdown()
        server.server_close()


def _summary(outcomes: list[Outcome], folder: Path, report: Path | None) -> None:
    click.echo("", err=True)
    for outcome in outcomes:
        mark, colour = _MARKS[outcome.status]
        click.echo(f"{click.style(mark, fg=colour)} {outcome.title:58}{outcome.seconds:7.1f} s", err=True)
    total = sum(outcome.seconds for outcome in outcomes)
    if report is not None:
        click.echo(f"\nreport: {report}", err=True)
    click.echo(f"\n{total:.0f} s; the files are in {folder} (trainwright demo --clean removes them)", err=True)
