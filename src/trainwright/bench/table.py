"""Prints collective measurements in the columns of nccl-tests, so that scripts that read those read these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainwright.bench.sweep import Row, Timing

HEADER = """\
#{:>60}{:>33}
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       """


def opening(op: str, facts: dict[str, Any]) -> str:
    """The lines above the figures: what runs where."""
    hosts = len(facts["hosts"])
    where = f"{hosts} host{'s' if hosts > 1 else ''}"
    lines = [f"# Collective test: {op}", f"# {facts['ranks']} ranks on {where}, {facts['backend']}"]
    if facts["split"]:
        lines.append(f"# split {facts['split']}: {facts['groups']} communicators of {facts['group_size']} ranks")
    return "\n".join([*lines, "#", HEADER.format("out-of-place", "in-place")])


def line(row: Row) -> str:
    head = f"{row.size:>12}  {row.count:>12}  {row.dtype:>8}  {row.redop:>6}  {row.root:>6}"
    return head + _cells(row.out_of_place) + _cells(row.in_place)


def _cells(form: Timing | None) -> str:
    if form is None:
        return f" {'N/A':>8} {'N/A':>7} {'N/A':>7} {'N/A':>6}"
    return f" {_time(form.seconds * 1e6):>8} {form.algbw:>7.2f} {form.busbw:>7.2f} {form.wrong:>6}"


def _time(micro: float) -> str:
    """Four figures, as nccl-tests writes a time."""
    return f"{micro:.2f}" if micro < 100 else f"{micro:.1f}" if micro < 1000 else f"{micro:.0f}"


def closing(rows: Sequence[Row]) -> str:
    wrong, mean = wrong_total(rows), mean_busbw(rows)
    return f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}\n# Avg bus bandwidth    : {mean:g}\n#"


def forms(row: Row) -> list[Timing]:
    return [form for form in (row.out_of_place, row.in_place) if form]


def wrong_total(rows: Sequence[Row]) -> int:
    return sum(form.wrong for row in rows for form in forms(row))


def mean_busbw(rows: Sequence[Row]) -> float:
    """As nccl-tests does it: over every size and both forms."""
    rates = [form.busbw for row in rows for form in forms(row)]
    return sum(rates) / len(rates) if rates else 0.0


def flat(row: Row) -> dict[str, Any]:
    """One row for CSV and JSON; times in microseconds, rates in GB/s (1e9 bytes)."""
    facts: dict[str, Any] = {
        "op": row.op, "size": row.size, "count": row.count, "type": row.dtype, "redop": row.redop, "root": row.root,
    }  # fmt: skip
    for prefix, form in (("out", row.out_of_place), ("in", row.in_place)):
        facts[f"{prefix}_time_us"] = round(form.seconds * 1e6, 3) if form else None
        facts[f"{prefix}_algbw"] = round(form.algbw, 4) if form else None
        facts[f"{prefix}_busbw"] = round(form.busbw, 4) if form else None
        facts[f"{prefix}_wrong"] = form.wrong if form else None
    return facts
