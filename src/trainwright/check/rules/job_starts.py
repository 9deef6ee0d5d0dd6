"""JOB: what srun starts on each node of a batch script, where the file leaves no doubt: one launcher (torchrun or
accelerate) per node, with every word of it written down."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check.job_sizes import CHOOSING
from trainwright.check.launchers import is_torchrun
from trainwright.check.model import Command, File, Job, ShellScript, Value, stated
from trainwright.check.options import Options, split, table
from trainwright.check.readers.arguments import whole
from trainwright.check.registry import Problem, problem
from trainwright.check.working_directory import program_text
from trainwright.spec.source import Span

_COUNTS_TASKS = {"ntasks", "n", "ntasks-per-gpu", "ntasks-per-socket", "ntasks-per-core", "gpus-per-task"}
_ANOTHER_STEP = {"het_group", "multi_prog", "pack_group", "jobid"}
_TESTS = ("[", "[[", "test")
_READ_ONLY = {"hostname", "nvidia-smi", "date", "echo", "mkdir", "ls", "rm", "cp", "ip", "env", "nvcc", "sleep"}
_REMOTE = ("ssh", "pdsh", "clush", "parallel", "xargs", "mpirun", "mpiexec")
_MEET = ("rdzv_endpoint", "master_addr")
_ONLY_TORCHRUN = ("nproc_per_node", "rdzv_backend", "rdzv_endpoint", "rdzv_id", "rdzv_conf")
_STATE_MACHINES = {
    "num_machines", "machine_rank", "main_process_ip", "config_file", "rdzv_backend", "rdzv_conf", "deepspeed_hostfile",
    "cpu", "use_cpu", "tpu", "same_network",
}  # fmt: skip
_NODE_NUMBER = re.compile(r"SLURM_(NODEID|PROCID)")
_OWN_NODE = re.compile(r"SLURM_(PROCID|NODEID|LOCALID)|SLURMD_NODENAME|HOSTNAME|\$\(hostname")


def separate_starts(file: File, job: Job) -> Iterator[Problem]:
    """A launcher that never meets those of the other nodes."""
    launch, script = job.launch, job.script
    if launch is None or script is None or not is_certain(script, launch):
        return
    if is_torchrun(launch):
        yield from _torchruns(file, job, script, launch)
    elif launch.program == "accelerate" and [word.value for word in launch.words[1:2]] == ["launch"]:
        yield from _accelerates(file, job, script, launch)


def _torchruns(file: File, job: Job, script: ShellScript, launch: Command) -> Iterator[Problem]:
    options, program, words = split(launch, table()["torchrun"], _start(launch))
    if program is None or not program.known or not all_exist(options, table()["torchrun"]):
        return
    own = {_name(word): word for word in options}
    yield from _too_few(job, script, launch, own)
    nodes = nodes_with_one_task(job)
    if nodes is None:
        return
    if "standalone" in own:
        yield from _standalone(nodes, launch, own) if not runs_apart(file, job) else ()
    elif not any(name.startswith("nn") or name in _MEET for name in own) and not runs_apart(file, job):
        yield problem(
            launch.words[0],
            f"{nodes.value} nodes each start a run of their own (--nnodes is 1)",
            f"add --nnodes={nodes.value} --rdzv_backend=c10d --rdzv_endpoint=<first node>:<port>",
        )
        return
    yield from _misplaced(file, launch, program, words, own)


def _accelerates(file: File, job: Job, script: ShellScript, launch: Command) -> Iterator[Problem]:
    """accelerate has one machine by default; a configuration file may state others, with a rank for each."""
    options, program, _ = split(launch, table()["accelerate"], 2)
    nodes = nodes_with_one_task(job)
    if program is None or not program.known or nodes is None or runs_apart(file, job):
        return
    if not all_exist(options, table()["accelerate"]):
        return
    if {_name(word) for word in options} & _STATE_MACHINES or "ACCELERATE_" in script.text:
        return
    yield problem(
        launch.words[0],
        f"{nodes.value} nodes each start a run of their own: --num_machines is 1, unless the file that "
        "`accelerate config` writes says more",
        f"add --num_machines={nodes.value}, --num_processes with the GPUs of all nodes, --machine_rank, "
        "--main_process_ip and --main_process_port",
    )


def nodes_with_one_task(job: Job) -> Value[int] | None:
    """The nodes of a batch script on each of which a plain srun starts one task; None where there is a doubt."""
    nodes, runner = whole(job.directives.get("nodes")), job.launch.runner if job.launch is not None else None
    if nodes is None or (stated(nodes) or 0) < 2 or runner is None or runner.program != "srun":
        return None
    if runner.options.keys() & (CHOOSING | _ANOTHER_STEP) or "hetjob" in job.directives:
        return None
    each = whole(runner.options.get("ntasks_per_node") or job.directives.get("ntasks-per-node"))
    total = whole(job.directives.get("ntasks") or job.directives.get("n"))
    if each is None and total is not None:
        return nodes if stated(total) == nodes.value else None
    if each is None:
        given = job.directives.keys() | {name.replace("_", "-") for name in runner.options}
        return None if given & _COUNTS_TASKS else nodes
    return nodes if stated(each) == 1 else None


def is_certain(script: ShellScript, launch: Command) -> bool:
    """Whether srun starts the command on all its tasks alike, and no variable of torchrun's changes it."""
    if script.kind != "sbatch" or launch.conditional or launch.branch or re.search("hetjob|PET_", script.text):
        return False
    return not any(c.program in _TESTS and c.runner is launch.runner for c in script.commands)


