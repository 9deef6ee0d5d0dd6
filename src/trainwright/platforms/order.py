"""From the words of `trainwright submit` to an order: which spec, which job, which scheduler."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainwright.errors import UserError
from trainwright.platforms.reach import scheduler_for
from trainwright.schedulers.commands import command_of
from trainwright.schedulers.launch import pick_job
from trainwright.schedulers.submission import Order
from trainwright.spec.load import load
from trainwright.spec.model import Job, Queue, Spec


@dataclass(frozen=True)
class Wish:
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


def order_for(wish: Wish) -> Order:
    """The order a wish amounts to; a script's paths start here, those of a spec's job beside the spec."""
    spec = _spec(wish)
    job = _own_job(wish) if wish.script or wish.recipe else _spec_job(wish, spec)
    base = Path.cwd() if wish.script or not wish.spec else Path(wish.spec).parent.absolute()
    scheduler = scheduler_for(spec, job, wish.host, wish.scheduler, wish.dry)
    return Order(spec, job, scheduler, command_of, base, wish.venv, wish.remote_folder)


def _spec(wish: Wish) -> Spec:
    if wish.spec:
        return load(wish.spec, wish.overrides).spec
    if not (wish.script or wish.recipe):
        raise UserError(
            "nothing to submit", fix="name a spec (`trainwright submit SPEC JOB`), a script (--script) or a recipe"
        )
    if wish.scheduler != "process":
        raise UserError(
            f"a {'script' if wish.script else 'recipe'} needs a cluster to run on",
            fix="name its spec, or run it on this machine: --scheduler process",
        )
    return Spec(name="here", platform="local", queues=(Queue(name="here", nodes=1, cpus=wish.processes or 1),))


def _own_job(wish: Wish) -> Job:
    """The job that --script or --recipe amounts to."""
    if wish.script and wish.recipe:
        raise UserError("--script and --recipe are two jobs", fix="name one of them")
    if wish.job:
        raise UserError(
            f"job {wish.job!r} of the spec, or {'--script' if wish.script else '--recipe'}: not both",
            fix="put what is meant for the trainer or script after `--`",
        )
    named = wish.script or wish.recipe or ""
    name = Path(named).stem if "/" in named or Path(named).suffix in {".py", ".yaml", ".yml", ".sh"} else named
    return Job(
        name=name.lower().replace("_", "-"), script=wish.script, recipe=wish.recipe, args=wish.args, nodes=wish.nodes,
        processes=wish.processes, queue=wish.queue, container=wish.container,
    )  # fmt: skip


def _spec_job(wish: Wish, spec: Spec) -> Job:
    given = [name for name in ("nodes", "processes", "queue", "container") if getattr(wish, name) is not None]
    if given:
        raise UserError(
            f"--{given[0]} goes with --script or --recipe",
            fix=f"change the job instead: --set jobs.NAME.{given[0]}=...",
        )
    job = pick_job(spec, wish.job or "")
    if job.recipe and job.recipe.endswith((".yaml", ".yml")):
        beside = Path(wish.spec or "").parent.absolute() / job.recipe
        job = job.model_copy(update={"recipe": str(beside)})
    return job.model_copy(update={"args": (*job.args, *wish.args)}) if wish.args else job
