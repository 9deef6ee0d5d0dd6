"""Many nodes at once: runs the suite on each through Slurm, prints one table, and names the node that differs."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from trainwright.errors import UserError
from trainwright.health.output import columns
from trainwright.health.verdict import VERDICTS, Report, report_from_json
from trainwright.health.versions import TITLES

FREE = ("idle", "mixed", "completing")
NODES = ("sinfo", "--noheader", "--Node", "--format=%N|%R|%T|%E")
SKEW = 1.0  # seconds between a node's clock and ours; below that the start of a process hides it


class Done(Protocol):
    """What a shell gives back."""

    @property
    def code(self) -> int: ...
    @property
    def out(self) -> str: ...
    @property
    def err(self) -> str: ...


@dataclasses.dataclass(frozen=True)
class Entry:
    """One node of the table: its report, or why there is none."""

    node: str
    state: str
    report: Report | None = None
    reason: str = ""

    @property
    def usable(self) -> bool:
        return self.report is not None and self.report.usable

    @property
    def asked(self) -> bool:
        """Whether the suite was started there; a node that did not answer then is not known to be fit."""
        return self.report is not None or self.state in FREE

    @property
    def verdict(self) -> str:
        return self.report.verdict if self.report else "skip"

    def as_json(self) -> dict[str, object]:
        report = self.report.as_json() if self.report else None
        return {
            "node": self.node,
            "state": self.state,
            "verdict": self.verdict,
            "reason": self.reason,
            "report": report,
        }


def survey(run: Callable[[list[str]], Done], python: str, options: Sequence[str]) -> list[Entry]:
    """Run the suite on every node that is free, all at once; the others are listed with the reason."""
    listing = run(list(NODES))
    if listing.code != 0:
        raise UserError(
            f"Slurm does not answer: {listing.err.strip()}", fix="run this on the head node, or name a cluster"
        )
    states: dict[str, tuple[str, str, str]] = {}
    for line in listing.out.splitlines():
        name, queue, state, reason = line.split("|", 3)
        states.setdefault(name, (queue, state.rstrip("*~#!%$@^-"), reason))
    queues: dict[str, list[str]] = defaultdict(list)
    for name, (queue, state, _) in states.items():
        if state in FREE:
            queues[queue].append(name)
    reports: dict[str, Report] = {}
    errors: dict[str, str] = {}
    began = time.time()
    for queue, names in queues.items():
        done = run(_launch(queue, names, python, options))
        reports.update(reports_in(done.out))
        errors.update(dict.fromkeys(names, _last_line(done.err)))
    window = (began, time.time())
    return [
        _entry(name, state, reason, reports.get(name), errors, window) for name, (_, state, reason) in states.items()
    ]


def _launch(queue: str, names: Sequence[str], python: str, options: Sequence[str]) -> list[str]:
    size = [f"--nodes={len(names)}", f"--ntasks={len(names)}", "--ntasks-per-node=1", f"--nodelist={','.join(names)}"]
    # Labels keep the lines of one node together; a node that fails must not end the others.
    how = [f"--partition={queue}", "--label", "--kill-on-bad-exit=0", "--immediate=30", "--job-name=health"]
    return ["srun", *size, *how, python, "-m", "trainwright.health", "--json", *options]


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if "Exited with exit code" not in line]
    return lines[-1] if lines else ""


def _entry(
    name: str, state: str, reason: str, report: Report | None, errors: Mapping[str, str], window: tuple[float, float]
) -> Entry:
    if report is None:
        busy = f"not checked: {state}" + (f", {reason}" if reason not in ("none", "") else "")
        return Entry(name, state, None, errors.get(name) or busy)
    began, ended = window
    skew = max(began - report.time, report.time - ended, 0.0)
    return Entry(name, state, report, f"its clock is {skew:.0f} s off ours" if skew > SKEW else "")


def reports_in(text: str) -> dict[str, Report]:
    """The reports in the labelled output of srun; half a report is none."""
    by_task: dict[str, list[str]] = defaultdict(list)
    for line in text.splitlines():
        if match := re.match(r"\s*(\d+): (.*)", line):
            by_task[match[1]].append(match[2])
    made = {}
    for lines in by_task.values():
        joined = "\n".join(lines)
        try:
            report = report_from_json(json.loads(joined[joined.index("{") :]))
        except (ValueError, KeyError, TypeError):
            continue
        made[report.node] = report
    return made


def sum_up(folder: Path) -> list[Entry]:
    """The reports that the nodes of a job left in its run folder."""
    entries = []
    for path in sorted(folder.glob("*.json")):
        with contextlib.suppress(ValueError, KeyError, TypeError):  # some other JSON file
            report = report_from_json(json.loads(path.read_text()))
            entries.append(Entry(report.node, "", report))
    if not entries:
        raise UserError("no report of a node here", where=str(folder), fix="name the health/ folder of a run")
    return entries


def show(entries: Sequence[Entry]) -> str:
    """One table, worst first, then what differs between nodes."""
    rows = [
        (entry.node, entry.state or "-", entry.verdict, "; ".join(filter(None, (_why(entry), entry.reason))))
        for entry in sorted(entries, key=_severity, reverse=True)
    ]
    counts = Counter(entry.verdict for entry in entries)
    total = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    return "\n".join(
        [
            columns(("NODE", "STATE", "VERDICT", "WHY"), rows),
            total,
            *differences(reports_of(entries)),
            *slow_storage(entries),
        ]
    )


def _severity(entry: Entry) -> float:
    """A node without a report stands between those to take away and those that work."""
    return VERDICTS.index(entry.verdict) if entry.report else VERDICTS.index("monitor") + 0.5


def _why(entry: Entry) -> str:
    return entry.report.reason if entry.report and entry.report.verdict != "pass" else ""


def reports_of(entries: Sequence[Entry]) -> dict[str, Mapping[str, str]]:
    """What is compared across nodes: versions, and what torch says of itself where a deep suite asked it."""
    compared: dict[str, Mapping[str, str]] = {}
    for entry in entries:
        if entry.report:
            torch = {r.id: r.message for r in entry.report.results if r.id == "software.torch" and r.status == "pass"}
            compared[entry.node] = {**entry.report.versions, **torch}
    return compared


def slow_storage(entries: Sequence[Entry]) -> list[str]:
    """One line for each node that reads a shared file system at less than half of the usual rate."""
    rates: dict[str, dict[str, float]] = defaultdict(dict)
    for entry in entries:
        for result in entry.report.results if entry.report else ():
            if result.id == "storage.rate" and result.status == "pass":
                for place, rate in re.findall(r"(\S+) (\d+) MiB/s", result.message):
                    rates[place][entry.node] = float(rate)
    lines = []
    for place, by_node in rates.items():
        usual = statistics.median(by_node.values())
        slow = {node: rate for node, rate in by_node.items() if rate < usual / 2}
        lines += [
            f"slow: {node} reads {place} at {rate:.0f} MiB/s, usual is {usual:.0f}" for node, rate in slow.items()
        ]
    return lines


def differences(versions: Mapping[str, Mapping[str, str]]) -> list[str]:
    """One line for each piece of software that is not the same everywhere, naming the odd nodes."""
    lines = []
    names = dict.fromkeys(name for installed in versions.values() for name in installed)
    for name in names:
        nodes: dict[str, list[str]] = defaultdict(list)
        for node, installed in versions.items():
            nodes[installed.get(name, "none")].append(node)
        if len(nodes) > 1:
            usual, _ = max(nodes.items(), key=lambda item: len(item[1]))
            odd = [f"{', '.join(where)}: {value}" for value, where in nodes.items() if value != usual]
            title = TITLES.get(name, name)
            lines.append(f"differs: {title} is {usual} on {len(nodes[usual])} nodes, but {'; '.join(odd)}")
    return lines