def _start(launch: Command) -> int:
    """The first word after `torchrun` or `python -m torch.distributed.run`."""
    if launch.program == "torchrun":
        return 1
    return next(n for n, word in enumerate(launch.words, start=1) if word.value.startswith("torch.distributed."))


def _name(word: Value[str]) -> str:
    return word.value.partition("=")[0].lstrip("-").replace("-", "_")


def all_exist(options: list[Value[str]], known: Options) -> bool:
    """Whether the launcher has all these options; another may hide some, as where a variable holds a whole command."""
    return all(known.has(word.value.partition("=")[0]) for word in options)


def _standalone(nodes: Value[int], launch: Command, own: dict[str, Value[str]]) -> Iterator[Problem]:
    waited = stated(whole(launch.options.get("nnodes"))) if "nnodes" in own else 1
    fix = f"write --nnodes={nodes.value} --rdzv_backend=c10d --rdzv_endpoint=<first node>:<port> instead"
    if waited == 1:
        message = f"--standalone: {nodes.value} nodes each start a run of their own"
        yield problem(own["standalone"], message, fix)
    elif waited is not None and waited > 1:
        message = f"--standalone waits for {waited} nodes on the node itself: the job never starts"
        yield problem(own["standalone"], message, fix, level="error")


def split_by_node(script: ShellScript, words: list[Value[str]]) -> bool:
    """Whether each node gets a part of its own to work on, so that separate runs are meant."""
    return any(_OWN_NODE.search(word.value) for word in words) or _NODE_NUMBER.search(script.text) is not None


def runs_apart(file: File, job: Job) -> bool:
    """The same, or the program itself asks Slurm for its part."""
    if job.launch is None or job.script is None:
        return False
    text = program_text(file, job.launch)
    return split_by_node(job.script, job.launch.words) or bool(text and _NODE_NUMBER.search(text))


def _misplaced(
    file: File, launch: Command, program: Value[str], words: list[Value[str]], own: dict[str, Value[str]]
) -> Iterator[Problem]:
    """torchrun reads its options up to the script; what follows goes to the script."""
    late = [w for w in words if w.value.startswith("--") and _name(w) in _ONLY_TORCHRUN and _name(w) not in own]
    if not late or _reads(file, launch, _name(late[0])):
        return
    names = ", ".join(f"--{_name(word)}" for word in late)
    script = program.value.rsplit("/", 1)[-1]
    yield problem(
        late[0],
        f"{names}: torchrun takes no option after {script}; what follows goes to the script",
        f"write torchrun's options before {script}",
    )


def _reads(file: File, launch: Command, name: str) -> bool:
    """Whether the script is there and mentions the option, or cannot be read."""
    text = program_text(file, launch)
    return text is not None and (not text or name in text or name.replace("_", "-") in text)


def _too_few(job: Job, script: ShellScript, launch: Command, own: dict[str, Value[str]]) -> Iterator[Problem]:
    """`srun --ntasks=1 torchrun --nnodes=4`, where nothing else starts the other three."""
    waited = whole(launch.options.get("nnodes")) if "nnodes" in own else None
    started = _started(job, launch)
    if waited is None or waited.default or not waited.known or started is None or started[0] >= waited.value:
        return
    if "standalone" in own or elsewhere(script, launch):
        return
    if "node_rank" in own or "array" in job.directives:
        return  # the other ranks may be started by hand, or as tasks of the array
    count, place = started
    times = "once" if count == 1 else f"{count} times"
    yield problem(
        waited,
        f"torchrun waits for {waited.value} nodes, but srun starts it {times}: the job never starts",
        f"remove the option of srun on line {place.line}, or write --nnodes={count}",
        level="error",
    )


def _started(job: Job, launch: Command) -> tuple[int, Span] | None:
    """How many torchruns an srun with a number of its own starts."""
    runner = launch.runner
    if runner is None or runner.program != "srun" or runner.options.keys() & _ANOTHER_STEP:
        return None
    options = runner.options
    tasks, nodes = whole(options.get("ntasks") or options.get("n")), whole(options.get("nodes") or options.get("N"))
    if tasks is not None:
        count = stated(tasks)
        return (count, tasks.span) if count is not None else None
    each = whole(options.get("ntasks_per_node") or job.directives.get("ntasks-per-node"))
    others = (job.directives.keys() | {name.replace("_", "-") for name in options}) & _COUNTS_TASKS
    if nodes is None or others or (each is not None and stated(each) != 1):
        return None
    count = stated(nodes)
    return (count, nodes.span) if count is not None else None


def elsewhere(script: ShellScript, launch: Command) -> bool:
    """Whether another command of the script may start the rest."""
    steps = [c for c in script.commands if c.inside_srun and c is not launch and c.program not in _READ_ONLY]
    return any(c.span != launch.span for c in steps) or any(c.program in _REMOTE for c in script.commands)
