"""Several runs side by side: one table, the same curves in one chart, what differs, and how they scale with nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainwright.report.run_report.model import Chart, Line, RunReport, Table
from trainwright.report.run_report.words import with_unit
from trainwright.report.scaling import Speed, facts

SHOWN = ("loss", "speed", "norm", "step")


@dataclass(frozen=True)
class Comparison:
    """What a page of several runs begins with."""

    table: Table
    charts: tuple[Chart, ...]
    differences: Table
    scaling: Chart | None
    scaling_table: Table

    @property
    def all_charts(self) -> tuple[Chart, ...]:
        return (*self.charts, *((self.scaling,) if self.scaling else ()))


def compare(reports: Sequence[RunReport]) -> Comparison:
    scaling, table = _scaling(reports)
    charts = tuple(chart for name in SHOWN if (chart := _joined(name, reports)) is not None)
    return Comparison(_table(reports), charts, _differences(reports), scaling, table)


def _table(reports: Sequence[RunReport]) -> Table:
    """A row per fact and per quantity; measured, with its distance from the prediction."""
    rows: list[tuple[str, ...]] = [("state", *(report.state for report in reports))]
    names = dict.fromkeys(name for report in reports for name, _ in report.facts)
    rows += [(name, *(dict(report.facts).get(name, "") for report in reports)) for name in names]
    terms = dict.fromkeys(term.name for report in reports for term in report.terms)
    rows += [(f"{name}, measured", *(_measured(report, name) for report in reports)) for name in terms]
    return Table(("quantity", *(report.name for report in reports)), tuple(row for row in rows if any(row[1:])))


def _measured(report: RunReport, name: str) -> str:
    term = report.term(name)
    if term is None or term.measured is None:
        return ""
    off = f" ({term.distance:+.0%} from the prediction)" if term.distance is not None else ""
    return with_unit(term.measured, term.unit) + off


def _joined(name: str, reports: Sequence[RunReport]) -> Chart | None:
    """One chart over the steps of all runs; a run has None where it did no such step."""
    mine = [(report, next((c for c in report.charts if c.id == name), None)) for report in reports]
    known = [(report, chart) for report, chart in mine if chart is not None]
    if len(known) < 2:
        return None
    x = sorted({step for _, chart in known for step in chart.x})
    lines = []
    for report, chart in known:
        values = dict(zip(chart.x, chart.lines[0].values, strict=True))
        lines.append(Line(report.name, tuple(values.get(step) for step in x)))
    first = known[0][1]
    points = sum(chart.points for _, chart in known)
    return Chart(f"all-{name}", first.title, first.unit, first.x_label, tuple(x), tuple(lines), points)


def _differences(reports: Sequence[RunReport]) -> Table:
    """Values of the job, variables and versions that are not the same in all runs."""
    rows = []
    for what in ("values", "environment", "versions"):
        each = [{row[0]: row[1] for row in getattr(report, what).rows} for report in reports]
        for name in sorted(set().union(*each)):
            values = tuple(one.get(name, "") for one in each)
            if len(set(values)) > 1:
                rows.append((name, *values))
    return Table(("value", *(report.name for report in reports)), tuple(rows))


def _scaling(reports: Sequence[RunReport]) -> tuple[Chart | None, Table]:
    """The curve, where the runs differ by nodes and each has a speed."""
    speeds = []
    for report in reports:
        term = report.term("tokens/s")
        if term is not None and term.measured:
            speeds.append(Speed(report.nodes, term.measured, term.predicted))
    speeds.sort(key=lambda speed: speed.nodes)
    header = ("nodes", "tokens/s", "efficiency", "predicted", "distance")
    if len({speed.nodes for speed in speeds}) < 2:
        return None, Table(header, ())
    rows = tuple(
        (
            str(row["nodes"]), f"{row['tokens_per_s']:,.0f}", f"{row['efficiency']:.0%}",
            f"{row['predicted']:,.0f}" if row["predicted"] else "",
            f"{row['off']:+.0%}" if row["off"] is not None else "",
        )
        for row in facts(speeds)
    )  # fmt: skip
    least = speeds[0]
    lines = [
        Line("measured", tuple(speed.tokens_per_s for speed in speeds)),
        Line("linear", tuple(least.tokens_per_s / least.nodes * speed.nodes for speed in speeds), dashed=True),
    ]
    if any(speed.predicted for speed in speeds):
        lines.append(Line("predicted", tuple(speed.predicted for speed in speeds), dashed=True))
    nodes = tuple(float(speed.nodes) for speed in speeds)
    chart = Chart("scaling", "Throughput by nodes", "tokens/s", "nodes", nodes, tuple(lines), len(speeds))
    return chart, Table(header, rows)
