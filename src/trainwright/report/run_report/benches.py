"""Benchmarks beside their ceilings: collectives, loader, storage, device, checkpoint, and health of the nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainwright.errors import UserError
from trainwright.report.run_report.folder import json_file
from trainwright.report.run_report.model import Bench, Chart, Line, Status, Table, Term, Verdict

HEALTH: dict[str, Status] = {"pass": "pass", "monitor": "warn"}
STATUSES: dict[str, Status] = {
    "pass": "pass", "warn": "warn", "fail": "fail", "skip": "skip", "error": "error",
}  # fmt: skip
MOST_ROWS = 200


def bench_results(folder: Path, files: Sequence[Path]) -> list[dict[str, Any]]:
    """The results in a run folder, and those the user named."""
    from trainwright.bench.results import read_result

    own = [json_file(path) for path in sorted(folder.glob("bench-*.json"))] if folder.is_dir() else []
    named = [read_result(path) for path in files]
    return [result for result in (*own, *named) if "kind" in result]


def bench_of(result: dict[str, Any]) -> Bench:
    return _collectives(result) if result["kind"] == "collectives" and "rows" in result else _plain(result)


def _collectives(result: dict[str, Any]) -> Bench:
    from trainwright.report.bench_files import judge_result, points

    if "verdicts" not in result:
        try:
            judge_result(result, "", 0.0)
        except (UserError, KeyError, ValueError, TypeError):
            result["verdicts"] = []
    judged = {(v["op"], p["size"]): p for v in result["verdicts"] for p in v.get("points", ())}
    rows, measured = [], points(result)
    for point in measured:
        limit = judged.get((point.op, point.size), {})
        rows.append((point.op, f"{point.size:,}", f"{point.busbw:.3g}", _rate(limit, "floor"), _rate(limit, "ceiling")))
    sizes = sorted({point.size for point in measured})
    ops = list(dict.fromkeys(point.op for point in measured))
    by = {(point.op, point.size): point.busbw for point in measured}
    lines = [Line(op, tuple(by.get((op, size)) for size in sizes)) for op in ops]
    for name in ("floor", "ceiling") if len(ops) == 1 and judged else ():
        lines.append(Line(name, tuple(judged.get((ops[0], size), {}).get(name) for size in sizes), dashed=True))
    title = f"Collectives: {result['ranks']} ranks on {result['nodes']} node{'s' if result['nodes'] > 1 else ''}"
    chart = Chart(
        f"bench-{result['ranks']}-{result['nodes']}", title, "GB/s of bus bandwidth", "message size in bytes",
        tuple(map(float, sizes)), tuple(lines), len(sizes), log=True,
    )  # fmt: skip
    header = ("collective", "bytes", "measured GB/s", "floor", "ceiling")
    return Bench(title, _verdicts(result), Table(header, tuple(rows[:MOST_ROWS])), chart)


def _rate(limit: Mapping[str, Any], name: str) -> str:
    return f"{limit[name]:.3g}" if limit.get(name) is not None else "not known"


def _verdicts(result: Mapping[str, Any]) -> tuple[Verdict, ...]:
    given = result.get("verdicts") or ([result["verdict"]] if isinstance(result.get("verdict"), dict) else [])
    return tuple(
        Verdict(
            str(verdict.get("op", result["kind"])),
            STATUSES.get(str(verdict.get("status")), "skip"),
            str(verdict.get("reason", "")),
        )
        for verdict in given
        if isinstance(verdict, dict)
    )


def _plain(result: dict[str, Any]) -> Bench:
    """A result whose rows are shown as they are; one without rows as name and value."""
    rows = result.get("rows") or result.get("settings") or []
    title = str(result["kind"]).capitalize()
    if rows and all(isinstance(row, dict) for row in rows):
        header = tuple(str(key) for key, value in rows[0].items() if not isinstance(value, dict | list))
        cells = tuple(tuple(_cell(row.get(key)) for key in header) for row in rows[:MOST_ROWS])
        return Bench(title, _verdicts(result), Table(header, cells))
    plain = {key: value for key, value in result.items() if not isinstance(value, dict | list) and key != "kind"}
    facts = tuple((str(key).replace("_", " "), _cell(value)) for key, value in plain.items())
    return Bench(title, _verdicts(result), Table(("what", "value"), facts))


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


def bandwidth_terms(results: Sequence[dict[str, Any]]) -> tuple[Term, ...]:
    """The largest size of each judged collective: what its ceiling and published runs promise, beside the measured."""
    terms = []
    for result in results:
        for verdict in result.get("verdicts") or []:
            points = verdict.get("points") or []
            if not points:
                continue
            top = max(points, key=lambda point: point["size"])
            predicted = top.get("predicted")
            terms.append(
                Term(
                    f"bandwidth, {verdict['op']}", "GB/s", predicted, top["busbw"], top["floor"], top["ceiling"],
                    top["busbw"] / predicted - 1 if predicted else None,
                    STATUSES.get(str(verdict.get("status")), "skip"), str(verdict.get("reason", "")),
                )
            )  # fmt: skip
    return tuple(terms)


def health_verdicts(folder: Path) -> tuple[Verdict, ...]:
    """The verdict on each node that `health: true` asked for before the job started."""
    verdicts = []
    for path in sorted((folder / "health").glob("*.json")):
        report = json_file(path)
        verdict = str(report.get("verdict", ""))
        if verdict:
            faults = [r.get("message", "") for r in report.get("results", []) if r.get("status") in ("warn", "fail")]
            why = "; ".join(map(str, faults)) or "every check passed"
            verdicts.append(Verdict(f"node {report.get('node', path.stem)}", HEALTH.get(verdict, "fail"), why))
    return tuple(verdicts)
