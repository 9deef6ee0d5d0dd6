"""Continuing a run that was lost, failed or cancelled: a new run of the same job that starts from the checkpoints of
the old one, on the same or another cluster, queue or number of nodes."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from trainwright.check.gate import require_clean
from trainwright.errors import UserError
from trainwright.jobs.command import with_model
from trainwright.jobs.resolve import resolve_job
from trainwright.runs import submission
from trainwright.runs.reach import run_state, scheduler_for, scheduler_of, shell_of
from trainwright.runs.store import Run
from trainwright.runs.submission import Order, Planned
from trainwright.schedulers.launch import CHECKPOINTS
from trainwright.schedulers.shell import Shell
from trainwright.spec.load import LoadedSpec, flag_node, flag_span, load
from trainwright.spec.source import Node

STEP = re.compile(r"step-0*(\d+)")


class NothingToResume(UserError):
    """The run is there, and there is nothing to continue."""

    status = 1


@dataclass(frozen=True)
class ResumeRequest:
    """What a user typed after `trainwright resume RUN`."""

    spec: str | None = None
    overrides: tuple[str, ...] = ()
    nodes: int | None = None
    queue: str | None = None
    host: str = ""
    venv: str = ""
    args: tuple[str, ...] = ()
    force: bool = False  # the old job has certainly ended, although nobody can say so


@dataclass(frozen=True)
class Resumption:
    """A run to be submitted, and where it goes on."""

    order: Order
    planned: Planned
    checkpoints: str
    step: int | None  # of the newest checkpoint; None where it cannot be seen from here


def prepare(run: Run, request: ResumeRequest) -> Resumption:
    """The submission that continues a run. Refused while the old job may still write, or without a checkpoint."""
    refuse_unless_over(run, request)
    loaded = resumed_spec(run, request)
    chosen = "process" if run.scheduler == "process" and not request.spec else ""
    findings = tuple(require_clean(loaded, chosen).findings)
    job = resolve_job(loaded, scheduler=chosen).require()
    host = request.host or ("" if request.spec else run.host)
    order = Order(loaded, job, scheduler_for(loaded.spec, job.job, host, chosen), request.venv, findings)
    place = checkpoint_place(run)
    step = newest_step(place, order.shell) if order.ships_code and not place.startswith("s3://") else None
    if step is None and order.ships_code and not place.startswith("s3://"):
        raise NothingToResume(
            f"{run.name} has no checkpoint at {place}" + (f" on {host}" if host else ""),
            fix="start the job anew: `trainwright submit`",
        )
    planned = submission.plan(order)
    planned = replace(planned, run=replace(planned.run, continues=run.name))
    return Resumption(order, planned, place, step)


def refuse_unless_over(run: Run, request: ResumeRequest) -> None:
    status = run_state(run)
    if status.state == "completed" and not request.args:
        raise NothingToResume(
            f"{run.name} completed", fix=f"to train further: `trainwright resume {run.name} -- --steps N`"
        )
    if not status.over and not (request.force and status.state == "unknown"):
        more = f": {status.reason}" if status.state == "unknown" else ""
        ends = "it is ending: try again in a moment"
        fix = ends if status.state == "completing" else f"`trainwright cancel {run.name}` ends it first"
        raise NothingToResume(
            f"{run.name} is {status.state}{more}", fix="if its job has certainly ended: --force" if more else fix
        )


def resumed_spec(run: Run, request: ResumeRequest) -> LoadedSpec:
    """The spec of the run, or the one the user named, with the run's job and the changes that were asked for."""
    old = load(run.folder / "spec.yaml")
    job = old.node.get("jobs", 0)
    assert job is not None
    changes: dict[str, Node] = {}
    for name in ("nodes", "queue"):
        value = getattr(request, name)
        if value is not None:
            changes[name] = flag_node(value, f"--{name} {value}")
    place, flag = checkpoint_place(run), f"resume {run.name}"
    script = job.get("script")
    if script is not None:
        copy = run.folder / "code" / Path(script.text).name
        if copy.is_file():  # by a relative path, as a file of this machine is named
            changes["script"] = flag_node(os.path.relpath(copy), flag)
        changes["env"] = _with(job.get("env"), CHECKPOINTS, flag_node(place, flag))
    else:
        changes["checkpoint"] = _with(job.get("checkpoint"), "to", flag_node(place, flag))
    model = job.get("model")
    if model is not None and (run.folder / model.text).is_file():
        changes["model"] = flag_node(str(run.folder / model.text), flag)
    args = job.get("args")
    if "model" in changes and args is not None:
        copied = with_model(tuple(word.text for word in args.elements()), changes["model"].text)
        args = changes["args"] = flag_node(copied, flag)
    if request.args:
        words = [*(args.elements() if args else []), *flag_node(request.args, "--").elements()]
        changes["args"] = Node(words, flag_span(f"-- {' '.join(request.args)}"))
    base = load(request.spec, request.overrides) if request.spec else load(run.folder / "spec.yaml", request.overrides)
    return base.with_jobs(replace(job, value={**job.value, **changes}))


def checkpoint_place(run: Run) -> str:
    """Where the run wrote its checkpoints: what its job said, or its recipe, or its run folder."""
    job = load(run.folder / "spec.yaml").spec.jobs[0]
    stated = job.texts.get(CHECKPOINTS) or (job.checkpoint.to if job.checkpoint else None)
    return stated or _resolved(run, "checkpoint to") or f"{run.where}/checkpoints"


def _resolved(run: Run, name: str) -> str:
    """A value that the run's job came to; empty where there is none, or where an older run kept no such file."""
    path = run.folder / "resolved.json"
    values = json.loads(path.read_text(encoding="utf-8")).get("values", {}) if path.is_file() else {}
    return str(values.get(name, {}).get("value", ""))


def newest_step(place: str, shell: Shell) -> int | None:
    """The step of the newest checkpoint at a place; 0 for files of a script's own naming, None where there are none."""
    names = shell.listing(place)
    steps = [int(match[1]) for name in names if (match := STEP.fullmatch(name))]
    return max(steps) if steps else 0 if names else None


def resumable_step(run: Run) -> int | None:
    """The step that `resume` would continue an ended run from, where its files can be read from here."""
    place = checkpoint_place(run)
    if not scheduler_of(run).ships or place.startswith("s3://"):
        return None
    return newest_step(place, shell_of(run))


def _with(node: Node | None, key: str, value: Node) -> Node:
    """A map of the spec with one more value."""
    return Node({key: value}, value.span) if node is None else replace(node, value={**node.value, key: value})
