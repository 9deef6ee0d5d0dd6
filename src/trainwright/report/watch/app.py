"""The live view in a terminal (textual): runs and queues at the left, one run in depth at the right, its log below.
The polls run in a thread, so that a slow scheduler does not hold up the keys."""

from __future__ import annotations

import time
from typing import ClassVar

from rich.markup import escape
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Header, Label, RichLog, Static
from textual.worker import get_current_worker

from trainwright.errors import UserError
from trainwright.report.watch.snapshot import RunView, Snapshot, Watcher
from trainwright.report.watch.words import run_facts, spark
from trainwright.runs import reach, store

PAUSE = 2.0  # seconds between polls
LOG_LINES = 2000
WORD = {"running": "green", "completed": "green", "failed": "red", "node-failed": "red", "timeout": "red"}


class Question(ModalScreen[bool]):
    """Asks before a job is ended."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "yes"),
        Binding("n,escape", "answer(False)", "no"),
    ]
    CSS = "Question {align: center middle;} #question {padding: 1 3; border: thick $error; background: $surface;}"

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def compose(self) -> ComposeResult:
        yield Label(f"{escape(self.text)}  [b]y[/b]es / [b]n[/b]o", id="question")

    def action_answer(self, answer: bool) -> None:
        self.dismiss(answer)


class WatchApp(App[None]):
    """Jobs and runs, live."""

    TITLE = "trainwright watch"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #left {width: 46; border-right: solid $panel;} #runs {height: 2fr;}
    #queues {height: auto; max-height: 8; padding: 0 1;}
    #run {padding: 0 1; height: auto;} #log {height: 1fr; border-top: solid $panel; display: none;}
    Screen.narrow #left {width: 100%; height: 10; border-right: none;} Screen.narrow #body {layout: vertical;}
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("l", "logs", "log"),
        Binding("c", "cancel", "cancel the job"),
        Binding("r", "refresh", "refresh"),
        Binding("n,j", "next(1)", "next run"),
        Binding("p,k", "next(-1)", "previous run"),
    ]

    def __init__(self, watcher: Watcher, pause: float = PAUSE) -> None:
        super().__init__()
        self.watcher, self.pause = watcher, pause
        self.snapshot: Snapshot | None = None
        self.log_seen: dict[str, str] = {}
        self.log_of = ""

    def compose(self) -> ComposeResult:
        yield Header(show_clock=False)
        with Horizontal(id="body"):
            with Vertical(id="left"):
                yield DataTable(id="runs", cursor_type="row", zebra_stripes=True)
                yield Static(id="queues")
            with Vertical():
                yield Static("reading …", id="run")
                yield RichLog(id="log", max_lines=LOG_LINES, wrap=True, highlight=False, markup=False)
        yield Footer()

    def on_mount(self) -> None:
        self.query_one("#runs", DataTable).add_columns("run", "state")
        self.query_one("#runs", DataTable).focus()
        self.poll_for_ever()

    def on_resize(self) -> None:
        self.screen.set_class(self.size.width < 100, "narrow")

    @work(thread=True)
    def poll_for_ever(self) -> None:
        worker = get_current_worker()
        while not worker.is_cancelled:
            try:
                snapshot = self.watcher.poll()
            except UserError as error:
                self.call_from_thread(self.notify, str(error), severity="error")
            else:
                self.call_from_thread(self.show, snapshot)
            end = time.monotonic() + self.pause
            while time.monotonic() < end and not worker.is_cancelled and not self._wanted():
                time.sleep(0.2)

    def _wanted(self) -> bool:
        """Whether another run was chosen than the one that is shown."""
        shown = self.snapshot.run.name if self.snapshot and self.snapshot.run else ""
        return bool(self.watcher.chosen) and self.watcher.chosen != shown

    def show(self, snapshot: Snapshot) -> None:
        first, self.snapshot = self.snapshot is None, snapshot
        table = self.query_one("#runs", DataTable)
        if first or [row[:2] for row in snapshot.runs] != [tuple(table.get_row_at(n)) for n in range(table.row_count)]:
            at = table.cursor_row
            table.clear()
            for name, state, _ in snapshot.runs:
                table.add_row(name, state, key=name)
            table.move_cursor(row=min(at, max(0, table.row_count - 1)))
        queues = "\n".join(f"{cluster} {queue}: {states}" for cluster, queue, states in snapshot.queues)
        others = [job for job in snapshot.jobs if job.name not in {name for name, _, _ in snapshot.runs}]
        more = "\n".join(f"{job.name} {job.state} {job.node_list or job.reason}" for job in others)
        self.query_one("#queues", Static).update(escape("\n".join(filter(None, (queues, more, snapshot.problem)))))
        self.query_one("#run", Static).update(run_text(snapshot.run, self.size.width))
        if self.query_one("#log").display:
            self._read_log()

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        if event.row_key.value and self.snapshot is not None:
            self.watcher.choose(event.row_key.value)

    def action_next(self, by: int) -> None:
        table = self.query_one("#runs", DataTable)
        table.move_cursor(row=table.cursor_row + by)

    def action_refresh(self) -> None:
        self.watcher.queues_at = 0.0

    def action_logs(self) -> None:
        log = self.query_one("#log", RichLog)
        log.display = not log.display
        if log.display:
            self._read_log()

    def _read_log(self) -> None:
        run = self.snapshot.run if self.snapshot else None
        if run is None:
            return
        log = self.query_one("#log", RichLog)
        if run.name != self.log_of:
            log.clear()
            self.log_of, self.log_seen = run.name, {}
        current = store.find(run.name)
        for source, line in reach.scheduler_of(current).logs(current.identity, current.where, self.log_seen, 0):
            log.write(f"[{source}] {line}")

    @work
    async def action_cancel(self) -> None:
        run = self.snapshot.run if self.snapshot else None
        if run is None or run.over:
            self.notify("no job to cancel: it is over", severity="warning")
        elif await self.push_screen_wait(Question(f"End the job of {run.name}?")):
            try:
                reach.cancel(store.find(run.name))
                self.notify(f"cancelled {run.name}")
            except UserError as error:
                self.notify(str(error), severity="error")


def run_text(run: RunView | None, width: int) -> str:
    """One run in depth, as markup."""
    if run is None:
        return "no run yet; `trainwright submit` makes one"
    room = max(20, min(60, width - 60))
    state = f"[{WORD.get(run.state, 'yellow')}]{run.state}[/]"
    lines = [f"[b]{escape(run.name)}[/b]  {state}  {run.ranks} ranks on {escape(run.where)}", ""]
    if run.steps and run.step:
        done = round(min(1.0, run.step / run.steps) * room)
        lines.append(f"[green]{'━' * done}[/][dim]{'━' * (room - done)}[/]  {run.step / run.steps:.0%}")
    lines += [f"[dim]{name:10}[/] {escape(value)}" for name, value in run_facts(run)]
    for name, values in (("loss", run.losses), ("tokens/s", run.speeds)):
        if any(value is not None for value in values):
            lines.append(f"[dim]{name:10}[/] [cyan]{spark(values, room)}[/]")
    if run.behind:
        lines += ["", f"[b red]{escape(run.behind)}[/]"]
    lines += ["", "[dim]last events[/]"]
    lines += [f"  {time.strftime('%H:%M:%S', time.localtime(moment))}  {escape(text)}" for moment, text in run.events]
    return "\n".join(lines)
