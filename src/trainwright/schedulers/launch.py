"""From a spec's job to a launch: which command each rank runs, on how many nodes, with which environment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainwright.catalog.environment import EnvVar
from trainwright.catalog.instances import find_instance
from trainwright.errors import UserError, did_you_mean
from trainwright.recipes.foreign import foreign_of
from trainwright.schedulers.base import Launch
from trainwright.schedulers.commands import command_of
from trainwright.schedulers.environment import check_names, job_environment
from trainwright.spec.model import Job, Queue, Spec


@dataclass(frozen=True)
class Place:
    """Where a launch will run: the run folder as the nodes see it, and what differs between here and a cluster."""

    folder: Path
    python: str
    interface: str = ""
    venv: str = ""
    python_path: str = ""  # what the ranks' PYTHONPATH goes on with, after the code of the run
    ships: bool = True  # whether the folder is filled from here; else the image holds the software


def pick_job(spec: Spec, name: str) -> Job:
    """The job a user means; with one job in the spec it need not be named."""
    names = [job.name for job in spec.jobs]
    if not names:
        raise UserError(f"spec {spec.name!r} has no job", fix="add `jobs:`, or submit a script: --script train.py")
    if not name and len(names) == 1:
        return spec.jobs[0]
    for job in spec.jobs:
        if job.name == name:
            return job
    what = f"spec {spec.name!r} has no job {name!r}" if name else f"spec {spec.name!r} has {len(names)} jobs"
    raise UserError(what, fix=did_you_mean(name, names) or f"name one of {', '.join(names)}")


def launch_job(spec: Spec, job: Job, place: Place) -> Launch:
    """Everything the spec says about a job, in the words every scheduler takes."""
    check_names(job.env)
    queue = queue_of(spec, job)
    gpus, processes, cpus = shape(queue, job)
    nodes = job.nodes or nodes_of(queue)
    if nodes > nodes_of(queue):
        raise UserError(
            f"job {job.name!r} asks for {nodes} nodes, and queue {queue.name!r} has at most {nodes_of(queue)}",
            fix="ask for fewer nodes, or let the queue grow",
        )
    foreign = foreign_of(job)
    container = job.container or (foreign.container if foreign else None) or ""
    # Without shipping, a script is where the job says it is: in the image or on a mounted file system.
    code = place.folder / "code" if place.ships else Path(job.script or "").parent
    environment = job_environment(queue.instance, job.env, cpus, place.interface, own_network=not place.ships)
    return Launch(
        name=job.name,
        command=command_of(spec, job, nodes * processes, place.python, code),
        folder=place.folder,
        nodes=nodes,
        processes=processes,
        cpus=cpus,
        gpus=gpus,
        queue=queue.name,
        environment=(*environment, *_own_lines(place, code, job)),
        launcher="torchrun" if job.script or foreign else "srun",
        array=job.array or "",
        time=int(job.time) if job.time else None,
        requeue=job.requeue,
        # Nodes of a local cluster are shared unless the spec says otherwise: it is there to try things out.
        exclusive=queue.exclusive and (bool(queue.instance) or "exclusive" in queue.model_fields_set),
        account=job.account or "",
        qos=job.qos or "",
        constraint=job.constraint or "",
        reservation=job.reservation or "",
        after=job.after or "",
        container=container,
        mounts=(*job.mounts, *_storage(spec, job)) if container else job.mounts,
        venv=place.venv,
        secrets=tuple(job.secrets.items()),
        kind=job.kind or "",
        health=job.health,
    )


def queue_of(spec: Spec, job: Job) -> Queue:
    if job.queue is None:
        return spec.queues[0]
    queue = spec.queue(job.queue)
    if queue is None:
        names = [queue.name for queue in spec.queues]
        raise UserError(
            f"job {job.name!r} asks for queue {job.queue!r}, which the spec does not have",
            fix=did_you_mean(job.queue, names) or f"one of {', '.join(names)}",
        )
    return queue


def nodes_of(queue: Queue) -> int:
    return queue.nodes or (queue.count.max if queue.count else 1)


def shape(queue: Queue, job: Job) -> tuple[int, int, int]:
    """GPUs a node, ranks a node, processors a rank: a rank a GPU, else one a node, unless the job says otherwise."""
    known = find_instance(queue.instance) if queue.instance else None
    gpus = known.gpus if known else queue.gpus or 0
    cores = known.cores if known else queue.cpus or 1
    processes = job.processes or gpus or 1
    if not known and processes > (queue.cpus or 1):
        raise UserError(
            f"job {job.name!r} starts {processes} processes on nodes with {cores} cpus",
            where=f"queue {queue.name}",
            fix=f"set cpus: {processes} in the queue (a local node may claim more than the machine has)",
        )
    return gpus, processes, max(1, cores // processes)


def _storage(spec: Spec, job: Job) -> list[str]:
    """The file systems of the cluster: a container sees them at the same folders as the nodes do."""
    named = {mount.partition(":")[0] for mount in job.mounts}
    return [item.mount for item in spec.storage if item.mount not in named]


def _own_lines(place: Place, code: Path, job: Job) -> list[EnvVar]:
    if not place.ships:
        return [
            EnvVar("TRAINWRIGHT_RUN", str(place.folder), "the run folder: metrics, events and checkpoints go there"),
            EnvVar("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "[rank${rank}]:", "tells the ranks of a node's log apart"),
        ]
    path = f"{code}:{job.env.get('PYTHONPATH') or place.python_path}".rstrip(":")
    return [EnvVar("PYTHONPATH", path, "the code that was shipped with the run comes first")]
