"""The parts of an sbatch script, and how much of the cluster it takes: nodes, processes, GPUs and CPUs per node."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from trainwright.adopt.launch import Launched, taken_apart
from trainwright.adopt.result import Adoption
from trainwright.adopt.tables import table
from trainwright.catalog.instances import find_instance
from trainwright.check.model import Command, File, ShellScript, Value
from trainwright.check.readers.instance_hint import instance_of
from trainwright.check.readers.shell_launch import is_launcher

_GPUS = re.compile(r"(?:gpu:)?(?:[A-Za-z][\w.-]*:)?(\d+)(?:\(.*\))?")
STEPS = ("srun", "mpirun", "mpiexec")
WRAPPERS = ("apptainer", "singularity", "podman", "docker", "shifter", "ch-run")
_LAUNCHERS = {"torchrun": 3, "composer": 3, "accelerate": 3, "deepspeed": 3}


@dataclass(slots=True)
class BatchScript:
    """A batch script: its directives, the command that trains, and the srun or mpirun around it."""

    script: ShellScript
    said: dict[str, Value[str]]
    launch: Command | None
    launched: Launched

    @classmethod
    def of(cls, file: File) -> BatchScript:
        script = file.scripts[0]
        launch = _main_launch(script)
        launched = taken_apart(_without_empty(launch, script)) if launch is not None else Launched("plain", [])
        launched.words = [*_wrapper(script, launch), *launched.words]
        return cls(script, dict(script.directives), launch, launched)

    @property
    def runner(self) -> Command | None:
        return self.launch.runner if self.launch is not None else None

    def option(self, *names: str) -> Value[str] | None:
        """An option of the srun or mpirun around the launch."""
        options = self.runner.options if self.runner is not None else {}
        return next((options[name] for name in names if name in options), None)


class Sizes:
    """Reads the sizes of a batch script into the queue and the job of a spec."""

    def __init__(self, batch: BatchScript, result: Adoption) -> None:
        self.batch, self.result = batch, result
        self.script, self.said, self.launched = batch.script, batch.said, batch.launched

    def apply(self) -> None:
        """Nodes, processes, GPUs and CPUs per node."""
        nodes = self._nodes()
        tasks = self._tasks(nodes)
        processes = self._processes(tasks)
        gpus = self._gpus()
        if self.launched.launcher == "srun" and processes == 1 and gpus > 1:
            self.launched.launcher = "plain"
        queue, job = self.result.queue, self.result.job
        queue["nodes"], job["nodes"] = nodes, nodes
        job["processes"] = processes
        self._cpus(processes, tasks)
        if gpus:
            queue["gpus"] = gpus

    def _number(self, *values: Value[str] | None) -> tuple[int, Value[str]] | None:
        for value in values:
            if value is not None and value.known and re.fullmatch(r"\d{1,7}", value.value.strip()):
                return int(value.value), value
        return None

    def _nodes(self) -> int:
        step = (
            self.batch.option("nodes", "N")
            if self.batch.runner is not None and self.batch.runner.program == "srun"
            else None
        )
        whole = self.said.get("nodes")
        low = whole.meaning(whole.value.split("-")[0]) if whole is not None else None
        number = self._number(step, low, self.launched.nodes)
        tasks, each = self._number(self.said.get("ntasks")), self._number(self.said.get("ntasks-per-node"))
        if number is not None:
            self.result.carry(f"nodes={number[0]}", number[1], f"nodes: {number[0]}")
            return max(1, number[0])
        if tasks is not None and each is not None and each[0]:
            return max(1, tasks[0] // each[0])
        gpus = self._directive_gpus()
        if tasks is not None and gpus and tasks[0] % gpus == 0:
            count = tasks[0] // gpus
            self.result.assume(f"nodes: {count}", tasks[1], f"{tasks[0]} tasks, one per GPU, {gpus} GPUs per node")
            return count
        self.result.assume("nodes: 1", None, "the script does not say how many nodes it takes")
        return 1

    def _tasks(self, nodes: int) -> int:
        """Tasks per node that Slurm starts."""
        each = self._number(self.batch.option("ntasks_per_node"), self.batch.option("npernode"))
        if each is not None:
            return each[0]
        total = self._number(self.batch.option("ntasks", "n", "np"))
        if total is not None and self.batch.runner is not None and not self._per_node_loop():
            return max(1, total[0] // nodes)
        each = self._number(self.said.get("ntasks-per-node"))
        if each is not None:
            return each[0]
        total = self._number(self.said.get("ntasks"))
        return max(1, total[0] // nodes) if total is not None else 1

    def _quiet_nodes(self) -> int:
        number = self._number(self.said.get("nodes"), self.launched.nodes)
        return max(1, number[0]) if number is not None else 1

    def _per_node_loop(self) -> bool:
        """`srun --nodelist=$NODE --ntasks=1` in a loop: one step for each node."""
        return self.batch.option("nodelist", "w") is not None and not self.batch.option("nodes", "N")

    def _processes(self, tasks: int) -> int:
        launched = self.launched
        if launched.launcher == "torchrun":
            stated = self._number(launched.processes)
            if stated is not None:
                self.result.carry(f"--nproc_per_node={stated[0]}", stated[1], f"processes: {stated[0]}")
                return stated[0]
            gpus = self._directive_gpus()
            self.result.assume(f"processes: {gpus or 1}", launched.processes, "one per GPU: the script names no number")
            return gpus or 1
        if launched.launcher == "plain":
            return 1
        if tasks > 1:
            self.result.carry(f"{tasks} tasks per node", self.said.get("ntasks-per-node"), f"processes: {tasks}")
        return tasks

    def _directive_gpus(self) -> int:
        for name in ("gpus-per-node", "gres"):
            value = self.said.get(name) or self.batch.option(name.replace("-", "_"))
            match = _GPUS.fullmatch(value.value.split(",")[0]) if value is not None else None
            if match is not None and (name != "gres" or value is None or value.value.startswith("gpu")):
                return int(match[1])
        each = self.said.get("gpus-per-task")
        match = _GPUS.fullmatch(each.value) if each is not None else None
        tasks = self._number(self.said.get("ntasks-per-node"))
        if match is not None:
            return int(match[1]) * (tasks[0] if tasks is not None else 1)
        total = self.said.get("gpus")
        match = _GPUS.fullmatch(total.value) if total is not None else None
        return int(match[1]) // self._quiet_nodes() if match is not None else 0

    def _gpus(self) -> int:
        stated = self._directive_gpus()
        if stated:
            for name in ("gpus-per-node", "gres", "gpus", "gpus-per-task"):
                if name in self.said:
                    self.result.carry(f"{stated} GPUs per node (--{name})", self.said[name], f"queue: gpus: {stated}")
            return stated
        named = [e for e in self.script.assignments if re.search(r"GPUS?_PER_NODE|NPROC|NUM_GPUS", e.name)]
        number = self._number(*(entry.value for entry in named), self.launched.processes) or self._share_of_world()
        if number is None or self._on_cpus():
            return 0
        self.result.assume(
            f"queue: gpus: {number[0]}", number[1],
            "the script asks Slurm for no GPUs and starts as many processes; `gpus: 0` where Slurm does not count them",
        )  # fmt: skip
        return number[0]

    def _share_of_world(self) -> tuple[int, Value[str]] | None:
        """`accelerate launch --num_processes` counts the processes of all machines."""
        world, nodes = self._number(self.launched.world), self._quiet_nodes()
        return (world[0] // nodes, world[1]) if world is not None and world[0] % nodes == 0 else None

    def _on_cpus(self) -> bool:
        """Whether the processes use no GPUs: they are hidden from them, or the script is for Neuron."""
        hidden = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
        values = {entry.name: entry.value.value for entry in self.script.env}
        words = " ".join(word.value for word in self.launched.words)
        return any(values.get(name) in ("", "-1", "void", "none") for name in hidden) or bool(
            re.search(r"gloo|use_cpu|device[= ]cpu|\bcpu\b|nxd|neuron", words)
            or any(name.startswith("NEURON_") for name in values)
        )

    def _cpus(self, processes: int, tasks: int) -> None:
        stated = self._number(self.said.get("cpus-per-task"), self.batch.option("cpus_per_task", "c"))
        instance = instance_of(self.script)
        known = find_instance(instance.value) if instance is not None else None
        if stated is not None:
            self.result.queue["cpus"] = stated[0] * tasks
            self.result.carry(f"--cpus-per-task={stated[0]}", stated[1], f"queue: cpus: {stated[0] * tasks}")
        elif known is not None and instance is not None:
            self.result.queue["cpus"] = known.vcpus
            self.result.assume(f"queue: cpus: {known.vcpus}", instance, f"the script is written for {known.name}")
        elif self.result.queue.get("exclusive"):
            self.result.assume(
                "no cpus", None,
                "the script does not say how many CPUs a node has: the job shares out those that it finds",
            )  # fmt: skip
        else:
            self.result.queue["cpus"] = max(1, processes)
            self.result.assume(
                f"queue: cpus: {max(1, processes)}", None,
                "the script does not say how many CPUs a node has; `trainwright discover` reads it from the cluster",
            )  # fmt: skip


def _wrapper(script: ShellScript, launch: Command | None) -> list[Value[str]]:
    """`srun apptainer exec image …`: the words of another container runtime, which start the rank's own command."""
    if launch is None or launch.runner is None or launch.runner.program != "srun":
        return []
    runner, commands = launch.runner, script.commands
    first = next((i for i, word in enumerate(runner.words) if word.value.rsplit("/", 1)[-1] in WRAPPERS), None)
    if not first:
        return []
    places = [index for index, command in enumerate(commands) if command is runner or command is launch]
    between = [word for command in commands[places[0] + 1 : places[-1]] for word in command.words]
    return [*runner.words[first:], *between]


