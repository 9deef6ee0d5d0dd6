"""From the words of `trainwright submit` to an order: the spec with the one job that was asked for, checked and
resolved, and the scheduler it goes to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from trainwright.check.gate import require_clean
from trainwright.errors import UserError
from trainwright.jobs.resolve import resolve_job
from trainwright.jobs.select import job_index
from trainwright.runs.reach import scheduler_for
from trainwright.runs.submission import Order
from trainwright.spec.load import LoadedSpec, flag_node, flag_span, load, load_text
from trainwright.spec.source import Node

HERE = "name: here\nplatform: local\nqueues: [{{name: here, nodes: 1, cpus: {cpus}}}]\n"
SCRIPT_SUFFIXES = {".py", ".yaml", ".yml", ".sh"}


@dataclass(frozen=True)
class SubmitRequest:
    """What a user typed."""

    spec: str | None = None
    job: str | None = None
    overrides: tuple[str, ...] = ()
    script: str | None = None
    recipe: str | None = None
    args: tuple[str, ...] = ()
    nodes: int | None = None
    processes: int | None = None
    queue: str | None = None
    container: str | None = None
    scheduler: str = ""
    host: str = ""
    remote_folder: str = ""
    venv: str = ""
    dry: bool = False  # only to be shown


def order_for(request: SubmitRequest) -> Order:
    """Load, check, resolve; what cannot run is refused here, every finding at once."""
    loaded = requested_spec(request)
    result = require_clean(loaded, request.scheduler)
    resolved = resolve_job(loaded, scheduler=request.scheduler).require()
    if request.venv and not resolved.runtime.ships_code:
        raise UserError("--venv names a folder of nodes, and this job runs in an image", fix="leave --venv out")
    scheduler = scheduler_for(loaded.spec, resolved.job, request.host, request.scheduler, request.dry)
    return Order(loaded, resolved, scheduler, request.venv, tuple(result.findings))


def requested_spec(request: SubmitRequest) -> LoadedSpec:
    """The spec with the requested job alone; flags stand in it like values of the file."""
    loaded = _loaded(request)
    if request.remote_folder:
        value = {
            **loaded.node.value,
            "runs": flag_node(request.remote_folder, f"--remote-folder {request.remote_folder}"),
        }
        loaded = replace(loaded, node=replace(loaded.node, value=value))
    return loaded.with_jobs(_flag_job(request) if request.script or request.recipe else _spec_job(request, loaded))


def _loaded(request: SubmitRequest) -> LoadedSpec:
    if request.spec:
        return load(request.spec, request.overrides)
    if not (request.script or request.recipe):
        raise UserError(
            "nothing to submit", fix="name a spec (`trainwright submit SPEC JOB`), a script (--script) or a recipe"
        )
    if request.scheduler != "process":
        raise UserError(
            f"a {'script' if request.script else 'recipe'} needs a cluster to run on",
            fix="name its spec, or run it on this machine: --scheduler process",
        )
    return load_text(HERE.format(cpus=request.processes or 1), "this machine")


def _flag_job(request: SubmitRequest) -> Node:
    """The job that --script or --recipe and the flags beside it describe."""
    if request.script and request.recipe:
        raise UserError("--script and --recipe are two jobs", fix="name one of them")
    flag = "--script" if request.script else "--recipe"
    if request.job:
        raise UserError(
            f"job {request.job!r} of the spec, or {flag}: not both",
            fix="put what is meant for the trainer or script after `--`",
        )
    named = request.script or request.recipe or ""
    name = Path(named).stem if "/" in named or Path(named).suffix in SCRIPT_SUFFIXES else named
    job = Node({"name": flag_node(name.lower().replace("_", "-"), f"{flag} {named}")}, flag_span(f"{flag} {named}"))
    for field in ("script", "recipe", "nodes", "processes", "queue", "container"):
        value = getattr(request, field)
        if value is not None:
            job.value[field] = flag_node(value, f"--{field} {value}")
    return _with_arguments(job, request.args)


def _spec_job(request: SubmitRequest, loaded: LoadedSpec) -> Node:
    given = [name for name in ("nodes", "processes", "queue", "container") if getattr(request, name) is not None]
    if given:
        raise UserError(
            f"--{given[0]} goes with --script or --recipe",
            fix=f"change the job instead: --set jobs.NAME.{given[0]}=...",
        )
    node = loaded.node.get("jobs", job_index(loaded, request.job))
    assert node is not None
    return _with_arguments(node, request.args)


def _with_arguments(job: Node, words: tuple[str, ...]) -> Node:
    """The job with further words for its trainer or script."""
    if not words:
        return job
    written = job.get("args")
    added = flag_node(words, f"-- {' '.join(words)}")
    args = added if written is None else replace(written, value=[*written.elements(), *added.elements()])
    return replace(job, value={**job.value, "args": args})
