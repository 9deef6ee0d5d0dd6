"""The steps on the real local Slurm: four nodes start, a tiny Llama trains, one node is killed on the way, the job
comes back and ends with the loss of an undisturbed run; then everything that was started is stopped."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainwright.demo.story import Context, Failed, Skipped
from trainwright.platforms.base import platform_named
from trainwright.platforms.local import daemons, life, state
from trainwright.runs import submission
from trainwright.runs.follow import follow
from trainwright.runs.reach import run_state, scheduler_of
from trainwright.runs.request import SubmitRequest, order_for
from trainwright.runs.store import Run
from trainwright.schedulers.base import JobStatus
from trainwright.spec.load import load

SPEC = Path(__file__).with_name("local.yaml")
CLUSTER = "trainwright-demo"
KILL_AT = 22  # steps; checkpoints are every five


def start_cluster(context: Context) -> dict[str, Any]:
    """Start a real Slurm with four nodes."""
    missing = daemons.missing_programs()
    if missing:
        raise Skipped(f"no Slurm here ({', '.join(missing)} not found): {life.INSTALL}")
    shutil.copy(SPEC, context.folder / "local.yaml")
    start = time.perf_counter()
    status = platform_named("local").up(load(SPEC).spec, context.live)
    seconds = time.perf_counter() - start
    where = "each with a network and host name of its own" if state.require(CLUSTER).namespaces else "on loopback ports"
    context.results["cluster"] = CLUSTER
    context.say(f"slurmctld and {len(status.nodes)} slurmd, {where}, idle after {seconds:.1f} s")
    return {"nodes": len(status.nodes), "seconds": round(seconds, 2)}


def train_undisturbed(context: Context) -> dict[str, Any]:
    """Train the tiny Llama over four ranks and keep its final loss."""
    run = _submit(context)
    context.say(f"job {run.job_id}: 4 nodes, 4 ranks, FSDP over gloo, the standard library's source as text")
    context.results["undisturbed"] = run.name
    _finish(context, run)
    losses = _losses(run)
    context.results["loss"] = losses
    context.results["measured"] = _speed(run)
    last = max(losses)
    context.say(f"loss {losses[min(losses)]:.4f} → {losses[last]:.4f} in {last} steps, {_speed(run):,.0f} tokens/s")
    facts = {"steps": last, "loss": losses[last], "tokens_per_s": round(_speed(run), 1)}
    return facts | _beside_prediction(context, _speed(run))


def _beside_prediction(context: Context, measured: float) -> dict[str, Any]:
    """The distance between what was predicted and what was measured, printed and kept."""
    predicted = context.results.get("predicted")
    if predicted is None or not predicted.tokens_per_s:
        return {}
    off = measured / predicted.tokens_per_s - 1
    context.say(f"predicted {predicted.tokens_per_s:,.0f}, measured {measured:,.0f} tokens/s: {off:+.0%}")
    return {"predicted_tokens_per_s": predicted.tokens_per_s, "off_by": round(off, 3)}


def train_through_a_fault(context: Context) -> dict[str, Any]:
    """The same job, with one node killed on the way."""
    expected: dict[int, float] | None = context.results.get("loss")
    run = _submit(context)
    context.results["faulted"] = run.name
    _wait_for_step(context, run, KILL_AT)
    victim = _victim(run)
    record = state.require(CLUSTER)
    killed = time.perf_counter()
    life.power_off(record, victim)
    context.say(f"node {victim} was powered off at step {max(_losses(run), default=0)}")
    _wait_for(lambda: run_state(run).state != "running", 90, "Slurm to notice the dead node")
    context.say(
        f"Slurm requeued the job after {time.perf_counter() - killed:.0f} s; a new node takes the place of {victim}"
    )
    life.power_on(record, victim)
    _finish(context, run)
    losses = _losses(run)
    seconds = time.perf_counter() - killed
    last = max(losses)
    facts = {"killed": victim, "steps": last, "loss": losses[last], "seconds_from_fault_to_end": round(seconds, 1)}
    if expected is None:
        context.say(f"it came back and ended at loss {losses[last]:.4f}; there is no undisturbed run to compare with")
        return facts
    if losses[last] != expected[last]:
        raise Failed(f"it ended with loss {losses[last]!r}, and undisturbed with {expected[last]!r}")
    context.say(f"it resumed from its last checkpoint and ended with loss {losses[last]:.4f}: the same to the last bit")
    return {**facts, "same_as_undisturbed": True}


def stop_cluster(context: Context) -> dict[str, Any]:
    """Stop everything that was started."""
    if CLUSTER not in state.names():
        raise Skipped("no cluster was started")
    stopped = life.down(CLUSTER, force=True)
    context.say(f"{len(stopped)} parts stopped; nothing is left running")
    return {"stopped": len(stopped)}


def _submit(context: Context) -> Run:
    if "cluster" not in context.results:
        raise Skipped("there is no cluster to run on")
    order = order_for(SubmitRequest(spec=str(context.folder / "local.yaml"), job="pretrain"))
    run = submission.submit(order, submission.plan(order))
    predicted = context.results.get("predicted")
    if predicted is not None:  # `submit` predicts instance types alone: here it would have to measure first
        (run.folder / "prediction.json").write_text(json.dumps(predicted.to_dict(), indent=1) + "\n", encoding="utf-8")
    return run


def _finish(context: Context, run: Run) -> JobStatus:
    status = follow(
        run, scheduler_of(run), line=lambda text: None, show=lambda progress, _: context.live(progress.line())
    )
    if status.state != "completed":
        log = (run.folder / "job.log").read_text()[-400:] if (run.folder / "job.log").exists() else ""
        raise Failed(f"the job ended as {status.state} ({status.reason})\n{log}")
    return status


def _wait_for_step(context: Context, run: Run, step: int) -> None:
    def there() -> bool:
        losses = _losses(run)
        if losses:
            context.live(f"step {max(losses)}  loss {losses[max(losses)]:.4f}")
        return max(losses, default=0) >= step or run_state(run).over

    _wait_for(there, 180, f"step {step}")


def _wait_for(ready: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            raise Failed(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.2)


def _victim(run: Run) -> str:
    """The last node of the job: not the one whose batch script is in charge."""
    short = scheduler_of(run).state(run.identity).node_list  # train-[1-4]
    names = daemons.run_on_head(state.require(CLUSTER), ["scontrol", "show", "hostnames", short]).split()
    if not names:
        raise Failed("the job ended before a node could be killed")
    return names[-1]


def _losses(run: Run) -> dict[int, float]:
    """step -> loss; a step that was done again after a fault counts once, with its newest value."""
    return {int(row["step"]): float(row["loss"]) for row in _metrics(run)}


def _metrics(run: Run) -> list[dict[str, Any]]:
    """The whole lines of metrics.jsonl; the last may still be written."""
    path = run.folder / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def _speed(run: Run) -> float:
    """The median of the steps after the first few, which warm up."""
    speeds = sorted(float(row["tokens_per_s"]) for row in _metrics(run)[5:])
    return speeds[len(speeds) // 2] if speeds else 0.0


def clean(folder: Path) -> list[str]:
    """Stop and remove whatever a demo, finished or not, left behind."""
    os.environ["TRAINWRIGHT_HOME"] = str(folder / "home")
    removed = life.down(CLUSTER, force=True) if CLUSTER in state.names() else []
    if folder.exists():
        shutil.rmtree(folder)
        removed.append(str(folder))
    return removed