def _without_empty(command: Command, script: ShellScript) -> Command:
    """The command without words before its program that are empty here (`"${ARGS[@]}"` that nothing sets); a program
    that a variable names, and that is told how many processes to start, is torchrun."""
    words = list(command.words)
    while len(words) > 1 and not words[0].known:
        name = re.fullmatch(r"\$\{?(\w+)(\[[@*]\])?\}?", words[0].value)
        if name is None or (name[2] is None and not words[1].value.startswith("$") and not is_launcher(words[1].value)):
            break
        if name[1] in script.assigned:
            break
        words = words[1:]
        while len(words) > 1 and words[0].value.startswith("-"):
            words = words[1:]
    options = {word.value.lstrip("-").split("=")[0].replace("-", "_") for word in words[1:4]}
    if words and not words[0].known and options & {"nproc_per_node", "nnodes"}:
        words[0] = Value("torchrun", words[0].span, words[0].text)
    return replace(command, words=words)


def _main_launch(script: ShellScript) -> Command | None:
    """The command that trains: the one that looks most like it, the last of equals."""
    none = set(table()["commands"]["no_rank"])

    def weight(item: tuple[int, Command]) -> tuple[int, int, int, int]:
        index, command = item
        launcher = _LAUNCHERS.get(command.program, 2 if _is_torchrun(command) else 1 if command.inside_srun else 0)
        one_liner = len(command.words) > 1 and command.words[1].value == "-c"
        return (0 if one_liner else 1, launcher, min(len(command.options), 3), index)

    candidates = [
        (index, command)
        for index, command in enumerate(script.commands)
        if command.program not in none
        and command.program not in STEPS
        and (command.inside_srun or is_launcher(command.program) or command.program in ("bash", "sh"))
        and not (
            command.program in ("bash", "sh") and len(command.words) > 1 and command.words[1].value.startswith("-")
        )
    ]
    return max(candidates, key=weight)[1] if candidates else None


def _is_torchrun(command: Command) -> bool:
    return any(word.value in ("torch.distributed.run", "torch.distributed.launch") for word in command.words[1:4])
