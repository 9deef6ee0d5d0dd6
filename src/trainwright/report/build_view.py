"""How a build is seen: a live tree on a terminal, a line for each change elsewhere, and every line with its time in a
log file."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from trainwright.home import home

if TYPE_CHECKING:
    from trainwright.platforms.apply.steps import Step

MARKS = {"ready": "[green]✔[/]", "gone": "[green]✔[/]", "waiting": "[dim]·[/]", "rolling back": "[red]✘[/]"}
SHOWN_PARTS = 6


def log_file(cluster: str, verb: str) -> Path:
    return home() / "logs" / f"{cluster}-{verb}-{time.strftime('%Y%m%dT%H%M%S')}.log"


class BuildView:
    """Watches the steps of `up` or `down`."""

    def __init__(self, cluster: str, verb: str) -> None:
        self.path = log_file(cluster, verb)
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._log = self.path.open("a", encoding="utf-8")
        self.path.chmod(0o600)
        self._seen: dict[str, tuple[str, str]] = {}
        self._live: Any = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), refresh_per_second=4)

    def __enter__(self) -> BuildView:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._live:
            self._live.stop()
        if error is not None:
            self._write(f"ended: {kind.__name__ if kind else ''}: {error}")
        self._log.close()

    def __call__(self, steps: Sequence[Step], step: Step) -> None:
        if self._seen.get(step.key) != (step.state, step.detail):
            self._seen[step.key] = (step.state, step.detail)
            line = f"{step.title.split(':')[0]}: {step.state}{f' ({step.detail})' if step.detail else ''}"
            self._write(line)
            if not self._live:
                print(line, file=sys.stderr, flush=True)
        if self._live:
            self._live.update(_tree(steps))

    def _write(self, line: str) -> None:
        self._log.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {line}\n")
        self._log.flush()


def _tree(steps: Sequence[Step]) -> Any:
    from rich.markup import escape
    from rich.tree import Tree

    tree = Tree("resources", hide_root=True)
    for step in steps:
        mark = MARKS.get(step.state, "[yellow]…[/]")
        seconds = (step.ended or time.monotonic()) - step.began if step.began is not None else 0.0
        detail = f" [dim]{escape(step.detail)}[/]" if step.detail else ""
        node = tree.add(f"{mark} {escape(step.title.split(':')[0])}  {step.state} {_elapsed(seconds)}{detail}")
        busy = [(name, state) for name, state in step.parts.items() if not state.endswith("_COMPLETE")]
        for name, state in busy[:SHOWN_PARTS] if step.ended is None else []:
            node.add(f"[dim]{escape(name)}  {state.lower().replace('_', ' ')}[/]")
    return tree


def _elapsed(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}" if seconds >= 1 else ""
