"""JOB: the ranks of a job: which number each node and each task gets."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.finding import Level
from trainwright.check.launches.job_sizes import once
from trainwright.check.launches.launchers import hides_options, is_program, is_torchrun, own_options
from trainwright.check.launches.steps import copies, is_whole_job, one_per_node
from trainwright.check.launches.working_directory import program_text
from trainwright.check.model import Command, EnvVar, File, Job, ShellScript, known, stated
from trainwright.check.programs.data_parts import global_devices, local_samplers
from trainwright.check.programs.training_script import script_of
from trainwright.check.readers.arguments import whole
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.rules.job_devices import LOCAL_RANK, MOST_GPUS, described_launches, unpassed_options
from trainwright.check.rules.job_ports import without_port
from trainwright.check.rules.job_resources import one_task
from trainwright.check.rules.job_starts import IN_EACH_TASK, is_certain, runs_separately

_RANK_VARIABLES = {"SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID"}
_READS_SIZE = re.compile(r"""init_process_group\((?![^)]*\bworld_size\s*=)|["']WORLD_SIZE["']|env://""")
_STARTS_MORE = re.compile(r"\bspawn\b|multiprocessing|SLURM_")
_READS_RANK = re.compile(r"""init_process_group\((?![^)]*\brank\s*=)|["']RANK["']|env://""")
_ONE_NODE = re.compile(r"set_device|DistributedSampler")
_OWN_RANKS = ("accelerate", "deepspeed", "composer", "hyperpodrun")  # as torchrun, they set RANK for each process


@rule("JOB008", "error")
def node_rank_differs_by_node(file: File) -> Iterator[Problem]:
    """The node rank must be different on every node.

    A literal `--node_rank 0` in a command that runs on every node makes each of them node 0, and so does no rank at all
    where the rendezvous is static (`--master_addr` without a backend; of accelerate a warning). So does
    `$SLURM_NODEID` or `$SLURM_PROCID` among the arguments of srun: the batch script, which runs on the first node only,
    expands it to 0 before srun starts the tasks. `export RANK=$SLURM_PROCID` in the batch script gives every task 0 as
    well (a note where the program is not at hand, or asks Slurm itself), and an exported WORLD_SIZE must count the
    tasks of all nodes (a note under the same condition). A program beside the launcher, started by torchrun on several
    nodes, that gives the global rank to `torch.cuda.set_device` where a node has fewer GPUs than the job has ranks, or
    divides the data by the local rank (a warning), or whose option `--local_rank` chooses the GPU: torchrun does not
    pass it, so that the default holds. A script whose own text names the torchrun of several nodes and that gives the
    global rank to set_device (a warning).

    Why: the rendezvous waits 10 minutes for ranks that never join (torch, `join_timeout` of 600 s), or the nodes train
    separately without an error.

    Fix: let torchrun assign the rank (`--rdzv_backend=c10d`), or let the shell of each task expand the variable: `srun
    bash -c 'torchrun --node_rank $SLURM_NODEID …'`.

    Source: Slurm sets SLURM_NODEID per task; the distillation and ESM2 launchers of awsome-distributed-ai.

    When to ignore: a wrapper that the file does not show overrides the rank on each node.
    """
    yield from described_launches(file)
    for rules in (_node_ranks, _exported, _of_one_node, unpassed_options):
        yield from once(p for job in file.jobs for p in rules(file, job))


def _node_ranks(file: File, job: Job) -> Iterator[Problem]:
    rank, launch = job.extra.get("node_rank"), job.launch
    if launch is None or _finds_ranks(launch):
        return
    if rank is None:
        yield from _omitted(file, job, launch)
        return
    same = _same_on(job)
    if rank.known and not rank.default and rank.value.isdecimal() and same is not None:
        ours = _assigned(launch) if is_torchrun(launch) else ""
        yield problem(
            rank,
            f"the node rank is {rank.value} on each of the {same} nodes",
            f"{ours}{_of_each_node(job, launch)}",
            level="info" if is_program(launch) or launch.branch else None,  # what a program does with it, it knows
        )
        return
    variable = next((name for name in sorted(_RANK_VARIABLES) if re.search(rf"\$\{{?{name}\b", rank.value)), None)
    right = "SLURM_NODEID" if variable == "SLURM_LOCALID" else variable  # which counts the tasks of one node
    if variable is not None and variable in launch.batch_variables and launch.inside_srun and known(job.nodes) != 1:
        yield problem(
            rank,
            f"${variable} is expanded by the batch script, on the first node: every node gets rank 0",
            f'let the task expand it: srun bash -c "… {_option(launch)} \\${right} …", with the backslash'
            + _one_launcher(job, launch)
            + _others_too(job, launch),
            level=_level_by_option(file, launch),
        )


def _one_launcher(job: Job, launch: Command) -> str:
    """Several tasks of a node would each start accelerate with its rank; of torchrun JOB001 says so."""
    tasks = stated(job.tasks_per_node) or 1
    return f", and {one_task(job, tasks)}" if launch.program == "accelerate" and tasks > 1 else ""


def _others_too(job: Job, launch: Command) -> str:
    """What the nodes need beside their ranks, where every option of the launcher is written down."""
    own, nodes = own_options(launch), stated(whole(job.directives.get("nodes")))
    if hides_options(launch.words) or "config_file" in own or nodes is None:
        return ""
    if launch.program == "accelerate" and "num_machines" not in own:
        return f"; and add --num_machines={nodes}"
    if is_torchrun(launch) and not own.keys() & (_MEETS | {"standalone", "rdzv_conf"}):
        return "; and add --master_addr with the first node of the job, and --master_port"
    return ""


def _assigned(launch: Command) -> str:
    """c10d numbers the nodes itself, and reads no --master_addr."""
    endpoint = "" if "rdzv_endpoint" in own_options(launch) else " with --rdzv_endpoint in place of --master_addr"
    return f"let the launcher assign it (--rdzv_backend=c10d{endpoint}), or "


def _of_each_node(job: Job, launch: Command) -> str:
    if job.pod is None and launch.inside_srun:
        return f"read it from $SLURM_NODEID, {IN_EACH_TASK.format(_option(launch))}"
    return "read it from the node's environment"


def _omitted(file: File, job: Job, launch: Command) -> Iterator[Problem]:
    """A static rendezvous of several nodes without a rank, which is 0 on each of them."""
    script, nodes, own = job.script, one_per_node(job), own_options(launch)
    accelerate = launch.program == "accelerate"
    at = own.get("num_machines" if accelerate else "nnodes")
    if script is None or nodes is None or at is None or not (accelerate or is_torchrun(launch)):
        return
    if own.keys() & _OTHER_WAYS or not own.keys() & _MEETS or not is_certain(script, launch):
        return
    if "rdzv_endpoint" in own and without_port(job, own["rdzv_endpoint"]):
        return  # JOB009 asks for the backend that needs no rank
    if stated(whole(at)) in (None, 1) or hides_options(launch.words) or "ACCELERATE_" in script.text:
        return
    if not runs_separately(file, job):
        yield problem(
            at,
            f"no {_option(launch)}: it is 0 on each of the {nodes.value} nodes",
            f"add {_option(launch)}, {IN_EACH_TASK.format(_option(launch))}"
            + ("" if accelerate else "; or --rdzv_backend=c10d with --rdzv_endpoint, which needs none"),
            level="warning" if accelerate else None,  # a file of `accelerate config` may be another on each node
        )


_OTHER_WAYS = {"standalone", "config_file", "use_deepspeed", "deepspeed_hostfile", "rdzv_conf", "cpu", "use_cpu", "tpu"}
_MEETS = {"master_addr", "rdzv_endpoint", "main_process_ip"}


def _option(launch: Command) -> str:
    return "--machine_rank" if launch.program == "accelerate" else "--node_rank"


def _level_by_option(file: File, launch: Command) -> Level | None:
    """A launcher needs the rank; a program at hand that asks Slurm itself, or never mentions it, does not."""
    if not is_program(launch):
        return None
    text = program_text(file, launch)
    return None if text is not None and "node_rank" in text and "SLURM_" not in text else "info"


def _finds_ranks(launch: Command) -> bool:
    """Every backend but the static one assigns the ranks itself and ignores the option. (The one of accelerate's
    configuration file is not read.)"""
    backend = own_options(launch).get("rdzv_backend")
    return backend is not None and backend.value != "static"


def _same_on(job: Job) -> int | None:
    """On how many nodes the same command runs, where they are several."""
    started = job.pod.replicas if job.pod is not None else copies(job)
    count = known(started)
    if count is not None and job.pod is None:
        count = min(count, known(job.nodes) or count)  # of several tasks per node JOB001 says so
    return count if count is not None and count > 1 else None


def _exported(file: File, job: Job) -> Iterator[Problem]:
    """RANK and WORLD_SIZE that the batch script exports to the tasks of `srun python train.py`."""
    launch, script, runner = job.launch, job.script, job.launch.runner if job.launch is not None else None
    if launch is None or script is None or script.kind != "sbatch" or runner is None or runner.program != "srun":
        return
    if is_torchrun(launch) or launch.program in _OWN_RANKS or not is_whole_job(runner) or not _tasks(job):
        return
    rank, total = (_exported_before(script, name, runner) for name in ("RANK", "WORLD_SIZE"))
    match = re.fullmatch(r"\$\{?(SLURM_\w+)\}?", rank.value.value.strip("\"'")) if rank is not None else None
    if rank is not None and match is not None and match[1] in _RANK_VARIABLES:
        yield problem(
            rank.value,
            f"${match[1]} is expanded once, by the batch script: RANK is 0 in each of the {_tasks(job)} tasks",
            "let each task set it: srun bash -c 'export RANK=$SLURM_PROCID; …', or read $SLURM_PROCID in the script",
            level=_level_by_program(file, launch),
        )
    size = whole(total.value) if total is not None else None
    if size is not None and size.known and size.value != _tasks(job) and not _counts_gpus(job, size.value):
        text = program_text(file, launch)
        reads = text is not None and _READS_SIZE.search(text) is not None and _STARTS_MORE.search(text) is None
        yield problem(
            size,
            f"WORLD_SIZE is {size.value}, and srun starts {_tasks(job)} tasks",
            "write WORLD_SIZE=$SLURM_NTASKS",
            level=None if reads else "info",
        )


def _counts_gpus(job: Job, size: int) -> bool:
    """Whether each task may start a process for each of its node's GPUs."""
    nodes = known(job.nodes)
    return any(value.known and nodes is not None and nodes * value.value == size for value in job.gpus_per_node)


def _level_by_program(file: File, launch: Command) -> Level | None:
    """Whether the program reads RANK, its own code decides; where that is not at hand, it is a note."""
    text = program_text(file, launch)
    reads = text is not None and "SLURM_PROCID" not in text and _READS_RANK.search(text) is not None
    return None if reads else "info"


def _tasks(job: Job) -> int | None:
    """Tasks that a plain srun starts on several nodes or GPUs."""
    started = copies(job)
    return started.value if started is not None and started.value > 1 else None


def _exported_before(script: ShellScript, name: str, runner: Command) -> EnvVar | None:
    """The last export of a variable that the batch script itself sets, not a shell that srun starts."""
    exported = script.exports_of(name)
    count = bisect_left(exported, runner.span.line, key=lambda variable: variable.span.line)
    return exported[count - 1] if count else None


def _of_one_node(file: File, job: Job) -> Iterator[Problem]:
    """Programs that take a rank among all nodes for one on their node, or the other way round."""
    launch, nodes = job.launch, known(job.nodes)
    if launch is None or nodes is None or nodes < 2 or not is_torchrun(launch) or launch.branch:
        return
    each = whole(own_options(launch).get("nproc_per_node"))
    if each is None or not each.known or each.value < 2:
        return
    text = program_text(file, launch) or ""
    script = script_of(File("program.py", text, "python")) if _ONE_NODE.search(text) else None
    if script is None:
        return
    gpus = max((value.value for value in job.gpus_per_node if value.known), default=MOST_GPUS)
    for call in global_devices(script.parents) if nodes * each.value > gpus else ():
        yield problem(
            launch.span,
            f"line {call.lineno} of the program gives the rank among {nodes * each.value} to set_device, on nodes of "
            f"{gpus} GPUs",
            LOCAL_RANK,
            why=reasons.NO_SUCH_GPU,
        )
    for call in local_samplers(script.parents, text):
        yield problem(
            launch.span,
            f"line {call.lineno} of the program divides the data by the ranks of one node: all {nodes} nodes read the "
            "same parts",
            "leave num_replicas and rank of DistributedSampler out: it asks the process group",
            level="warning",
            why=reasons.PART_OF_ONE_NODE,
        )
