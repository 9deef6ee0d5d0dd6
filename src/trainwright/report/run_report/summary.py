"""The top of a report: the numbers people ask for first, and a verdict on each thing that can go wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainwright.report.run_report.folder import Steps, json_file
from trainwright.report.run_report.model import RunReport, Status, Term, Verdict
from trainwright.runs.history import FAILED
from trainwright.runs.progress import clock, short

ENDS: dict[str, Status] = {
    "completed": "pass",
    "running": "pass",
    "pending": "pass",
    "completing": "pass",
    "lost": "fail",
}


def summary_facts(report: RunReport, steps: Steps, prediction: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Name and value; what is not known is left out."""
    return tuple(_facts(report, steps, prediction))


def _facts(report: RunReport, steps: Steps, prediction: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    values = {row[0]: row[1] for row in report.values.rows}
    model = str(prediction.get("model") or values.get("model") or "")
    if model:
        yield "model", model
    if prediction.get("plan"):
        yield "plan", f"{prediction['plan']}, {prediction.get('precision', '')}"
    yield "ranks", f"{report.ranks} on {report.nodes} node{'s' if report.nodes != 1 else ''}"
    yield "step", f"{report.step:,}" + (f" of {report.steps:,}" if report.steps else "")
    losses = steps.values("loss")
    if losses:
        yield "loss", f"{losses[0]:.4f} → {losses[-1]:.4f}"
    speed = report.term("tokens/s")
    if speed and speed.measured:
        yield "tokens/s", f"{short(speed.measured)} (median)"
    if report.began and report.ended:
        yield "time", clock(report.ended - report.began)
    if report.usd_so_far is not None:
        yield "price so far", f"${report.usd_so_far:,.2f}"


def data_facts(steps: Steps, folder: Path, events: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, str], ...]:
    """What the run has read: tokens, samples, epochs, and what was skipped or read again."""
    return tuple(_data(steps, folder, events))


def _data(steps: Steps, folder: Path, events: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    config = json_file(folder / "config.json")
    if config.get("data"):
        yield "source", " ".join(map(str, config["data"]))
    tokens, sequence = steps.last("tokens"), config.get("sequence")
    if tokens is not None:
        yield "tokens seen", f"{tokens:,.0f}"
    if tokens is not None and sequence:
        samples = tokens / float(sequence)
        yield "samples seen", f"{samples:,.0f} of {sequence:,} tokens"
        whole = _data_set(folder)
        if whole:
            yield "data set", f"{whole:,} samples: {samples / whole:.2f} epochs so far"
    resumed = [event for event in events if event.get("event") == "resume"]
    if resumed:
        yield "resumed", ", ".join(f"at sample {event.get('seen', 0):,}" for event in resumed[:8])
    for event in [event for event in events if event.get("event") == "guard"][:8]:
        first, last = (event.get("samples") or [0, 0])[:2]
        yield "guard", f"{event.get('action')} samples {first:,} to {last:,}: {event.get('why')}"


def _data_set(folder: Path) -> int | None:
    """Our trainer logs the size of its data set when it starts."""
    log = folder / "logs" / "rank-0.log"
    if not log.exists():
        return None
    with log.open(encoding="utf-8", errors="replace") as lines:
        match = re.search(r"^data: ([\d,]+) \w+ of", lines.read(2**16), re.MULTILINE)
    return int(match[1].replace(",", "")) if match else None


def verdicts_of(report: RunReport, steps: Steps) -> tuple[Verdict, ...]:
    """Each with the sentence that explains it; what could not be judged is a skip with its reason."""
    return (
        _end(report),
        _loss(steps),
        _speed(report),
        *(_of_term(what, report.term(name)) for what, name in (("memory", "memory"), ("goodput", "goodput"))),
        _ranks(report),
        _spec(report),
    )


def _end(report: RunReport) -> Verdict:
    status = ENDS.get(report.state, "fail" if report.state in FAILED else "skip")
    return Verdict("run", status, report.state + (f": {report.reason}" if report.reason else ""))


def _loss(steps: Steps) -> Verdict:
    known = steps.values("loss")
    if steps.lost:
        return Verdict("loss", "warn", f"{steps.lost} of {len(steps)} steps have a loss that is not finite")
    if not known:
        return Verdict("loss", "skip", "no loss was logged")
    if len(known) == 1:
        return Verdict("loss", "skip", f"{known[0]:.4f} at the only step that was logged")
    if known[-1] >= known[0]:
        return Verdict("loss", "warn", f"it did not fall: {known[0]:.4f} → {known[-1]:.4f}")
    return Verdict("loss", "pass", f"fell from {known[0]:.4f} to {known[-1]:.4f}")


def _speed(report: RunReport) -> Verdict:
    """As fast as predicted, or the likely cause why not; steps may be fast and the training slow, by restarts."""
    term = report.term("tokens/s")
    said = [event.text for event in report.events if event.text.startswith("slower than predicted")]
    if said and (term is None or term.status != "fail"):
        return Verdict("speed", "warn", said[-1])
    return _of_term("speed", term)


def _of_term(what: str, term: Term | None) -> Verdict:
    if term is None or term.status == "skip":
        return Verdict(what, "skip", term.why if term else "not measured")
    where = {"pass": "within the interval", "warn": "outside the interval", "fail": "outside the interval"}
    distance = f"{term.distance:+.0%} from the prediction, " if term.distance is not None else ""
    return Verdict(what, term.status, f"{distance}{where[term.status]}; {term.why}")


def _ranks(report: RunReport) -> Verdict:
    if report.stragglers:
        return Verdict("ranks", "warn", "; ".join(report.stragglers))
    if not report.rank_rows:
        return Verdict("ranks", "skip", "too short or too few ranks to be measured")
    return Verdict("ranks", "pass", "no rank delays the others")


def _spec(report: RunReport) -> Verdict:
    if not report.spec:
        return Verdict("spec", "skip", "there is no spec with this run")
    levels = [str(finding["level"]) for finding in report.findings]
    if not levels:
        return Verdict("spec", "pass", "check finds no mistake")
    status: Status = "fail" if "error" in levels else "warn" if "warning" in levels else "pass"
    return Verdict("spec", status, f"check has {len(levels)} finding{'s' if len(levels) != 1 else ''}")
