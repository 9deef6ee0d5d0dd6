"""A report as Markdown, short enough for a comment on a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from trainwright.report.run_report.comparison import compare
from trainwright.report.run_report.model import RunReport, Table
from trainwright.report.run_report.words import interval_words, printable, when, with_unit

LAST_EVENTS = 12


def markdown(reports: Sequence[RunReport]) -> str:
    parts: list[str] = []
    if len(reports) > 1:
        compared = compare(reports)
        parts += [f"# {len(reports)} runs side by side", "", *_table(compared.table)]
        if compared.scaling_table.rows:
            parts += ["", "## Scaling", "", *_table(compared.scaling_table)]
        if compared.differences.rows:
            parts += ["", "## What differs", "", *_table(compared.differences)]
    for report in reports:
        parts += ["", *_run(report, "##" if len(reports) > 1 else "#")]
    return "\n".join(parts).strip() + "\n"


def _run(report: RunReport, mark: str) -> Iterator[str]:
    yield f"{mark} {_cell(report.name)}"
    yield ""
    yield " · ".join(f"**{_cell(name)}** {_cell(value)}" for name, value in report.facts)
    yield ""
    for verdict in report.verdicts:
        yield f"- **{verdict.status}** {_cell(verdict.what)}: {_cell(verdict.why)}"
    yield from ("", f"{mark}# Predicted beside measured", "")
    rows = tuple(
        (
            term.name, with_unit(term.predicted, term.unit), interval_words(term), with_unit(term.measured, term.unit),
            f"{term.distance:+.1%}" if term.distance is not None else "", term.status, term.why,
        )
        for term in report.terms
    )  # fmt: skip
    yield from _table(Table(("quantity", "predicted", "80 % interval", "measured", "distance", "verdict", "why"), rows))
    if report.findings:
        yield from ("", f"{mark}# Findings of check", "")
        for finding in report.findings:
            yield f"- `{finding['code']}` line {finding['line']}: {_cell(str(finding['message']))}"
    if report.events:
        yield from ("", f"{mark}# Last events", "")
        for event in report.events[-LAST_EVENTS:]:
            yield f"- {when(event.time)} {_cell(event.text)}"


def _table(table: Table) -> Iterator[str]:
    yield "| " + " | ".join(map(_cell, table.header)) + " |"
    yield "|" + " --- |" * len(table.header)
    for row in table.rows:
        yield "| " + " | ".join(map(_cell, row)) + " |"


def _cell(text: str) -> str:
    """One line, in which nothing is markup."""
    return re.sub(r"([\\`*_{}\[\]<>|#!~])", r"\\\1", " ".join(printable(text).split()))
