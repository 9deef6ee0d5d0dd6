"""`bench collectives`: measures collectives over torch.distributed, checks every result, writes table, CSV and JSON."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainwright.bench.machine import result_header
from trainwright.bench.results import csv_text, parse_size, write_result
from trainwright.errors import UserError
from trainwright.files import write_text

NAMES = (
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "send_recv", "gather", "scatter",
)  # fmt: skip
TYPES = ("float", "half", "bfloat16", "double", "int8", "uint8", "int32", "int64")
FORMS = {"both": ("out-of-place", "in-place"), "in-place": ("in-place",), "out-of-place": ("out-of-place",)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--op", default="all_reduce", help=f"`all`, or some of {', '.join(NAMES)}, separated by commas")
    add("-b", "--low", type=size, default="1K", metavar="SIZE", help="smallest message (default: 1K)")
    add("-e", "--high", type=size, default="64M", metavar="SIZE", help="largest message (default: 64M)")
    add("-f", "--factor", type=int, default=2, metavar="N", help="each size is N times the one before (default: 2)")
    add("-n", "--iterations", type=int, default=20, metavar="N", help="timed calls per size (default: 20)")
    add("-w", "--warmup", type=int, default=5, metavar="N", help="calls before them (default: 5)")
    add("-d", "--dtype", choices=TYPES, default="float", help="element type (default: float)")
    add("--form", choices=tuple(FORMS), default="both", help="measure in place, out of place, or both (default)")
    add("--no-check", action="store_true", help="do not check the results")
    add("--seconds", type=float, default=0.0, metavar="S", help="end a timed batch after about S seconds")
    add("--split", default="", metavar="RULE", help="communicators by rank: 'AND 0x7', 'MOD 8', 'DIV 8', 'OR 0x7'")
    add("--backend", choices=("nccl", "gloo"), default="", help="default: NCCL with GPUs, else gloo")
    add("--processes", type=int, default=0, metavar="N", help="start N ranks here (default: one per GPU, else 2)")
    add("--find-slow", action="store_true", help="search for the slow node or link instead, in O(log nodes) rounds")
    add("--slow-below", type=float, default=0.5, metavar="X", help="slow: below X times the usual pair (default: 0.5)")
    add("--csv", type=Path, metavar="FILE", help="write the rows as CSV")
    add("-o", "--output", type=Path, metavar="FILE", help="write the result as JSON")
    add("--json", action="store_true", help="print the result as JSON instead of the table")


def size(text: str) -> int:
    try:
        return parse_size(text)
    except UserError as error:
        raise argparse.ArgumentTypeError(error.what) from error


def chosen_operations(text: str) -> list[str]:
    names = list(NAMES) if text == "all" else [word.strip().replace("-", "_") for word in text.split(",")]
    for name in names:
        if name not in NAMES:
            from trainwright.errors import did_you_mean

            raise UserError(f"no collective {name!r}", fix=did_you_mean(name, NAMES) or f"one of {', '.join(NAMES)}")
    return names


def run(args: argparse.Namespace, words: list[str]) -> int:
    """Measure; as one of the ranks, or by starting ranks here. 0: all results right (or nothing slow), else 1."""
    names = chosen_operations(args.op)
    if args.low > args.high or args.factor < 2 or args.iterations < 1 or args.warmup < 0:
        raise UserError("no size to measure", fix="--low at most --high, --factor from 2, --iterations from 1")
    from trainwright.bench import ranks

    if not ranks.launched(os.environ):
        return ranks.start_local(words, args.processes or default_processes())
    from trainwright.bench.transport import start_capture

    with tempfile.TemporaryDirectory() as folder:
        start_capture(Path(folder))  # each rank's own; read before the ranks part
        with ranks.joined(args.backend) as world:
            if args.find_slow:
                return _find_slow(args, world)
            return _measure(args, names, world, Path(folder))


def default_processes() -> int:
    import torch

    return max(2, torch.cuda.device_count())


def _find_slow(args: argparse.Namespace, world: Any) -> int:
    from trainwright.bench.slow_links import search_world

    report = search_world(world, args.high, args.slow_below)
    if world.first:
        result = {**result_header("slow-links"), **report}
        write_result(result, args.output)
        print(json.dumps(result) if args.json else report["text"])
    return 1 if report["slow_nodes"] or report["slow_links"] else 0


def _measure(args: argparse.Namespace, names: list[str], world: Any, nccl_logs: Path) -> int:
    from trainwright.bench import ranks
    from trainwright.bench.operations import OPERATIONS
    from trainwright.bench.sweep import Row, SweepOptions, sweep
    from trainwright.bench.table import closing, flat, line, opening, wrong_total

    split = ranks.split_of(os.environ, args.split)
    group = ranks.make_group(world, split)
    options = SweepOptions(
        args.low, args.high, args.factor, args.iterations, args.warmup, args.dtype, not args.no_check,
        FORMS[args.form], args.seconds,
    )  # fmt: skip
    facts = world_facts(world, group, split)
    shown = sys.stderr if args.json else sys.stdout
    rows: list[Row] = []
    for name in names:
        say = print if world.first else (lambda *a, **k: None)
        say(opening(name, facts), file=shown, flush=True)
        own = options if OPERATIONS[name].in_place else replace(options, forms=("out-of-place",))
        measured = []
        for row in sweep(OPERATIONS[name], own, group, world.device):
            measured.append(row)
            say(line(row), file=shown, flush=True)
        say(closing(measured), file=shown, flush=True)
        rows += measured
    transport = _transport(world, nccl_logs)
    if world.first:
        flat_rows = [flat(row) for row in rows]
        result = {
            **result_header("collectives"),
            **facts,
            "rows": flat_rows,
            "by_group": group_rates(rows),
            **transport,
        }
        if args.csv:
            write_text(args.csv, csv_text(flat_rows))
        write_result(result, args.output)
        if args.json:
            print(json.dumps(result))
    return 1 if wrong_total(rows) else 0


def _transport(world: Any, nccl_logs: Path) -> dict[str, Any]:
    """What carried the traffic of all ranks, as NCCL's logs say; nothing with gloo."""
    if world.backend != "nccl":
        return {}
    import dataclasses

    import torch.distributed as dist

    from trainwright.bench.transport import captured, read_log

    logs: list[str] = [""] * world.size
    dist.all_gather_object(logs, captured(nccl_logs))
    return {"transport": dataclasses.asdict(read_log("\n".join(logs)))}


def world_facts(world: Any, group: Any, split: str) -> dict[str, Any]:
    """Who took part, for the heading and the result file."""
    return {
        "backend": world.backend,
        "ranks": world.size,
        "nodes": len(world.nodes),
        "hosts": list(dict.fromkeys(world.hosts)),
        "split": split,
        "groups": world.size // group.size,
        "group_size": group.size,
        "group_nodes": len({world.hosts[rank] for rank in group.ranks}),
    }


def group_rates(rows: list[Any]) -> list[dict[str, Any]]:
    """With a split: each communicator's bus bandwidth, named by its first rank, to see a slow rail."""
    return [{"op": row.op, "size": row.size, "busbw": row.groups} for row in rows if row.groups]
