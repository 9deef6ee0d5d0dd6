"""Numbers of a job that several rules need: nodes, ranks, data-parallel size, instance type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from trainwright.catalog.instances import InstanceType
from trainwright.check.launches.launchers import is_torchrun
from trainwright.check.model import File, Job, Value, known, stated
from trainwright.check.registry import Problem, problem
from trainwright.check.tables import machine

_RANKED = ("accelerate", "deepspeed", "composer", "hyperpodrun")


@dataclass(frozen=True, slots=True)
class World:
    """The ranks of a job: nodes × processes per node."""

    nodes: int
    processes: int

    @property
    def size(self) -> int:
        return self.nodes * self.processes

    def __str__(self) -> str:
        return f"{self.nodes} × {self.processes} = {self.size} ranks" if self.nodes > 1 else f"{self.size} ranks"


def type_of(job: Job) -> InstanceType | None:
    """The catalog's row of the job's instance type."""
    return machine(job.instance)


def processes(job: Job) -> Value[int] | None:
    """Ranks per node: what the launcher starts, or the tasks that srun starts."""
    if job.processes_per_node is not None:
        return None if _drives_several(job, job.processes_per_node) else job.processes_per_node
    if is_torchrun(job.launch) or (job.launch is not None and job.launch.program in _RANKED):
        return None
    under_srun = job.launch is not None and job.launch.inside_srun
    return job.tasks_per_node if under_srun and not _drives_several(job, job.tasks_per_node) else None


def _drives_several(job: Job, count: Value[int] | None) -> bool:
    """Whether one process drives several GPUs and starts the ranks itself, as the file does not show."""
    gpus = max((value.value for value in job.gpus_per_node if value.known), default=None)
    return known(count) == 1 and gpus != 1 and job.scheduler != "spec"


def world(job: Job) -> World | None:
    """The ranks of a job; None when the file leaves them open, to the caller too."""
    nodes, per_node = stated(job.nodes), stated(processes(job))
    if nodes is None or per_node is None or nodes < 1 or per_node < 1:
        return None
    return World(nodes, per_node)


def model_parallel(job: Job) -> int | None:
    """GPUs per model replica: tp × pp × cp. None when one of them is not known."""
    sizes = [job.tp, job.pp, job.cp]
    if any(size is not None and (not size.known or size.value < 1) for size in sizes):
        return None
    product = 1
    for size in sizes:
        product *= size.value if size is not None else 1
    return product


def multi_node(job: Job) -> bool:
    """Whether the file states that the job has several nodes. The default of a variable states nothing: the caller
    who gives the number of nodes gives their addresses and ranks too."""
    nodes = stated(job.nodes)
    return nodes is not None and nodes > 1


def refusals(file: File, code: str) -> Iterator[Problem]:
    """What the resolver found under a rule's code: the same words that `submit` and `predict` would refuse with."""
    for job in file.jobs:
        yield from (problem(r.span, r.what, r.fix) for r in job.refusals if r.code == code)


def once(problems: Iterable[Problem]) -> Iterator[Problem]:
    """Each problem once: two launch commands of one script share its directives."""
    seen = set()
    for one in problems:
        key = (one.span, one.message)
        if key not in seen:
            seen.add(key)
            yield one
