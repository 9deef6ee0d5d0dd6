"""The bar of `--follow` on a terminal: one line below the log, as wide as the terminal, that shows how far a run is."""

from __future__ import annotations

import re
import sys
from types import TracebackType

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from trainwright.report.log_text import safe_text
from trainwright.runs.progress import Progress
from trainwright.schedulers.base import JobStatus

STEP_LINE = re.compile(r"\[rank-\d+\] step +\d+/\d+ +loss ")  # of our trainer
LEAST_BAR = 8  # columns; a narrower bar says nothing


class RunBar:
    """Log lines scroll above, the bar stays. Where stdout goes elsewhere (`| tee`), the lines go there."""

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        self.words: tuple[Progress, JobStatus] | None = None
        self.live = Live(self, console=self.console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)

    def __enter__(self) -> RunBar:
        self.live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.live.stop()

    def line(self, text: str) -> None:
        if self.words and STEP_LINE.match(text) and sys.stdout.isatty():
            return  # the bar says it
        if sys.stdout.isatty():
            self.live.console.print(Text.from_ansi(safe_text(text)), soft_wrap=True)
        else:
            print(text, flush=True)

    def show(self, progress: Progress, status: JobStatus) -> None:
        self.words = (progress, status)
        self.live.refresh()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.words is not None:
            yield Text(bar_line(*self.words, options.max_width), no_wrap=True, overflow="ellipsis")


def bar_line(progress: Progress, status: JobStatus, width: int) -> str:
    """One line of at most `width` columns. On a narrow terminal the words become shorter, then the bar goes, then the
    prediction, then the words from the right."""
    if not progress.step:
        return f"{status.state}{f' ({status.reason})' if status.reason else ''}"[:width]
    whole = [*([] if status.state == "running" else [status.state]), *progress.parts()]
    whole = [part for part in whole if not (status.over and part.startswith("ETA "))]
    short = [re.sub(r"(\S+) tokens/s \((\S+) predicted\)", r"\1 of \2 tok/s", part) for part in whole]
    short = [part.replace(" tokens/s", " tok/s") for part in short]
    bare = [re.sub(r" of \S+ tok/s", " tok/s", part) for part in short]
    for parts, bar in ((whole, True), (short, True), (short, False), (bare, False)):
        if len("  ".join(parts)) + (LEAST_BAR + 2 if bar else 0) <= width:
            break
    while len(parts) > 1 and len("  ".join(parts)) > width:
        parts.pop()
    text = "  ".join(parts)
    room = min(40, width - len(text) - 2)
    return f"{_bar(progress, room)}  {text}" if progress.steps and room >= LEAST_BAR else text[:width]


def _bar(progress: Progress, width: int) -> str:
    share = min(1.0, progress.step / (progress.steps or progress.step or 1))
    done = round(share * width)
    return "━" * done + "╌" * (width - done)
