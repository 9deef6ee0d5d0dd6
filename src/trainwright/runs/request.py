"""From the words of `trainwright submit` to an order: which spec, which job, which scheduler."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainwright.errors import UserError
from trainwright.runs.reach import scheduler_for
from trainwright.runs.submission import Order
from trainwright.schedulers.launch import pick_job
from trainwright.spec.load import load
from trainwright.spec.model import Job, Queue, Spec


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
    """The order a request amounts to; a script's paths start here, those of a spec's job beside the spec."""
    spec = _spec(request)
    job = _own_job(request) if request.script or request.recipe else _spec_job(request, spec)
    base = Path.cwd() if request.script or not request.spec else Path(request.spec).parent.absolute()
    scheduler = scheduler_for(spec, job, request.host, request.scheduler, request.dry)
    return Order(spec, job, scheduler, base, request.venv, request.remote_folder)


def _spec(request: SubmitRequest) -> Spec:
    if request.spec:
        return load(request.spec, request.overrides).spec
    if not (request.script or request.recipe):
        raise UserError(
            "nothing to submit", fix="name a spec (`trainwright submit SPEC JOB`), a script (--script) or a recipe"
        )
    if request.scheduler != "process":
        raise UserError(
            f"a {'script' if request.script else 'recipe'} needs a cluster to run on",
            fix="name its spec, or run it on this machine: --scheduler process",
        )
    return Spec(name="here", platform="local", queues=(Queue(name="here", nodes=1, cpus=request.processes or 1),))


def _own_job(request: SubmitRequest) -> Job:
    """The job that --script or --recipe amounts to."""
    if request.script and request.recipe:
        raise UserError("--script and --recipe are two jobs", fix="name one of them")
    if request.job:
        raise UserError(
            f"job {request.job!r} of the spec, or {'--script' if request.script else '--recipe'}: not both",
            fix="put what is meant for the trainer or script after `--`",
        )
    named = request.script or request.recipe or ""
    name = Path(named).stem if "/" in named or Path(named).suffix in {".py", ".yaml", ".yml", ".sh"} else named
    return Job(
        name=name.lower().replace("_", "-"), script=request.script, recipe=request.recipe, args=request.args,
        nodes=request.nodes, processes=request.processes, queue=request.queue, container=request.container,
    )  # fmt: skip


def _spec_job(request: SubmitRequest, spec: Spec) -> Job:
    given = [name for name in ("nodes", "processes", "queue", "container") if getattr(request, name) is not None]
    if given:
        raise UserError(
            f"--{given[0]} goes with --script or --recipe",
            fix=f"change the job instead: --set jobs.NAME.{given[0]}=...",
        )
    job = pick_job(spec, request.job or "")
    if job.recipe and job.recipe.endswith((".yaml", ".yml")):
        beside = Path(request.spec or "").parent.absolute() / job.recipe
        job = job.model_copy(update={"recipe": str(beside)})
    return job.model_copy(update={"args": (*job.args, *request.args)}) if request.args else job
