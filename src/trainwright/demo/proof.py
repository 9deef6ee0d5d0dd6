"""The steps that prove the machine before the training, and tell about it afterwards: health of every node, collectives
and loader with their verdicts, and the report."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from trainwright.demo.story import Context, Failed, Skipped

LOW_SHARE = 0.5  # of the rate that the prediction counts on: below it the exchange of gradients takes twice the time
COPIED = 2**20  # bytes, as large as the largest message
COPIES = 2  # of every byte that goes through loopback: into the kernel and out of it


def check_health(context: Context) -> dict[str, Any]:
    """Check every node of the cluster through Slurm."""
    from trainwright.health.cluster import show, survey
    from trainwright.platforms.local import state
    from trainwright.platforms.local.platform import scheduler_on

    if "cluster" not in context.results:
        raise Skipped("there is no cluster to check")
    scheduler = scheduler_on(state.require(context.results["cluster"]))
    entries = survey(scheduler.shell.run, scheduler.python, ["--suite", "quick"])
    reports = [entry.report for entry in entries if entry.report]
    verdicts = {entry.node: entry.report.verdict if entry.report else "none" for entry in entries}
    if len(reports) < len(entries) or not all(report.usable for report in reports):
        raise Failed(f"not every node is fit for work\n{show(entries)}")
    checks = sum(result.status == "pass" for report in reports for result in report.results)
    seconds = max(report.seconds for report in reports)
    context.say(
        f"{len(reports)} nodes: {', '.join(sorted(set(verdicts.values())))}; {checks} checks in {seconds:.1f} s"
    )
    return {"verdicts": verdicts, "checks": checks}


def measure_collectives(context: Context) -> dict[str, Any]:
    """All-reduce between two processes: correct to the last element, and beside what memory can copy."""
    from trainwright.predict.local import GLOO_RATE

    path = context.folder / "collectives.json"
    _node_side(["trainwright.bench", "collectives", "--processes", "2", "--high", "1M", "-o", str(path)])
    result = json.loads(path.read_text(encoding="utf-8"))
    wrong = sum(row[key] or 0 for row in result["rows"] for key in ("out_wrong", "in_wrong"))
    best = max(result["rows"], key=lambda row: row["size"])
    rate, ceiling, assumed = max(best["out_busbw"], best["in_busbw"]), copy_rate() / COPIES, GLOO_RATE / 1e9
    words = f"{rate:.2f} GB/s over loopback; the prediction counts on {assumed:.1f}, memory allows {ceiling:.1f}"
    status = "fail" if wrong else "warn" if rate < LOW_SHARE * assumed or rate > ceiling else "pass"
    point = {"size": best["size"], "busbw": rate, "ceiling": ceiling, "floor": 0.0, "predicted": assumed}
    result["verdicts"] = [{"op": best["op"], "status": status, "reason": words, "points": [point]}]
    correct = {"op": "correctness", "status": "fail" if wrong else "pass", "reason": f"{wrong} wrong elements"}
    result["verdicts"].append(correct)
    return _keep(context, result, path, f"all-reduce {status}: {words}; {wrong} wrong elements")


def measure_loader(context: Context) -> dict[str, Any]:
    """The data loader alone: it must deliver more than the training takes."""
    from trainwright.train.data.source import stdlib_folder

    path = context.folder / "loader.json"
    words = ["--seconds", "0.5", "--threads", "1", "--sequence", "128", "--batch", "8", "-o", str(path)]
    _node_side(["trainwright.train", "bench", "loader", str(stdlib_folder()), *words])
    result = json.loads(path.read_text(encoding="utf-8"))
    rate, predicted = float(result["best"]["per_s"]), context.results.get("predicted")
    need = predicted.tokens_per_s if predicted else 0.0
    status = "pass" if rate > 2 * need else "warn" if rate > need else "fail"
    reason = f"{rate:,.0f} tokens/s from one thread; the training is predicted to take {need:,.0f}"
    result["verdicts"] = [{"op": "loader", "status": status, "reason": reason}]
    return _keep(context, result, path, f"loader {status}: {reason}")


def _keep(context: Context, result: dict[str, Any], path: Path, words: str) -> dict[str, Any]:
    """The result with its verdicts, for the report."""
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    context.results.setdefault("benches", []).append(path)
    context.say(words)
    failed = [verdict for verdict in result["verdicts"] if verdict["status"] == "fail"]
    if failed:
        raise Failed("; ".join(str(verdict["reason"]) for verdict in failed))
    return {"verdicts": {str(verdict["op"]): verdict["status"] for verdict in result["verdicts"]}}


def _node_side(words: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"{' '.join(words[:3])} ended with status {done.returncode}: {done.stderr.strip()[-400:]}")


def copy_rate() -> float:
    """GB/s at which this machine copies memory, the best of many: other processes take part of the time."""
    source, target, best = bytearray(COPIED), memoryview(bytearray(COPIED)), 0.0
    for _ in range(200):
        began = time.perf_counter()
        target[:] = source
        best = max(best, COPIED / (time.perf_counter() - began) / 1e9)
    return best


def write_report(context: Context) -> dict[str, Any]:
    """One page about the run that lost a node, and one with both runs side by side."""
    from trainwright.report.run_report.collect import collect
    from trainwright.report.run_report.html import page

    names = [str(context.results[name]) for name in ("faulted", "undisturbed") if name in context.results]
    if not names:
        raise Skipped("there is no run to report")
    reports = [collect(name, context.results.get("benches", ())) for name in names]
    path = context.folder / "report.html"
    path.write_text(page(reports[:1]), encoding="utf-8")
    context.results["report"] = path
    context.say(f"{path} ({path.stat().st_size / 1e3:,.0f} kB, one file, no network)")
    if len(reports) > 1:
        both = context.folder / "comparison.html"
        both.write_text(page(reports), encoding="utf-8")
        context.say(f"{both}: both runs side by side")
    verdicts = {verdict.what: verdict.status for verdict in reports[0].verdicts}
    context.say(", ".join(f"{what} {status}" for what, status in verdicts.items()))
    return {"report": str(path), "verdicts": verdicts}
