"""What a report holds, as plain data: the renderers read nothing else, and `--json` prints exactly this."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["pass", "warn", "fail", "skip", "error"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One answer of the summary: a status and the sentence that explains it."""

    what: str
    status: Status
    why: str


@dataclass(frozen=True, slots=True)
class Term:
    """One quantity, predicted beside measured. `distance` is measured / predicted - 1."""

    name: str
    unit: str
    predicted: float | None
    measured: float | None
    low: float | None = None  # of the 80 % interval, where the prediction has one
    high: float | None = None
    distance: float | None = None
    status: Status = "skip"
    why: str = ""  # what explains the distance, or why there is nothing to compare


@dataclass(frozen=True, slots=True)
class Line:
    """One series of a chart; `values` has a number or None for each x."""

    label: str
    values: tuple[float | None, ...]
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """Series over steps. Of a long run every bucket keeps its lowest and its highest value."""

    id: str
    title: str
    unit: str
    x_label: str
    x: tuple[float, ...]
    lines: tuple[Line, ...]
    points: int  # before buckets were made
    band: tuple[float, float] | None = None  # the predicted interval
    log: bool = False


@dataclass(frozen=True, slots=True)
class HeatMap:
    """A value per rank and step. `cells` holds the largest value of each bucket, by column, then by rank."""

    id: str
    title: str
    unit: str
    steps: tuple[int, ...]  # the last step of each column
    ranks: int
    cells: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class RankRow:
    """One rank over all measurements."""

    rank: int
    host: str
    step_s: float  # medians
    data_s: float
    compute_s: float
    worst_s: float  # the longest step
    worst_at: int


@dataclass(frozen=True, slots=True)
class Event:
    """One line of events.jsonl in words; `lane` groups events of one kind in the timeline."""

    time: float
    lane: str
    text: str
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """A part of the step: predicted and measured seconds."""

    name: str
    predicted_s: float | None
    measured_s: float | None


@dataclass(frozen=True, slots=True)
class Table:
    """Facts of a section: `rows` of text under `header`."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Bench:
    """One benchmark: its verdicts, and measured beside floor and ceiling."""

    title: str
    verdicts: tuple[Verdict, ...]
    table: Table
    chart: Chart | None = None


@dataclass(frozen=True)
class RunReport:
    """Everything about one run. What is not known is None or empty, never a guess."""

    name: str
    job: str
    state: str
    reason: str
    framework: str
    cluster: str
    nodes: int
    ranks: int
    step: int
    steps: int | None
    began: float | None
    ended: float | None
    facts: tuple[tuple[str, str], ...]  # the summary's numbers, in words
    verdicts: tuple[Verdict, ...]
    terms: tuple[Term, ...]
    charts: tuple[Chart, ...]
    shares: tuple[Share, ...]
    heat: tuple[HeatMap, ...]
    rank_rows: tuple[RankRow, ...]
    stragglers: tuple[str, ...]
    events: tuple[Event, ...]
    data: tuple[tuple[str, str], ...]
    findings: tuple[dict[str, str | int], ...]
    benches: tuple[Bench, ...]
    price: Table | None
    usd_hour: float | None
    usd_so_far: float | None
    picture: str  # the cluster as SVG; empty where there is none to draw
    versions: Table
    environment: Table
    values: Table  # every value of the job with its origin
    spec: str
    profile: dict[str, Any] = field(default_factory=dict)

    @property
    def worst(self) -> Status:
        """The worst verdict: a required answer that is missing is not green."""
        order: tuple[Status, ...] = ("fail", "error", "warn", "skip", "pass")
        statuses = {verdict.status for verdict in self.verdicts}
        return next((status for status in order if status in statuses), "skip")

    def term(self, name: str) -> Term | None:
        return next((term for term in self.terms if term.name == name), None)
