"""Brings measurements of collectives, ours and nccl-tests', to one form, judges them and draws them."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

from trainwright.bench.nccl_output import read_output
from trainwright.bench.results import read_result
from trainwright.bench.transport import Traffic, TransportVerdict, judge_transport, read_log
from trainwright.catalog.instances import find_instance
from trainwright.errors import UserError
from trainwright.files import write_text
from trainwright.predict.collective_judge import Point, Verdict, judge_rows
from trainwright.report.collectives import picture, verdict_facts, verdict_text


def collective_result(path: Path, op: str, nodes: int | None, nccl_log: Path | None) -> dict[str, Any]:
    """The result in `path`, whichever program wrote it."""
    text = path.read_text(encoding="utf-8", errors="replace")
    result: dict[str, Any]
    if text.lstrip().startswith("{"):
        result = _own(read_result(path), path)
    else:
        result = _foreign(text, op)
    result["nodes"] = nodes or result["nodes"]
    if not result["nodes"]:
        raise UserError("the log does not say how many nodes took part", where=str(path), fix="--nodes N")
    if not result["ranks"]:
        fix = "give the whole log: nccl-tests prints a line `# Rank ...` for each"
        raise UserError("the log does not say how many ranks took part", where=str(path), fix=fix)
    log = nccl_log.read_text(encoding="utf-8", errors="replace") if nccl_log else text
    traffic = read_log(log)
    if traffic.main:
        result["transport"] = dataclasses.asdict(traffic)
    return result


def _own(result: dict[str, Any], path: Path) -> dict[str, Any]:
    """A result of ours, with every field that the verdict reads."""
    if result["kind"] != "collectives":
        raise UserError(f"a result of {result['kind']!r}, not of collectives", where=str(path))
    try:
        for row in result["rows"]:
            numbers = [
                row["size"],
                *(row[f"{form}_{what}"] or 0 for form in ("out", "in") for what in ("busbw", "wrong")),
            ]
            if not isinstance(row["op"], str) or not all(
                isinstance(n, int | float) and math.isfinite(n) for n in numbers
            ):
                raise TypeError("a row without figures")
        whole = bool(result["rows"]) and all(isinstance(result[name], int) for name in ("ranks", "nodes"))
    except (KeyError, TypeError):
        whole = False
    if not whole:
        fix = "give a file that `bench collectives -o` wrote"
        raise UserError(
            "not a whole result: it lacks ranks, nodes, or rows with their figures", where=str(path), fix=fix
        )
    return result


def _foreign(text: str, op: str) -> dict[str, Any]:
    output = read_output(text, op)
    rows = []
    for line in output.rows:
        row = dataclasses.asdict(line)
        row["type"] = row.pop("dtype")
        rows.append(row)
    return {
        "kind": "collectives", "program": output.program, "ranks": output.ranks, "nodes": len(output.hosts),
        "hosts": list(output.hosts), "wrong": output.wrong, "rows": rows, "machine": {},
    }  # fmt: skip


def points(result: dict[str, Any]) -> list[Point]:
    """Each size with its better form."""
    return [
        Point(
            row["op"], row["size"], max(rate for rate in (row["out_busbw"], row["in_busbw"], 0.0) if rate is not None)
        )
        for row in result["rows"]
    ]


def judge_result(result: dict[str, Any], instance: str, gbps: float) -> list[str]:
    """Put `verdicts` into the result; the same as text. An EC2 machine says its type itself."""
    instance = instance or result.get("machine", {}).get("instance", "")
    groups = result.get("groups", 1)
    ranks = result.get("group_size", result["ranks"]) if groups > 1 else result["ranks"]
    nodes = result.get("group_nodes", result["nodes"]) if groups > 1 else result["nodes"]
    verdicts = judge_rows(points(result), ranks, nodes, instance=instance, gbps=gbps, groups=groups)
    result["verdicts"] = verdict_facts(verdicts)
    texts = [verdict_text(verdict) for verdict in verdicts]
    wrong = result.get("wrong") or sum(r[k] or 0 for r in result["rows"] for k in ("out_wrong", "in_wrong"))
    if wrong:
        result["verdicts"].append({"op": "correctness", "status": "fail", "reason": f"{wrong} wrong elements"})
        texts.append(f"FAIL correctness: {wrong} wrong elements")
    if "transport" in result:
        transport = _transport(result, instance)
        result["verdicts"].append({"op": "transport", **dataclasses.asdict(transport)})
        texts.append("\n  ".join([f"{transport.status.upper()} transport: {transport.reason}", *transport.notes]))
    return texts


def _transport(result: dict[str, Any], instance: str) -> TransportVerdict:
    facts = {**result["transport"], "reasons": tuple(result["transport"]["reasons"])}
    kind = find_instance(instance) if instance else None
    cards, links = (kind.efa_cards, kind.nvlinks) if kind else (0, 0)
    return judge_transport(Traffic(**facts), result["nodes"], cards, nvlink=bool(links))


def draw(result: dict[str, Any], path: Path) -> None:
    """The curves of a judged result as SVG."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for point in points(result):
        curves.setdefault(point.op, []).append((point.size, point.busbw))
    verdicts = [
        Verdict(v["op"], v["status"], v["reason"], tuple(v["derivation"]), tuple(_judged(p) for p in v["points"]))
        for v in result["verdicts"]
        if "points" in v
    ]
    where = f"{result['ranks']} ranks on {result['nodes']} node{'s' if result['nodes'] > 1 else ''}"
    write_text(path, picture(f"{', '.join(curves)}: {where}", curves, verdicts))


def _judged(facts: dict[str, Any]) -> Any:
    from trainwright.predict.collective_judge import Judged

    return Judged(**facts)
