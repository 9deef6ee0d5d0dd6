"""How often srun starts the command of a batch script, as far as the script leaves no doubt."""

from __future__ import annotations

from trainwright.check.model import Job, Value, stated
from trainwright.check.readers.arguments import whole

# Options of srun that choose nodes by name, or start a part of the job elsewhere.
_CHOSEN = {"w", "nodelist", "r", "relative", "x", "exclude", "het_group", "pack_group", "multi_prog"}
_COUNTS_TASKS = {"ntasks-per-gpu", "ntasks-per-socket", "ntasks-per-core", "gpus-per-task"}


def copies(job: Job) -> Value[int] | None:
    """How many tasks srun starts with the job's command; None where there is no srun, or a doubt."""
    runner = job.launch.runner if job.launch is not None else None
    if runner is None or runner.program != "srun" or runner.options.keys() & _CHOSEN or "hetjob" in job.directives:
        return None
    own = {name.replace("_", "-"): value for name, value in runner.options.items()}
    total = own.get("ntasks") or own.get("n")
    if total is not None:
        return _stated(whole(total))
    nodes = own.get("nodes") or own.get("N")
    if nodes is None and "ntasks-per-node" not in own and "ntasks" in job.directives:
        return _stated(whole(job.directives["ntasks"]))
    count = _stated(whole(nodes or job.directives.get("nodes")))
    each = whole(own.get("ntasks-per-node") or job.directives.get("ntasks-per-node"))
    if each is None and (job.directives.keys() | own.keys()) & ({"ntasks"} | _COUNTS_TASKS):
        return None
    if count is None or (each is not None and stated(each) is None):
        return None
    return count.meaning(count.value * (stated(each) or 1))


def one_per_node(job: Job) -> Value[int] | None:
    """The nodes of a job where srun starts the command once on each of several."""
    started, nodes = copies(job), stated(whole(job.directives.get("nodes")))
    return started if started is not None and nodes is not None and started.value == nodes > 1 else None


def _stated(value: Value[int] | None) -> Value[int] | None:
    return value if stated(value) is not None else None
