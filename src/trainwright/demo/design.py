"""The steps that need no cluster: a spec with mistakes is checked and fixed, its cluster is planned and priced."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from trainwright.check.engine import Result, check
from trainwright.check.fixes import fix_files
from trainwright.demo.story import Context, Failed, Skipped

HERE = Path(__file__).parent
PLANTED = ("CAP004", "STO001", "JOB005")
# What a person would write after reading the findings that have no mechanical fix.
BY_HAND = {"placement: true": "placement: false", "5TiB": "4.8TiB", "warmup: 24_000": "warmup: 25"}


def find_and_fix(context: Context) -> dict[str, Any]:
    """Check a spec with three planted mistakes, fix them, check again."""
    path = context.folder / "cluster.yaml"
    shutil.copy(HERE / "mistakes.yaml", path)
    first = check([str(path)])
    for finding in first.findings:
        context.say(f"line {finding.span.line:>2}  {finding.level:7} {finding.code}  {finding.message}")
        context.say(f"                        fix: {finding.fix}")
    fixed = sum(one.count for one in fix_files(first.findings))
    text = path.read_text(encoding="utf-8")
    for wrong, right in BY_HAND.items():
        text = text.replace(wrong, right)
    path.write_text(text, encoding="utf-8")
    again = check([str(path)])
    _expect(first, again)
    by = f" ({fixed} by --fix)" if fixed else ""
    context.say(f"applied the fixes{by}, checked again: no mistakes")
    return {"found": [finding.code for finding in first.findings], "left": len(again.findings)}


def _expect(first: Result, again: Result) -> None:
    codes = [finding.code for finding in first.findings]
    if set(codes) != set(PLANTED):
        raise Failed(f"planted {', '.join(PLANTED)}, found {', '.join(codes) or 'nothing'}")
    if again.findings:
        raise Failed(f"the fixed spec still has {', '.join(f.code for f in again.findings)}")


def predict_here(context: Context) -> dict[str, Any]:
    """Predict the demo's job on this machine, from a probe of a second or two, before it runs."""
    from trainwright.jobs.resolve import resolve_job
    from trainwright.predict.job import predict_job
    from trainwright.spec.load import load

    prediction = predict_job(resolve_job(load(HERE / "local.yaml"), "pretrain").require())
    context.results["predicted"] = prediction
    low, high = prediction.low * prediction.gpus, prediction.high * prediction.gpus
    interval = f"({low:,.0f} to {high:,.0f})"
    context.say(f"{prediction.step_time_s * 1e3:,.0f} ms per step, {prediction.tokens_per_s:,.0f} tokens/s {interval}")
    context.say(f"{prediction.memory_gib * 1024:,.0f} MiB for the model and its optimizer on each rank")
    return {
        "step_time_s": prediction.step_time_s,
        "tokens_per_s": prediction.tokens_per_s,
        "memory_gib": prediction.memory_gib,
    }


def plan_on_aws(context: Context) -> dict[str, Any]:
    """Plan the fixed spec for four p5.48xlarge: every file that would be deployed, and its price."""
    from trainwright.platforms.plan.tree import make_plan
    from trainwright.spec.load import load

    path = context.folder / "cluster.yaml"
    if not path.exists():
        raise Skipped("there is no fixed spec to plan")
    plan = make_plan(load(path))
    hourly, idle = plan.bill.usd_hour_full, plan.bill.usd_hour_idle
    dates = sorted({line.date for line in plan.bill.lines if line.date})
    context.say(f"{len(plan.files)} files: {', '.join(sorted(plan.files)[:4])} …")
    context.say(f"4 x p5.48xlarge with Lustre and head node: ${hourly:,.2f} an hour, prices of {dates[0]}")
    context.say("nothing was deployed; `trainwright plan` writes these files for you to read")
    return {"files": len(plan.files), "usd_hour": round(hourly, 2), "usd_hour_idle": round(idle, 2), "prices": dates}
