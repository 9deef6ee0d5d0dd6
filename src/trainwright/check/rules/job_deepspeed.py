"""JOB: the deepspeed launcher over several nodes. It learns of the others from a hostfile only: without one it stops
where --num_nodes is above 1, whatever --launcher, --no_ssh or --force_multi say, else trains on its own node."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check.launches.options import split, table
from trainwright.check.launches.steps import one_per_node
from trainwright.check.model import Command, Job, ShellScript, Value, stated
from trainwright.check.readers.arguments import whole
from trainwright.check.registry import Problem, problem
from trainwright.check.rules.job_starts import all_exist, is_certain, may_start_more, splits_by_node

_DEFAULT_HOSTFILE = re.compile(r"/job\b|\.deepspeed_env|DLTS")
_HOSTFILE = "write the nodes to a file (<host> slots=<GPUs>) and add --hostfile <file>"


def deepspeed_starts(job: Job) -> Iterator[Problem]:
    """A deepspeed launcher that is meant for several nodes, and has no hostfile."""
    launch, script = job.launch, job.script
    if launch is None or script is None or launch.program != "deepspeed" or job.pod is not None:
        return
    if launch.conditional or launch.branch:
        return
    own, program, words = _read(launch)
    if program is None or not program.known or own is None or own.keys() & {"hostfile", "H"}:
        return
    if _DEFAULT_HOSTFILE.search(script.text):
        return
    nodes = whole(launch.options.get("num_nodes")) if "num_nodes" in own else None
    if nodes is not None:
        yield from _stops(script, launch, own["num_nodes"], nodes)
    elif is_certain(script, launch) and not own.keys() & {"no_ssh", "node_rank", "i", "include"}:
        yield from _without_hostfile(job, script, launch, words)


def _read(launch: Command) -> tuple[dict[str, Value[str]] | None, Value[str] | None, list[Value[str]]]:
    """The launcher's own options by name, or None where it does not have them all; the script and its words."""
    known = table()["deepspeed"]
    options, program, words = split(launch, known)
    if not all_exist(options, known) or not all(word.known or "=" in word.value for word in options):
        return None, program, words
    return {word.value.partition("=")[0].lstrip("-"): word for word in options}, program, words


def _stops(script: ShellScript, launch: Command, at: Value[str], nodes: Value[int]) -> Iterator[Problem]:
    count = stated(nodes)
    if count is None or count < 2:
        return
    runners = [launch.runner] if launch.runner is not None else []
    plain = script.kind == "sbatch" and all(
        runner.program == "srun" and "container_image" not in runner.options for runner in runners
    )
    every = f"{_HOSTFILE}, without srun" if runners else _HOSTFILE  # deepspeed starts the other nodes itself
    yield problem(
        at,
        f"--num_nodes {count} without --hostfile: deepspeed knows of no other node and stops, unless the node has "
        "/job/hostfile",
        every if _several_nodes(script) else f"{_HOSTFILE}, or, where one node is meant, remove --num_nodes",
        level="error" if plain else "warning" if script.kind == "sbatch" else "info",  # the platform may have that file
        why="the launcher ends with `Num nodes is >1 but no extra nodes available via hostfile`.",
    )


def _several_nodes(script: ShellScript) -> bool:
    nodes = stated(whole(dict(script.directives).get("nodes")))
    return nodes is not None and nodes > 1


def _without_hostfile(job: Job, script: ShellScript, launch: Command, words: list[Value[str]]) -> Iterator[Problem]:
    if "hostfile" in script.text.lower() or script.sources_others or splits_by_node(script, words):
        return
    why = "without a hostfile the launcher takes the GPUs of its own node, and says so in a warning only."
    if launch.runner is None:
        count = stated(whole(job.directives.get("nodes")))
        if count is not None and count > 1 and not may_start_more(script, launch):
            message = f"deepspeed without --hostfile trains on the first of {count} nodes; the others stay idle"
            yield problem(launch.words[0], message, f"{_HOSTFILE}, or ask for one node", why=why)
        return
    nodes = one_per_node(job)
    if nodes is not None:
        message = f"{nodes.value} nodes each start a run of their own (deepspeed without --hostfile)"
        yield problem(launch.words[0], message, f"{_HOSTFILE}, without srun", why=why)
