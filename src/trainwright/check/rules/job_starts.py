"""JOB: what srun starts on each node of a batch script, where the file leaves no doubt: one launcher (torchrun or
accelerate) per node, with every word of it written down."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check.launches.launchers import is_torchrun, launcher_of, own_options
from trainwright.check.launches.options import Options, split, table
from trainwright.check.launches.steps import copies, has_own_size, nodes_of_step, one_per_node, own_sizes
from trainwright.check.launches.working_directory import program_text
from trainwright.check.model import Command, File, Job, ShellScript, Value, stated
from trainwright.check.readers.arguments import whole
from trainwright.check.registry import Problem, problem
from trainwright.spec.source import Span

_TESTS = ("[", "[[", "test")
_READ_ONLY = {"hostname", "nvidia-smi", "date", "echo", "mkdir", "ls", "rm", "cp", "ip", "env", "nvcc", "sleep"}
_REMOTE = ("ssh", "pdsh", "clush", "parallel", "xargs", "mpirun", "mpiexec")
_MEET = ("rdzv_endpoint", "master_addr")
_JOIN = {
    "nnodes", "nnode", "rdzv_backend", "rdzv_endpoint", "master_addr", "standalone", "num_machines", "machine_rank",
    "main_process_ip", "hostfile", "config_file", "num_nodes",
}  # fmt: skip
_ONLY_TORCHRUN = ("nproc_per_node", "rdzv_backend", "rdzv_endpoint", "rdzv_id", "rdzv_conf")
_STATE_MACHINES = {
    "num_machines", "config_file", "rdzv_backend", "rdzv_conf", "deepspeed_hostfile", "cpu", "use_cpu", "tpu",
    "same_network",
}  # fmt: skip
_OF_SEVERAL = {"machine_rank", "main_process_ip"}
_NODE_NUMBER = re.compile(r"SLURM_(NODEID|PROCID)")
# Double quotes, so that the batch script still puts in its own variables.
IN_EACH_TASK = 'expanded by each task: srun bash -c "… {} \\$SLURM_NODEID …"'
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
    options, program, words = split(launch, table()["torchrun"], launcher_of(launch)[1])
    if program is None or not program.known or not all_exist(options, table()["torchrun"]):
        return
    own = {_name(word): word for word in options}
    yield from _too_few(job, script, launch, own)
    nodes = one_per_node(job)
    if nodes is None:
        return
    if "standalone" in own:
        yield from _standalone(nodes, launch, own) if not runs_separately(file, job) else ()
    elif not any(name.startswith("nn") or name in _MEET for name in own) and not runs_separately(file, job):
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
    nodes = one_per_node(job)
    if program is None or not program.known or nodes is None or not all_exist(options, table()["accelerate"]):
        return
    given = {_name(word) for word in options}
    if _all_gpus(job, launch, nodes.value) is False:
        given -= {"num_processes"}
    if given & _STATE_MACHINES or "ACCELERATE_" in script.text:
        return
    if not given & _OF_SEVERAL and runs_separately(file, job):
        return
    needed = {
        "num_machines": f"--num_machines={nodes.value}",
        "num_processes": "--num_processes with the GPUs of all nodes",
        "main_process_ip": "--main_process_ip with the first node",
        "main_process_port": "--main_process_port",
        "machine_rank": f"--machine_rank, {IN_EACH_TASK.format('--machine_rank')}",
    }
    missing = [text for name, text in needed.items() if name not in given]
    yield problem(
        launch.words[0],
        f"{nodes.value} nodes each start a run of their own: --num_machines is 1, unless the file that "
        "`accelerate config` writes says more",
        f"add {', and '.join(part for part in (', '.join(missing[:-1]), missing[-1]) if part)}",
        level="info" if given & _OF_SEVERAL else None,  # whoever gives these may have written that file
    )


def _all_gpus(job: Job, launch: Command, nodes: int) -> bool | None:
    """Whether accelerate gets the number of the GPUs of all nodes; None where it is not known."""
    total = stated(whole(own_options(launch).get("num_processes")))
    each = next((count.value for count in job.gpus_per_node if stated(count) is not None), None)
    if total is None or (each is None and total % nodes == 0):
        return None
    return each is not None and total == each * nodes


def is_certain(script: ShellScript, launch: Command) -> bool:
    """Whether srun starts the command on all its tasks alike, and no variable of torchrun's changes it."""
    if script.kind != "sbatch" or launch.conditional or launch.branch or script.derived(_has_other_sizes):
        return False
    if may_join_others(script):
        return False
    return id(launch.runner) not in script.derived(_runners_of_tests)


def may_join_others(script: ShellScript) -> bool:
    """Whether a branch of the script may add the options by which launchers find each other."""
    return not script.added_options.isdisjoint(_JOIN)


def _has_other_sizes(script: ShellScript) -> bool:
    return re.search("hetjob|PET_", script.text) is not None


def _runners_of_tests(script: ShellScript) -> set[int]:
    return {id(command.runner) for command in script.commands if command.program in _TESTS}


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


def splits_by_node(script: ShellScript, words: list[Value[str]]) -> bool:
    """Whether each node gets a part of its own to work on, so that separate runs are meant."""
    return any(_OWN_NODE.search(word.value) for word in words) or _NODE_NUMBER.search(script.text) is not None


def runs_separately(file: File, job: Job) -> bool:
    """The same, or the program itself asks Slurm for its part."""
    if job.launch is None or job.script is None:
        return False
    text = program_text(file, job.launch)
    return splits_by_node(job.script, job.launch.words) or bool(text and _NODE_NUMBER.search(text))


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
    waited, runner = stated(whole(launch.options.get("nnodes"))) if "nnodes" in own else None, launch.runner
    if waited is None or runner is None or not has_own_size(runner) or "standalone" in own:
        return
    if may_start_more(script, launch) or "node_rank" in own or "array" in job.directives:
        return  # the other ranks may be started by hand, or as tasks of the array
    started, nodes = copies(job), nodes_of_step(job)
    if started is not None and started.value < waited:
        times = "once" if started.value == 1 else f"{started.value} times"
        message = f"torchrun waits for {waited} nodes, but srun starts it {times}: the job never starts"
        fix = f"remove {own_sizes(runner)} of srun on line {runner.span.line}, or write --nnodes={started.value}"
    elif started is None and nodes is not None and nodes.value < waited:
        message = f"torchrun waits for {waited} nodes, but srun has {nodes.value} of them"
        fix = f"remove --nodes of srun on line {nodes.span.line}, or add --ntasks={nodes.value} to it and write "
        fix += f"--nnodes={nodes.value}"
    else:
        return
    yield problem(launch.options["nnodes"], message, fix, level="error")


def may_start_more(script: ShellScript, launch: Command) -> bool:
    """Whether another command of the script may start the rest."""
    spans, remote = script.derived(_other_starts)
    return remote or len(spans) > 1 or bool(spans - {launch.span})


def _other_starts(script: ShellScript) -> tuple[set[Span], bool]:
    """Where srun starts something, and whether ssh and the like may."""
    steps = {c.span for c in script.commands if c.inside_srun and c.program not in _READ_ONLY}
    return steps, any(c.program in _REMOTE for c in script.commands)
