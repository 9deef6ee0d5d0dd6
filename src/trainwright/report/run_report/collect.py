"""Collects a RunReport: from a run that was submitted here, from a run folder, or from a log of any framework."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainwright.errors import UserError
from trainwright.predict.trace_terms import SUMMARY
from trainwright.report.run_report import benches, cluster, ranks, redact
from trainwright.report.run_report.charts import charts_of, shares_of
from trainwright.report.run_report.folder import (
    json_file,
    json_lines,
    local_copy,
    log_steps,
    read_prediction,
    read_steps,
)
from trainwright.report.run_report.happenings import timeline
from trainwright.report.run_report.model import RunReport, Table
from trainwright.report.run_report.summary import data_facts, summary_facts, verdicts_of
from trainwright.report.run_report.terms import measure, terms
from trainwright.runs import store
from trainwright.runs.store import Run
from trainwright.schedulers.base import JobStatus


@dataclass(frozen=True)
class Source:
    """What a user named: a run, and the folder or the log that it is read from."""

    run: Run
    state: str
    reason: str
    folder: Path
    log: Path | None = None


def collect(word: str, bench_files: Sequence[Path] = ()) -> RunReport:
    """The report of a run's name, of a run folder, or of a log file."""
    with tempfile.TemporaryDirectory() as scratch:
        try:
            return _collect(_source(word, scratch), bench_files)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            if not Path(word).is_dir():
                raise
            # Anybody may have written this folder: what no run writes is its mistake, not ours.
            fix = "copy the whole folder of the run again, or remove the file that holds this"
            raise UserError(
                f"a file of this run folder does not hold what a run writes: {error}", where=word, fix=fix
            ) from error


def _source(word: str, scratch: str) -> Source:
    path = Path(word)
    if path.is_file():
        now = path.stat().st_mtime
        run = Run(path.stem, path.stem, "", created=now)
        return Source(run, "unknown", "read from a log alone", Path(scratch), path)
    if path.is_dir() and (path / "run.json").exists() and path.resolve() != store.runs_folder() / path.name:
        return _foreign_folder(path)
    if path.is_dir() and not (path / "run.json").exists() and store.read(word) is None:
        raise UserError("this folder is no run: it has no run.json", where=word, fix="`trainwright runs` lists runs")
    run = store.find(word if not path.is_dir() else path.name)
    from trainwright.runs.reach import run_state

    status = run_state(run)
    return Source(run, status.state, _reason(run, status), local_copy(run, Path(scratch)))


def _reason(run: Run, status: JobStatus) -> str:
    from trainwright.runs.history import failure, recovered

    cause = failure(run, status) or recovered(run, status)
    return str(cause) if cause else status.reason


def _foreign_folder(path: Path) -> Source:
    """A folder that somebody copied here: its scheduler is not asked, its files say how it ended."""
    facts = json_file(path / "run.json")
    known = {name: facts[name] for name in Run.__dataclass_fields__ if name in facts}
    try:
        run = Run(**known)
    except TypeError as error:
        raise UserError("run.json does not describe a run", where=str(path / "run.json")) from error
    seen = json_file(path / "last_seen.json").get("status", {})
    result = json_file(path / "result.json")
    state = seen.get("state") or {"done": "completed"}.get(str(result.get("status")), str(result.get("status", "")))
    return Source(run, state or "unknown", str(seen.get("reason", "")), path)


def _collect(source: Source, bench_files: Sequence[Path]) -> RunReport:
    run, folder = source.run, source.folder
    steps = log_steps(source.log, None) if source.log else read_steps(folder, run.ranks)
    if not len(steps) and source.log:
        raise UserError("no step of a framework that is known", where=str(source.log), fix="docs/run/your-script.md")
    events = list(json_lines(folder / "events.jsonl"))
    prediction, profile = read_prediction(folder), json_file(folder / "profile" / SUMMARY)
    times = ranks.read_ranks(folder)
    named = ranks.named_stragglers(times)
    results = benches.bench_results(folder, bench_files)
    shown_benches = tuple(benches.bench_of(result) for result in results)
    did = measure(steps, events, named[0] if named else "")
    findings = cluster.findings_of(folder / "spec.yaml")
    moments = [float(event["time"]) for event in events if isinstance(event.get("time"), int | float)]
    began = run.submitted or (moments[0] if moments else None)
    ended = max(moments + steps.values("time")[-1:], default=None)
    if source.state in {"running", "completing"}:
        ended = time.time()
    hourly = cluster.usd_hour(folder, prediction)
    compared = terms(prediction, did, steps, benches.bandwidth_terms(results))
    report = RunReport(
        name=run.name, job=run.job, state=source.state, reason=redact.text_without_keys(source.reason),
        framework=steps.framework, cluster=run.cluster or run.scheduler, nodes=run.nodes, ranks=run.ranks,
        step=int(steps.last("step") or 0), steps=run.steps or steps.total, began=began, ended=ended, facts=(),
        verdicts=(), terms=compared, charts=charts_of(steps, prediction), shares=shares_of(steps, prediction, profile),
        heat=ranks.heat_maps(times), rank_rows=ranks.rank_rows(times), stragglers=named, events=timeline(events),
        data=data_facts(steps, folder, events), findings=findings, benches=shown_benches,
        price=cluster.price_table(folder), usd_hour=hourly,
        usd_so_far=hourly * (ended - began) / 3600 if hourly and began and ended else None,
        picture=cluster.picture_of(folder / "spec.yaml"), versions=cluster.versions(folder, events),
        environment=_environment(folder), values=_values(folder), spec=_spec(folder),
        profile=profile,
    )  # fmt: skip
    health = benches.health_verdicts(folder)
    return replace(
        report,
        facts=summary_facts(report, steps, prediction),
        verdicts=(*verdicts_of(report, steps), *health, *(v for bench in shown_benches for v in bench.verdicts)),
    )


def _environment(folder: Path) -> Table:
    """Each variable with its reason; the value of one that names a secret is hidden."""
    path = folder / "environment"
    rows = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []:
        setting, _, why = line.partition("  # ")
        name, equals, text = setting.strip().partition("=")
        if equals:
            rows.append((name, redact.value(name, text), why.strip()))
    return Table(("variable", "value", "why"), tuple(rows))


def _values(folder: Path) -> Table:
    values: dict[str, Any] = json_file(folder / "resolved.json").get("values", {})
    rows = tuple(
        (name, redact.value(name, str(value.get("value", ""))), str(value.get("origin", "")))
        for name, value in values.items()
        if isinstance(value, dict)
    )
    return Table(("value of the job", "", "where it comes from"), rows)


def _spec(folder: Path) -> str:
    path = folder / "spec.yaml"
    return redact.lines(path.read_text(encoding="utf-8", errors="replace")) if path.exists() else ""
