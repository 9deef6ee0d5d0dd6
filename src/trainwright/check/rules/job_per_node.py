"""JOB: words that every node expands for itself, where all nodes must have the same: `--rdzv_id=$RANDOM` under
`srun bash -c '…'`, in the script of each pod, or in a script that the srun of a batch script starts (a note)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check.launches.launchers import is_torchrun, options_of_launcher
from trainwright.check.launches.started import nodes_that_run
from trainwright.check.launches.steps import copies
from trainwright.check.model import Command, EnvVar, File, Job, ShellScript, Value, known
from trainwright.check.readers.arguments import whole
from trainwright.check.registry import Problem, problem

_BY_CHANCE = (
    r"\$\{?(?P<random>S?RANDOM|EPOCHREALTIME|EPOCHSECONDS)\b|\$\(\([^)]*\bS?RANDOM\b|\$\((?:uuidgen|shuf|openssl rand|"
    r"date\s[^)]*%[sNST]|cat /proc/sys/kernel/random/uuid)"
)
_CHANCE = re.compile(_BY_CHANCE)
_DIFFERS = re.compile(
    _BY_CHANCE + r"|\$\{?(?P<name>HOSTNAME|SLURMD_NODENAME|SLURM_NODEID|SLURM_PROCID|SLURM_LOCALID|BASHPID|"
    r"JOB_COMPLETION_INDEX)\b|\$\$|\$\((?:hostname|mktemp)\b"
)
_HEAD = re.compile(r"scontrol|SLURM_(JOB_|STEP_)?NODELIST|SLURM_LAUNCH_NODE")
_PORTS = ("master_port", "main_process_port")
_NEVER_MEET = (
    "nodes meet under the same id at the same port. Each waits for the others under its own: torchrun gives up after "
    "10 minutes (c10d) or 15 (static), with every GPU allocated."
)
_NEVER_MEET_BY_PORT = (
    "rank 0 listens at its own port, and each other rank calls it at another one: init_process_group waits 30 minutes "
    "on every rank but one, and ends with a timeout."
)
_OWN_DIRECTORIES = (
    "each node writes its part of the checkpoint to a directory of its own: no directory has all parts, and none can "
    "be resumed from."
)


def different_meetings(file: File, job: Job) -> Iterator[Problem]:
    """A rendezvous id or port that is another one on each of the nodes."""
    launch, count = job.launch, _count(file, job)
    if launch is None or count is None or launch.conditional or launch.branch:
        return
    own, other = options_of_launcher(job), _is_other_script(file, job)
    if is_torchrun(launch) and ("standalone" in own or known(whole(own.get("nnodes"))) == 1):
        return  # it meets nobody
    endpoint = own.get("rdzv_endpoint")
    port = endpoint.meaning(endpoint.value.rpartition(":")[2]) if endpoint is not None else None
    ids = [("rdzv_id", own.get("rdzv_id")), ("rdzv_endpoint", port), *((name, own.get(name)) for name in _PORTS)]
    for name, value in ids:
        word = _different(launch, value, _DIFFERS, job.pod is not None or other) if value is not None else ""
        if value is not None and word and not (other and value.default):  # the batch script may export another
            what = "id" if name == "rdzv_id" else "port"
            job_number = "" if job.pod is not None else ", such as $SLURM_JOB_ID" if what == "id" else ""
            yield problem(
                value,
                f"each of the {count} nodes expands {word} for itself: the rendezvous has another {what} on each",
                f"use a value that all nodes have{job_number}, or let the batch script expand it before srun"
                if job.pod is None
                else "write a name, the same for all pods",
                level="info" if other else "error" if what == "id" else None,
                why=_NEVER_MEET,
            )


def different_ports(job: Job) -> Iterator[Problem]:
    """`srun bash -c 'MASTER_PORT=$RANDOM python train.py'`: each task draws a port of its own."""
    launch, script = job.launch, job.script
    count = known(copies(job)) if launch is not None and launch.inside_srun else None
    if launch is None or script is None or (count or 0) < 2 or launch.runner is None or launch.branch:
        return
    drawn = [one for one in job.assignments_of("MASTER_PORT") if _CHANCE.search(one.value.value)]
    addresses = [one.value.value for one in job.assignments_of("MASTER_ADDR")]
    if not launch.program.startswith("python") or is_torchrun(launch) or not any(map(_HEAD.search, addresses)):
        return  # each task may be a training of its own
    if len(drawn) == 1 and _is_quoted_in(script, launch.runner, drawn[0]):
        yield problem(
            drawn[0].value,
            f"each of the {count} tasks draws a MASTER_PORT of its own: none reaches rank 0 but rank 0",
            "export it in the batch script, before srun",
            level="error",
            why=_NEVER_MEET_BY_PORT,
        )


def _is_quoted_in(script: ShellScript, runner: Command, variable: EnvVar) -> bool:
    """Whether an assignment stands in single quotes among the words of srun, where only the tasks expand it."""
    at, lines = variable.span, script.lines
    first = runner.span.line - script.first_line
    last = at.line - script.first_line
    if not 0 <= first <= last < len(lines) or at.line > runner.span.end_line:
        return False
    before = "\n".join([*lines[first:last], lines[last][: at.column - 1]])
    quotes = re.findall(r"['\"]", before)
    return bool(quotes) and quotes[-1] == "'" and before.count("'") % 2 == 1


def different_directories(file: File, job: Job) -> Iterator[Problem]:
    """A directory for checkpoints whose name each node makes up."""
    launch, where, count = job.launch, job.checkpoint_dir, _count(file, job)
    if launch is None or where is None or count is None or launch.conditional or launch.branch:
        return
    other = _is_other_script(file, job)
    word = _different(launch, where, _CHANCE, job.pod is not None or other)
    if word and not (other and where.default):
        yield problem(
            where,
            f"each of the {count} nodes expands {word} for itself: the ranks write to different directories",
            "let the batch script expand it once, before srun",
            level="info" if other else "warning",
            why=_OWN_DIRECTORIES,
        )


def _count(file: File, job: Job) -> int | None:
    """The nodes or tasks that run the same command."""
    if job.pod is not None:
        count = known(job.extra.get("replicas"))
    elif _is_other_script(file, job):
        count = nodes_that_run(file)
    else:
        count = known(copies(job)) if job.launch is not None and job.launch.inside_srun else None
    return count if count is not None and count > 1 else None


def _is_other_script(file: File, job: Job) -> bool:
    """Whether the whole script may be what srun starts, so that nothing in it is expanded before."""
    return job.pod is None and file.format == "shell" and job.launch is not None and job.launch.runner is None


def _different(launch: Command, value: Value[str], pattern: re.Pattern[str], in_pod: bool) -> str:
    """The part of a value that each node expands to something else; empty where there is none."""
    match = pattern.search(value.value) if not value.known else None
    if match is None:
        return ""
    groups = match.groupdict()
    name = groups.get("random") or groups.get("name")
    by_batch = not in_pod and any(
        one == name or (one.startswith("$(") and one in value.value) or (not name and one in match[0])
        for one in launch.batch_variables
    )
    return "" if by_batch else f"${name}" if name else f"{match[0].rstrip()}…" if "(" in match[0] else match[0]
