"""Reads what nccl-tests and nccom-test print: any rank prefix, any element type, old and new columns."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from trainwright.bench.message import Message
from trainwright.errors import UserError

TYPES = (
    "int8|uint8|int32|uint32|int64|uint64|half|float|double|bfloat16|fp16|fp32|fp64|bf16|fp8|float16|float32|float64|"
    "f8e4m3|f8e5m2|fp8e4m3|fp8e5m2"
)
FIGURES = re.compile(rf"(?<![\w.])(\d{{1,18}})\s+(\d{{1,18}})\s+({TYPES})\b(.*)$")
NUMBER = re.compile(r"^-?\d{1,18}(\.\d+)?(e[+-]?\d\d?)?$", re.IGNORECASE)  # a longer one is no measurement
PROGRAM = re.compile(
    r"\b(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|reduce|send_?recv|gather|scatter|allr|allg|redsct)"
    r"(_perf)?\b"
)
RANK_LINE = re.compile(r"Rank\s+(\d{1,9})\b.*?\bon\s+(\S+)\s+device")
SHORT = {"allr": "all_reduce", "allg": "all_gather", "redsct": "reduce_scatter"}
NCCOM_HEADER = re.compile(r"size\(B\).*busbw")


@dataclass(frozen=True, slots=True)
class Line(Message):
    """One size of a foreign table. Rates in GB/s; None where the program printed N/A or has no such column."""

    out_time_us: float | None
    out_algbw: float | None
    out_busbw: float | None
    out_wrong: int | None
    in_time_us: float | None = None
    in_algbw: float | None = None
    in_busbw: float | None = None
    in_wrong: int | None = None

    @property
    def busbw(self) -> float:
        return max(rate for rate in (self.out_busbw, self.in_busbw, 0.0) if rate is not None)


@dataclass(frozen=True, slots=True)
class Output:
    """A whole log: its rows, who took part where the log says so, and the program's own last lines."""

    program: str
    rows: tuple[Line, ...]
    ranks: int = 0
    hosts: tuple[str, ...] = ()
    average: float | None = None
    wrong: int = 0
    operations: tuple[str, ...] = field(default=())


def operation_name(word: str) -> str:
    """`alltoall_perf`, `allreduce`, `redsct` in the words used here."""
    plain = word.lower().removesuffix("_perf").replace("_", "")
    names = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "send_recv", "gather")
    by_plain = {name.replace("_", ""): name for name in (*names, "scatter")}
    return SHORT.get(plain) or by_plain.get(plain, "")


def read_output(text: str, op: str = "") -> Output:
    """The rows of a log. `op` names the collective where the log does not."""
    current = operation_name(op) if op else ""
    program, average, rows = "nccl-tests", None, []
    ranks: dict[int, str] = {}
    for line in text.splitlines():
        if NCCOM_HEADER.search(line):
            program = "nccom-test"
        if rank := RANK_LINE.search(line):
            ranks[int(rank[1])] = rank[2]
        if mean := re.search(r"Avg bus bandwidth\s*:\s*(\d+(?:\.\d+)?)", line):
            average = float(mean[1])
        figures = FIGURES.search(line)
        if figures:
            rows.append(_row(figures, current))
        elif not op and (named := _named(line)):
            current = named
    if not rows:
        raise UserError("no line of figures in this log", fix="give the output of nccl-tests or nccom-test")
    if not all(row.op for row in rows):
        raise UserError("the log does not say which collective it measured", fix="--op all_reduce, or the one it was")
    wrong = sum(count for row in rows for count in (row.out_wrong, row.in_wrong) if count)
    hosts = tuple(dict.fromkeys(ranks[rank] for rank in sorted(ranks)))
    names = tuple(dict.fromkeys(row.op for row in rows))
    return Output(program, tuple(rows), len(ranks) or inferred_ranks(rows), hosts, average, wrong, names)


def _named(line: str) -> str:
    """The collective a heading or a command line names; prose that only mentions one does not count."""
    match = re.search(r"(\w+)_perf\b", line) or re.search(
        r"(?:Collective test[^:]*:|nccom-test)\s+(?:-\S+\s+\S+\s+)*(\w+)", line
    )
    return operation_name(match[1]) if match else ""


def _row(figures: re.Match[str], op: str) -> Line:
    size, count, dtype, rest = int(figures[1]), int(figures[2]), figures[3], figures[4].split()
    redop = rest.pop(0) if rest and not NUMBER.match(rest[0]) and rest[0] != "N/A" else ""
    # Nine or five figures start with the root; eight, four and three do not.
    root = int(float(rest.pop(0))) if len(rest) in (5, 9) and NUMBER.match(rest[0]) else -1
    cells = [_value(word) for word in rest[:8]]
    cells += [None] * (8 - len(cells))
    wrong = [None if cell is None else int(cell) for cell in (cells[3], cells[7])]
    return Line(
        op, size, count, dtype, redop, root, cells[0], cells[1], cells[2], wrong[0], cells[4], cells[5], cells[6],
        wrong[1],
    )  # fmt: skip


def _value(word: str) -> float | None:
    return float(word) if NUMBER.match(word) else None


def inferred_ranks(rows: list[Line]) -> int:
    """From the largest size's bus factor: 1.875 means 16 ranks of an all-reduce. 0: cannot be told."""
    for row in sorted(rows, key=lambda r: -r.size):
        pairs = ((row.out_algbw, row.out_busbw), (row.in_algbw, row.in_busbw))
        for algbw, busbw in pairs:
            if algbw and busbw and algbw > 1:
                factor = busbw / algbw / (2 if row.op == "all_reduce" else 1)
                if row.op in ("broadcast", "reduce", "send_recv") or not 0.45 < factor < 0.9999:
                    return 0
                return round(1 / (1 - factor))
    return 0
