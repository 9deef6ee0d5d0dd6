"""How often srun starts the command of a batch script, as far as the script leaves no doubt. Answers of Slurm
22.05.8 are recorded in tests/check/test_srun_answers.py."""

from __future__ import annotations

import re

from trainwright.check.model import Command, Job, Value, stated
from trainwright.check.readers.arguments import whole

_SIZES = {"n", "ntasks", "N", "nodes"}
_CHOSEN_NODES = {"w", "nodelist", "r", "relative", "x", "exclude", "F", "nodefile"}
_OTHER_PROGRAMS = {"het_group", "pack_group", "multi_prog"}  # of another component, or one for each task
_OTHER_COUNTS = {"ntasks-per-gpu", "ntasks-per-socket", "ntasks-per-core", "gpus-per-task", "tasks"}
_THIS_JOB = re.compile(r"\"?\$\{?SLURM_JOB_?ID\}?\"?")


def copies(job: Job) -> Value[int] | None:
    """How many tasks srun starts with the job's command; None where there is no srun, or a doubt."""
    runner = _srun(job)
    if runner is None or runner.options.keys() & _OTHER_PROGRAMS or {"hetjob", "packjob"} & job.directives.keys():
        return None
    own = {name.replace("_", "-"): value for name, value in runner.options.items()}
    if own.get("jobid") is not None and not _THIS_JOB.fullmatch(own["jobid"].value):
        return None
    total, nodes = own.get("ntasks") or own.get("n"), own.get("nodes") or own.get("N")
    if total is not None:
        return _stated(whole(total))
    if nodes is None and runner.options.keys() & _CHOSEN_NODES:
        return None
    return _by_sizes(job, own, nodes)


def _by_sizes(job: Job, own: dict[str, Value[str]], nodes: Value[str] | None) -> Value[int] | None:
    """The tasks where srun has no --ntasks of its own. Slurm gives the total of the directives to srun, as
    SLURM_NTASKS; where srun's own --nodes or --ntasks-per-node make another one, versions of Slurm may differ."""
    each = own.get("ntasks-per-node") or own.get("tasks-per-node")
    total = _total(job)
    if nodes is None and each is None and "ntasks" in job.directives:
        return total
    per_node = each or _tasks_per_node(job)
    if per_node is None and (job.directives.keys() | own.keys()) & _OTHER_COUNTS:
        return None
    count, tasks = _stated(whole(nodes or job.directives.get("nodes"))), 1
    if per_node is not None:
        tasks = stated(whole(per_node)) or 0
    if count is None or tasks < 1:
        return None
    started = count.meaning(count.value * tasks)
    asked = "ntasks" in job.directives or _tasks_per_node(job) is not None
    return None if asked and (total is None or total.value != started.value) else started


def _total(job: Job) -> Value[int] | None:
    """The tasks that the directives ask for; --ntasks-per-node beside --ntasks is a maximum."""
    if "ntasks" in job.directives:
        return _stated(whole(job.directives["ntasks"]))
    nodes, each = _stated(whole(job.directives.get("nodes"))), stated(whole(_tasks_per_node(job)))
    return nodes.meaning(nodes.value * each) if nodes is not None and each is not None else None


def _tasks_per_node(job: Job) -> Value[str] | None:
    return job.directives.get("ntasks-per-node") or job.directives.get("tasks-per-node")


def one_per_node(job: Job) -> Value[int] | None:
    """The nodes of a job where srun starts the command once on each of several."""
    started, runner, nodes = copies(job), _srun(job), stated(whole(job.directives.get("nodes")))
    if started is None or nodes is None or runner is None or runner.options.keys() & _CHOSEN_NODES:
        return None
    own = runner.options.get("nodes") or runner.options.get("N")
    if own is not None and stated(whole(own)) != nodes:
        return None
    total = stated(whole(job.directives.get("ntasks")))
    if total is not None and total < nodes:
        return None  # Slurm reduces the nodes to the tasks
    return started if started.value == nodes > 1 else None


def nodes_of_step(job: Job) -> Value[int] | None:
    """The nodes that srun's own --nodes gives the step of a job with one task per node. Slurm 22.05 starts the tasks of
    the whole job on them, several on each; no version starts it on more nodes."""
    runner = _srun(job)
    own = runner.options.get("nodes") or runner.options.get("N") if runner is not None else None
    return _stated(whole(own)) if stated(whole(_tasks_per_node(job))) == 1 else None


def has_own_size(runner: Command) -> bool:
    """Whether an srun states how many nodes or tasks its step has."""
    return bool(runner.options.keys() & _SIZES)


def own_sizes(runner: Command) -> str:
    """The options that give the step of an srun its size, for a fix that removes them."""
    names = [name for name in runner.options if name in _SIZES]
    return " and ".join(f"-{name}" if len(name) == 1 else f"--{name}" for name in names)


def is_whole_job(runner: Command) -> bool:
    """Whether an srun starts its command on the nodes and tasks of the whole job."""
    return not runner.options.keys() & (_SIZES | _CHOSEN_NODES)


def _srun(job: Job) -> Command | None:
    runner = job.launch.runner if job.launch is not None else None
    return runner if runner is not None and runner.program == "srun" else None


def _stated(value: Value[int] | None) -> Value[int] | None:
    return value if stated(value) is not None else None
