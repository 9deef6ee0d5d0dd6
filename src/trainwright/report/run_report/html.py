"""A report as one HTML file that needs no network: page, styles, script and data in one. Values are escaped by the
template; data goes through JSON in which no `<` is left, so nothing that a run holds can become markup."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from trainwright import __version__
from trainwright.report.run_report import comparison
from trainwright.report.run_report.happenings import LANES
from trainwright.report.run_report.model import Chart, HeatMap, RunReport, Share, Table, Term
from trainwright.report.run_report.words import interval_words, profile_ranks, profile_tables, when, with_unit

CONTRAST = 1.25  # times the shortest time has the darkest colour at least: ranks that differ by less look alike
PAGE = Path(__file__).with_name("page")
SECTIONS = (
    ("summary", "Summary"), ("terms", "Predicted beside measured"), ("curves", "Curves"), ("shares", "Step"),
    ("profile", "Profile"), ("ranks", "Ranks"), ("timeline", "Timeline"), ("data", "Data"), ("benches", "Benchmarks"),
    ("cluster", "Cluster"), ("findings", "Findings"), ("versions", "Versions"), ("spec", "Spec"),
)  # fmt: skip


@dataclass(frozen=True)
class View:
    """One run as the template wants it: formatted where the model holds numbers."""

    report: RunReport
    prefix: str  # of ids, so that several runs share a page

    @property
    def terms(self) -> list[dict[str, str]]:
        return [_term(term) for term in self.report.terms]

    @property
    def bars(self) -> list[dict[str, Any]]:
        predicted = [share for share in self.report.shares if share.predicted_s and share.measured_s is None]
        measured = [share for share in self.report.shares if share.measured_s is not None]
        bars = [_bar("Predicted", predicted, "predicted_s"), _bar("Measured", measured, "measured_s")]
        return [bar for bar in bars if bar["parts"]]

    @property
    def share_table(self) -> Table:
        rows = tuple(
            (share.name, with_unit(share.predicted_s, "s"), with_unit(share.measured_s, "s"))
            for share in self.report.shares
        )
        return Table(("part of a step", "predicted", "measured"), rows)

    @property
    def rank_table(self) -> Table:
        header = ("rank", "host", "step, median", "data wait", "fixed work", "longest step", "at step")
        rows = tuple(
            (
                str(row.rank), row.host, with_unit(row.step_s, "s"), with_unit(row.data_s, "s"),
                with_unit(row.compute_s, "s"), with_unit(row.worst_s, "s"), f"{row.worst_at:,}",
            )
            for row in self.report.rank_rows
        )  # fmt: skip
        return Table(header, rows)

    @property
    def event_table(self) -> Table:
        rows = tuple((when(event.time), event.lane, event.text) for event in self.report.events)
        return Table(("time (UTC)", "kind", "what"), rows)

    @property
    def profile(self) -> list[Table]:
        return profile_tables(self.report.profile)

    @property
    def picture(self) -> str:
        """As an image of its own: neither its styles nor its text touch the page."""
        svg = self.report.picture
        return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}" if svg else ""


def page(reports: Sequence[RunReport]) -> str:
    """The HTML of one run, or of several side by side."""
    views = [View(report, f"r{number}-" if len(reports) > 1 else "") for number, report in enumerate(reports)]
    compared = comparison.compare(reports) if len(reports) > 1 else None
    charts: dict[str, Any] = {}
    for view in views:
        charts |= _charts(view)
    for chart in compared.all_charts if compared else ():
        charts[chart.id] = _chart(chart)
    first = reports[0]
    title = first.name if len(reports) == 1 else f"{len(reports)} runs side by side"
    script = _asset("page.js")
    template = _environment().get_template("page.html.j2")
    return template.render(
        title=title, subtitle=_subtitle(reports), views=views, compared=compared,
        sections=_sections(reports), version=__version__,
        written=time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()), css=_asset("page.css"),
        uplot_css=_asset("uPlot.min.css"), uplot=_asset("uPlot.iife.min.js"), script=script,
        script_hashes=" ".join(csp_hash(text) for text in (_asset("uPlot.iife.min.js"), script)),
        data=_json({"charts": charts}),
    )  # fmt: skip


def _subtitle(reports: Sequence[RunReport]) -> str:
    if len(reports) > 1:
        return ", ".join(report.name for report in reports)
    report = reports[0]
    began = f", started {when(report.began)} UTC" if report.began else ""
    trainer = f", logged by {report.framework}" if report.framework else ""
    return f"{report.state} on {report.cluster or 'an unknown cluster'}{began}{trainer}"


def _sections(reports: Sequence[RunReport]) -> list[tuple[str, str]]:
    if len(reports) > 1:
        runs = [(f"r{number}-run", report.name) for number, report in enumerate(reports)]
        return [("compared", "Side by side"), *runs]
    report = reports[0]
    has = {
        "curves": report.charts, "shares": report.shares, "profile": profile_ranks(report.profile),
        "ranks": report.rank_rows, "timeline": report.events, "data": report.data, "benches": report.benches,
        "cluster": report.picture or report.price, "spec": report.spec,
    }  # fmt: skip
    return [(name, title) for name, title in SECTIONS if has.get(name, True)]


def _term(term: Term) -> dict[str, str]:
    return {
        "name": term.name,
        "predicted": with_unit(term.predicted, term.unit),
        "interval": interval_words(term),
        "measured": with_unit(term.measured, term.unit),
        "distance": f"{term.distance:+.1%}" if term.distance is not None else "",
        "status": term.status,
        "why": term.why,
    }


def _bar(title: str, shares: Sequence[Share], field: str) -> dict[str, Any]:
    seconds = [(share.name, float(getattr(share, field) or 0.0)) for share in shares]
    total = sum(value for _, value in seconds)
    parts = [
        {
            "colour": number % 8,
            "percent": round(100 * value / total, 3),
            "words": f"{name} {with_unit(value, 's')} ({value / total:.1%})",
        }
        for number, (name, value) in enumerate(seconds)
        if total and value / total > 0.0005
    ]
    words = ", ".join(str(part["words"]) for part in parts)
    return {"title": f"{title}: {with_unit(total, 's')} per step", "parts": parts, "words": words}


def _charts(view: View) -> dict[str, Any]:
    report, prefix = view.report, view.prefix
    made = {f"{prefix}{chart.id}": _chart(chart) for chart in report.charts}
    made |= {f"{prefix}heat-{heat.id}": _heat(heat) for heat in report.heat}
    made |= {
        f"{prefix}bench-{number}": _chart(bench.chart)
        for number, bench in enumerate(report.benches)
        if bench.chart is not None
    }
    if report.events:
        made[f"{prefix}timeline"] = _timeline(report)
    return made


def _chart(chart: Chart) -> dict[str, Any]:
    return {
        "unit": chart.unit, "x_label": chart.x_label, "band": chart.band, "log": chart.log,
        "y_label": f"{chart.title.lower()}{f', {chart.unit}' if chart.unit else ''}",
        "data": [chart.x, *(line.values for line in chart.lines)],
        "series": [{"label": line.label, "dashed": line.dashed} for line in chart.lines],
    }  # fmt: skip


def _heat(heat: HeatMap) -> dict[str, Any]:
    """Cells as one byte each between the smallest and the largest: a colour has no more steps."""
    low = min(heat.cells)
    high = max(max(heat.cells), CONTRAST * low)
    scale = 255 / (high - low) if high > low else 0.0
    cells = bytes(min(255, round((value - low) * scale)) for value in heat.cells)
    gap = heat.steps[1] - heat.steps[0] if len(heat.steps) > 1 else heat.steps[0]
    return {
        "unit": heat.unit, "x_label": "step", "y_label": "rank", "ranks": heat.ranks, "low": low, "high": high,
        "edge": heat.steps[0] - gap, "cells": base64.b64encode(cells).decode(),
        "data": [heat.steps, [0] * len(heat.steps)], "series": [{"label": "rank"}],
    }  # fmt: skip


def _timeline(report: RunReport) -> dict[str, Any]:
    """A lane per kind of event, with the one that matters most at the top."""
    lanes = [lane for lane in reversed(LANES) if any(event.lane == lane for event in report.events)]
    events = report.events
    rows = [[at if event.lane == lane else None for event in events] for at, lane in enumerate(lanes)]
    return {
        "unit": "", "x_label": "time", "time": True, "lanes": lanes, "texts": [event.text for event in events],
        "data": [[event.time for event in events], *rows], "series": [{"label": lane} for lane in lanes],
    }  # fmt: skip


def _json(value: Any) -> str:
    """JSON for a data block: no `<`, `>` or `&`, so that it can neither close the block nor open another."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def csp_hash(script: str) -> str:
    """What a Content-Security-Policy allows this one script by."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


@cache
def _asset(name: str) -> str:
    return (PAGE / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(PAGE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
