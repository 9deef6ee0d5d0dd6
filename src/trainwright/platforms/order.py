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
    args: tuple[str, ...] = ()
    nodes: int | None = None
    processes: int | None = None
    queue: str | None = None
    scheduler: str = ""
    host: str = ""
    remote_folder: str = ""
    venv: str = ""


def order_for(wish: Wish) -> Order:
    """The order a wish amounts to; a script's paths start here, a spec's job's paths beside the spec."""
    spec = _spec(wish)
    job = _script_job(wish, spec) if wish.script else _spec_job(wish, spec)
    base = Path.cwd() if wish.script or not wish.spec else Path(wish.spec).parent.absolute()
    scheduler = scheduler_for(spec, wish.host, wish.scheduler)
    return Order(spec, job, scheduler, command_of, base, wish.venv, wish.remote_folder)


def _spec(wish: Wish) -> Spec:
    if wish.spec:
        return load(wish.spec, wish.overrides).spec
    if not wish.script:
        raise UserError("nothing to submit", fix="name a spec (`trainwright submit SPEC JOB`) or a script (--script)")
    if wish.scheduler != "process":
        raise UserError(
            "a script needs a cluster to run on", fix="name its spec, or run it on this machine: --scheduler process"
        )
    return Spec(name="here", platform="local", queues=(Queue(name="here", nodes=1, cpus=wish.processes or 1),))


def _script_job(wish: Wish, spec: Spec) -> Job:
    script = wish.script or ""
    name = Path(script).stem.lower().replace("_", "-")
    return Job(
        name=name, script=script, args=wish.args, nodes=wish.nodes, processes=wish.processes, queue=wish.queue
    )  # fmt: skip


def _spec_job(wish: Wish, spec: Spec) -> Job:
    given = [name for name in ("nodes", "processes", "queue") if getattr(wish, name) is not None]
    if given:
        raise UserError(
            f"--{given[0]} goes with --script", fix=f"change the job instead: --set jobs.NAME.{given[0]}=..."
        )
    job = pick_job(spec, wish.job or "")
    return job.model_copy(update={"args": (*job.args, *wish.args)}) if wish.args else job
