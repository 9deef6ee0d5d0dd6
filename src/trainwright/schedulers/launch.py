"""From a resolved job to a launch: what each rank runs, where, and under which conditions, in the words that every
scheduler takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainwright.catalog.environment import EnvVar
from trainwright.jobs.command import rank_command
from trainwright.jobs.environment import with_interface
from trainwright.jobs.frameworks import FrameworkLaunch, framework_launch, known_framework, launcher_of
from trainwright.jobs.resolved import ResolvedJob
from trainwright.schedulers.base import POD_CODE, Launch, SecretEnv
from trainwright.schedulers.torchrun import SHUTDOWN_TIMEOUT

CHECKPOINTS = "TRAINWRIGHT_CHECKPOINTS"  # where a script finds its checkpoints, and those of the run it continues


@dataclass(frozen=True)
class Place:
    """Where a launch will run: the run folder as the nodes see it, and what differs between here and a cluster."""

    folder: Path
    python: str
    interface: str = ""
    venv: str = ""
    python_path: str = ""  # what the ranks' PYTHONPATH goes on with, after the code of the run


def launch_of(resolved: ResolvedJob, place: Place) -> Launch:
    """Everything a scheduler needs to know about a job."""
    job, at, runtime = resolved.job, resolved.placement, resolved.runtime
    # Without shipping, a script is where the job says it is: in the image or on a mounted file system.
    in_image = Path(POD_CODE) if runtime.packs_code else Path(job.script or "").parent
    code = place.folder / "code" if runtime.ships_code else in_image
    environment = with_interface(resolved.environment, place.interface)
    framework = framework_of(resolved, place)
    if framework is not None:
        code = framework_code(resolved, place)
        kept = {line.name for line in environment}
        environment = (*environment, *(line for line in framework.environment if line.name not in kept))
    return Launch(
        name=job.name,
        command=framework.command if framework else rank_command(resolved, place.python, code, place.folder),
        folder=place.folder,
        nodes=at.nodes,
        processes=at.processes,
        cpus=at.cpus,
        gpus=at.gpus,
        queue=at.queue.name,
        environment=(*environment, *_own_lines(resolved, place, code)),
        launcher=job.launcher or ("srun" if resolved.trainer == "trainwright" else launcher_of(resolved.recipe)),
        array=job.array or "",
        time=int(job.time) if job.time else None,
        saves_on_term=_saves_on_term(resolved),
        requeue=job.requeue,
        # Nodes of a local cluster are shared unless the spec says otherwise: it is there to try things out.
        exclusive=at.queue.exclusive and (bool(at.queue.instance) or "exclusive" in at.queue.model_fields_set),
        account=job.account or "",
        qos=job.qos or "",
        constraint=job.constraint or "",
        reservation=job.reservation or "",
        after=job.after or "",
        container=runtime.container,
        mounts=runtime.mounts,
        venv=place.venv or runtime.venv,
        secrets=tuple(job.secrets.items()),
        secret_env=tuple(SecretEnv(name, s.env or "", s.file or "") for name, s in job.referenced.items()),
        kind=job.kind or "",
        code=POD_CODE if runtime.packs_code else "",
        files=tuple((str(code / name), text) for name, text in framework.files.items()) if framework else (),
        code_store=runtime.code_store,
        health=job.health,
    )


def _saves_on_term(resolved: ResolvedJob) -> bool:
    known = known_framework(resolved.recipe) if resolved.trainer == "foreign" else None
    return known is not None and known.saves_on_term


def framework_code(resolved: ResolvedJob, place: Place) -> Path:
    """Where the files of a framework lie on the nodes."""
    return place.folder / "code" if resolved.runtime.ships_code else Path(POD_CODE)


def framework_of(resolved: ResolvedJob, place: Place) -> FrameworkLaunch | None:
    """What the ranks of a known framework run; None for every other trainer."""
    if resolved.trainer != "foreign" or known_framework(resolved.recipe) is None:
        return None
    return framework_launch(resolved, place.folder, framework_code(resolved, place), place.python)


def _own_lines(resolved: ResolvedJob, place: Place, code: Path) -> list[EnvVar]:
    return [*_checkpoints(resolved), *_shipped_lines(resolved, place, code)]


def _checkpoints(resolved: ResolvedJob) -> list[EnvVar]:
    """Where a script or another trainer keeps its checkpoints, in its own words, in the job's or in the recipe's."""
    checkpoint = resolved.training.checkpoint if resolved.training else resolved.job.checkpoint
    stated = checkpoint.to if checkpoint else None
    if resolved.trainer == "trainwright" or not stated or CHECKPOINTS in resolved.job.env:
        return []
    return [EnvVar(CHECKPOINTS, stated, "`checkpoint: to` of the job or its recipe")]


def _shipped_lines(resolved: ResolvedJob, place: Place, code: Path) -> list[EnvVar]:
    if not resolved.runtime.ships_code:
        sent = EnvVar("PYTHONPATH", POD_CODE, "the code that was sent with the run")
        waits = EnvVar(SHUTDOWN_TIMEOUT, str(Launch.grace), "seconds that torchrun leaves its ranks to save")
        return [
            *([sent] if resolved.runtime.packs_code and "PYTHONPATH" not in resolved.job.env else []),
            EnvVar("TRAINWRIGHT_RUN", str(place.folder), "the run folder: metrics, events and checkpoints go there"),
            EnvVar("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "[rank${rank}]:", "tells the ranks of a node's log apart"),
            *([waits] if (resolved.job.launcher or launcher_of(resolved.recipe)) != "plain" else []),
        ]
    path = f"{code}:{resolved.job.texts.get('PYTHONPATH') or place.python_path}".rstrip(":")
    return [EnvVar("PYTHONPATH", path, "the code that was shipped with the run comes first")]
