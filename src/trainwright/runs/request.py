"""From the words of `trainwright submit` to an order: the spec with the one job that was asked for, checked and
resolved, and the scheduler it goes to."""

from __future__ import annotations

import re
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
    module: str | None = None  # `python -m` of it
    command: bool = False  # `args` are the whole command
    launcher: str | None = None

    @property
    def names_a_job(self) -> bool:
        """Whether the flags say what to run, rather than a job of the spec."""
        return bool(self.script or self.recipe or self.module or self.command)


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
    return loaded.with_jobs(_flag_job(request) if request.names_a_job else _spec_job(request, loaded))


def _loaded(request: SubmitRequest) -> LoadedSpec:
    if request.spec:
        return load(request.spec, request.overrides)
    if not request.names_a_job:
        raise UserError(
            "nothing to submit", fix="name a spec (`trainwright submit SPEC JOB`), a script (--script) or a recipe"
        )
    if request.host:
        return _discovered(request.host)
    if request.scheduler != "process":
        raise UserError(
            f"a {'recipe' if request.recipe else 'script'} needs a cluster to run on",
            fix="name its spec, a head node (--host), or run it on this machine: --scheduler process",
        )
    return load_text(HERE.format(cpus=request.processes or 1), "this machine")


def _discovered(host: str) -> LoadedSpec:
    """The spec of a cluster that only its head node is known of."""
    from trainwright.platforms.existing.discovery import spec_text
    from trainwright.platforms.existing.slurm import discover_slurm
    from trainwright.schedulers.shell import Shell

    return load_text(spec_text(discover_slurm(Shell(host=host))), f"the Slurm of {host}")


def _flag_job(request: SubmitRequest) -> Node:
    """The job that --script, --recipe, --module or --command and the flags beside it describe."""
    flags = [f"--{name}" for name in ("script", "recipe", "module", "command") if getattr(request, name)]
    if len(flags) > 1:
        raise UserError(f"{' and '.join(flags)} are two jobs", fix="name one of them")
    flag = flags[0]
    if request.job:
        raise UserError(
            f"job {request.job!r} of the spec, or {flag}: not both",
            fix="put what is meant for the trainer or script after `--`",
        )
    if request.command and not request.args:
        raise UserError(
            "--command without a command", fix="put its words after `--`: submit SPEC --command -- bash run.sh"
        )
    named = request.script or request.recipe or request.module or request.args[0]
    name = Path(named).stem if "/" in named or Path(named).suffix in SCRIPT_SUFFIXES else named
    name = name.rsplit(".", 1)[-1] if request.module else name
    name = re.sub(r"[^a-z0-9.-]+", "-", name.lower()).strip(".-") or "job"
    job = Node({"name": flag_node(name, f"{flag} {named}")}, flag_span(f"{flag} {named}"))
    words = request.args if request.command else ("python", "-m", request.module) if request.module else ()
    if words:
        job.value["command"] = flag_node(words, f"{flag} {named}")
    for field in ("script", "recipe", "nodes", "processes", "queue", "container", "launcher"):
        value = getattr(request, field)
        if value is not None:
            job.value[field] = flag_node(value, f"--{field} {value}")
    return _with_arguments(job, () if request.command else request.args)


def _spec_job(request: SubmitRequest, loaded: LoadedSpec) -> Node:
    names = ("nodes", "processes", "queue", "container", "launcher")
    given = [name for name in names if getattr(request, name) is not None]
    if given:
        raise UserError(
            f"--{given[0]} goes with --script, --module, --command or --recipe",
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
