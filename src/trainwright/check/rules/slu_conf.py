"""SLU: Slurm's own files: nodes, partitions, GPUs and switches agree, and GPU nodes are scheduled as such."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from trainwright.check.beside import file_beside
from trainwright.check.model import File, SlurmRecord, Value
from trainwright.check.readers.slurm_conf import hosts
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.rules.slu_memory import small_memories
from trainwright.check.rules.slu_partitions import without_partition
from trainwright.errors import did_you_mean, listed

_LISTED = 4
# Of Slurm 19.05 and older, the first with cons_tres.
_OLD = re.compile(
    r"^\s*(FastSchedule|ControlMachine|CheckpointType|CacheGroups|CryptoType)\s*=|\bShared=",
    re.MULTILINE | re.IGNORECASE,
)
_PRACTICE = re.compile(r"docker|container|\bfake\b|\bmock\b", re.IGNORECASE)  # of a cluster without devices to guard


@rule("SLU004", "error")
def slurm_files_agree(file: File) -> Iterator[Problem]:
    """slurm.conf, gres.conf and topology.conf must agree on nodes and GPUs.

    There is a partition, and it names nodes that are defined; no node and no partition is defined twice; a node with
    GPUs needs `GresTypes=gpu`; its GPUs in gres.conf are as many as in slurm.conf; the switches of topology.conf name
    switches that exist (an error) and nodes that exist (a warning: slurmctld passes over others). Host lists
    (`gpu[01-16]`) are expanded; a file with `Include` lines, or without a ClusterName, is part of another and not asked
    for what it does not define, and a topology that the slurm.conf beside it does not turn on is a note.

    Why: slurmctld does not start, or the node registers with other GPUs than are configured and is drained as
    INVALID, at the first start after the change and on every node at once. 64 p5.48xlarge cost 59 USD per minute
    (us-east-2, August 2026).

    Fix: as the message says.

    Source: Slurm 25.05, manual pages of slurm.conf, gres.conf and topology.conf; prices of August 2026.

    When to ignore: another tool completes the file before Slurm reads it.
    """
    if file.format == "slurm.conf":
        yield from _nodes(file)
        yield from _twice(file)
        yield from without_partition(file) if not _is_part(file) else ()
        yield from islice(_partitions(file), 1)
        yield from _gpu_counts(file)
    elif file.format == "topology.conf":
        yield from islice(_topology(file), 1)  # the topology of another cluster is one mistake


@rule("SLU005", "warning")
def gpu_nodes_are_scheduled(file: File) -> Iterator[Problem]:
    """A cluster with GPUs needs the plugins that schedule and separate them.

    `--gpus`, `--gpus-per-task` and `--cpus-per-gpu` need `SelectType=select/cons_tres`; without `task/cgroup` in
    TaskPlugin nothing but CUDA_VISIBLE_DEVICES keeps a job from the GPUs of other jobs on its node. The CPUs of a node
    are its sockets, its cores or its threads; sizes that are not stated are 1. RealMemory is in MB (1 where it is not
    stated). Reported is a RealMemory below what a job gets by default, and one that is the number of gigabytes in the
    comment on its line or above it: `RealMemory=2000` under `# 2000 GB` gives the node 2 GB; and one of more than
    1 TB per CPU, which is a number of kB.

    Why: jobs that ask by --gpus are refused; a job that sets CUDA_VISIBLE_DEVICES itself uses GPU 0 of another, and one
    of them runs out of memory. A CPU count that fits nothing is reset by slurmctld at its start.

    Fix: `SelectType=select/cons_tres`, `TaskPlugin=task/affinity,task/cgroup`, and ConstrainDevices=yes in cgroup.conf.

    Source: Slurm, generic resource scheduling (gres.html) and the manual page of cgroup.conf.

    When to ignore: users ask by --gres. On nodes with one GPU the missing task/cgroup is a note; where every job gets
    whole nodes (select/linear, OverSubscribe=EXCLUSIVE) it is not reported.
    """
    if file.format != "slurm.conf":
        return
    nodes = [record for record in file.slurm if record.kind == "nodename"]
    yield from small_memories(file)
    defaults = any(node.values["nodename"].value.upper() == "DEFAULT" for node in nodes)
    yield from (p for node in nodes for p in _cpus(node, defaults))
    if not any(_gpus(node) for node in nodes):
        return
    select, task = _setting(file, "selecttype"), _setting(file, "taskplugin")
    if select is not None and select.known and "/" not in select.value and select.value:
        what = f"slurmctld does not start: it finds no plugin of the name {select.value}, without select/"
        meant = f"select/{select.value}" if select.value in _SELECTS else "select/cons_tres"
        yield problem(select, what, _selected(file, meant), why=_NOT_FOUND)
    elif select is not None and select.known and select.value not in ("select/cons_tres", ""):
        what = f"with {select.value} sbatch refuses --gpus, --gpus-per-task and --cpus-per-gpu"
        mild = select.value == "select/linear" or _OLD.search(file.text)  # a job has all GPUs of its nodes anyway
        fix = _selected(file, "select/cons_tres")
        yield problem(select, what, fix, level="info" if mild else None, why=_NO_SUCH_OPTION)
    alone = all(count <= 1 for count in map(_gpus, nodes))
    # slurmd adds the prefix of a task plugin where it is left out; slurmctld adds none to a select plugin.
    tasks = [name.removeprefix("task/") for name in task.value.split(",")] if task is not None else []
    if task is not None and task.known and "cgroup" not in tasks and not _whole_nodes(file, select):
        plugins = ",".join([*_others(task.value), "task/cgroup"])
        yield problem(
            task,
            f"TaskPlugin={task.value}: only CUDA_VISIBLE_DEVICES keeps a job from the GPUs of other jobs on its node",
            f"write TaskPlugin={plugins}, and ConstrainDevices=yes in cgroup.conf",
            level="info" if alone or _PRACTICE.search(file.text) else None,
            why=_NO_FENCE,
        )


def _others(plugins: str) -> list[str]:
    """Task plugins that stay beside another one; task/none is the word for no plugin."""
    return [name for name in plugins.split(",") if name.removeprefix("task/") not in ("none", "")]


_SELECTS = ("linear", "cons_res", "cons_tres")
_NO_SUCH_OPTION = "sbatch ends with `Requested operation/option unsupported by configured SelectType plugin`."
_NO_FENCE = (
    "a job that sets CUDA_VISIBLE_DEVICES itself uses GPU 0 of another job, and one of the two runs out of memory."
)


def _selected(file: File, plugin: str) -> str:
    """The fix: a plugin that shares nodes needs to know by what, and slurmctld ends where only memory is named."""
    parameters = _setting(file, "selecttypeparameters")
    shares = parameters is None or re.search("cpu|core|socket|board", parameters.value, re.IGNORECASE)
    if plugin == "select/linear" or shares:
        return f"write {plugin}"
    return f"write {plugin}, and SelectTypeParameters=CR_Core_Memory"


def _setting(file: File, name: str) -> Value[str] | None:
    return next((r.values[name] for r in file.slurm if r.kind == "setting" and name in r.values), None)


def _is_part(file: File) -> bool:
    """Whether other files complete this one: it includes them, or lacks the name without which slurmctld stops."""
    return _setting(file, "clustername") is None or any(record.kind == "include" for record in file.slurm)


def _whole_nodes(file: File, select: Value[str] | None) -> bool:
    """Whether no two jobs share a node."""
    shared = [
        record.values.get("oversubscribe") or record.values.get("shared")
        for record in file.slurm
        if record.kind == "partitionname" and record.values["partitionname"].value.upper() != "DEFAULT"
    ]
    exclusive = [value is not None and value.value.upper().startswith("EXCLUSIVE") for value in shared]
    return (select is not None and select.value == "select/linear") or (bool(exclusive) and all(exclusive))


def _gpus(node: SlurmRecord) -> int:
    """The GPUs of a node: the sum of `gpu[:type][:count]`."""
    gres = node.values.get("gres")
    if gres is None or not gres.known:
        return 0
    total = 0
    for one in re.sub(r"\([^)]*\)", "", gres.value).split(","):
        name, *rest = one.strip().lower().split(":")
        total += (int(rest[-1]) if rest and rest[-1].isdecimal() else 1) if name == "gpu" else 0
    return total


def _named(file: File, kind: str) -> Iterator[tuple[SlurmRecord, Value[str], list[str]]]:
    for record in file.slurm:
        value = record.values.get(kind)
        if record.kind == kind and value is not None and value.value.upper() != "DEFAULT":
            yield record, value, (hosts(value.value) if value.known else None) or []


def _nodes(file: File) -> Iterator[Problem]:
    types = _setting(file, "grestypes")
    first: dict[str, int] = {}
    for record, value, names in _named(file, "nodename"):
        again = [name for name in names if name in first]
        if again:
            yield problem(
                value,
                f"{again[0]} is defined twice (first on line {first[again[0]]}): slurmctld does not start",
                "define every node once",
            )
        first |= dict.fromkeys(names, value.span.line)
        if (
            _gpus(record)
            and not _is_part(file)
            and (types is None or (types.known and "gpu" not in types.value.split(",")))
        ):
            yield problem(
                record.values["gres"],
                f"{value.value} has GPUs, but GresTypes does not name gpu: slurmctld ignores them",
                "add GresTypes=gpu" if types is None else f"write GresTypes={_with_gpu(types)}",
                why=_NO_GRES,
            )


_NO_GRES = "sbatch refuses every job that asks for a GPU: `Invalid generic resource (gres) specification`."


def _with_gpu(types: Value[str]) -> str:
    """A second line with GresTypes would replace the first."""
    return ",".join(["gpu", *(one for one in types.value.split(",") if one)])


def _twice(file: File) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for _, value, _ in _named(file, "partitionname"):
        if value.known and value.value in first:
            yield problem(
                value,
                f"the partition {value.value} is defined twice (first on line {first[value.value]}): slurmctld does "
                "not start",
                "define every partition once",
            )
        first.setdefault(value.value, value.span.line)


def _partitions(file: File) -> Iterator[Problem]:
    defined = {name for _, _, names in _named(file, "nodename") for name in names}
    unknown = any(not names for _, _, names in _named(file, "nodename"))
    open_ended = any(record.kind == "nodeset" for record in file.slurm)
    if not defined or unknown or open_ended or _is_part(file):
        return
    for record, partition, _ in _named(file, "partitionname"):
        value = record.values.get("nodes")
        if value is None or not value.known or value.value.upper() in ("ALL", ""):
            continue
        missing = [name for name in hosts(value.value) or [] if name not in defined]
        if missing:
            yield problem(
                value,
                f"the partition {partition.value} names {listed(missing, _LISTED)}, which no NodeName defines",
                "define the node, or correct the name",
            )


def _gpu_counts(file: File) -> Iterator[Problem]:
    """GPUs per node here and in the gres.conf beside it; what slurmd detects itself is not known."""
    gres = file_beside(file.path, "gres.conf") if file.path != "<stdin>" else None
    if gres is None or gres.format != "gres.conf":
        return
    if any("autodetect" in r.values and r.values["autodetect"].value.lower() != "off" for r in gres.slurm):
        return
    nodes = [(record, value, names) for record, value, names in _named(file, "nodename") if _gpus(record) and names]
    local = any(record.kind == "gres" and "nodename" not in record.values for record in gres.slurm)
    if local and len({_gpus(record) for record, _, _ in nodes}) > 1:
        return  # a file of one node, and which one is not said
    for record, value, names in nodes:
        stated, listed = _gpus(record), _listed_gpus(gres, names[0])
        if listed is not None and listed != stated:
            what = "the node is drained as INVALID" if listed < stated else "the others are never used"
            yield problem(
                record.values["gres"],
                f"{value.value} has {stated} GPUs here, and {listed} in gres.conf: {what}",
                "make the two equal",
                level=None if listed < stated else "warning",
                why="" if listed < stated else "Slurm places jobs on the GPUs of slurm.conf alone.",
            )


def _listed_gpus(gres: File, node: str) -> int | None:
    total = 0
    for record in gres.slurm:
        if record.kind != "gres" or record.values["name"].value.lower() != "gpu":
            continue
        owner = record.values.get("nodename")
        names = hosts(owner.value) if owner is not None else [node]
        if names is None:
            return None
        if node in names:
            total += _devices(record)
    return total or None  # nothing is said about the node: slurmd reports none, or another file does


def _devices(record: SlurmRecord) -> int:
    count, files = record.values.get("count"), record.values.get("file")
    if count is not None and count.value.isdecimal():
        return int(count.value)
    return len(hosts(files.value) or [""]) if files is not None else 1


def _topology(file: File) -> Iterator[Problem]:
    switches = {name for _, _, names in _named(file, "switchname") for name in names}
    slurm = file_beside(file.path, "slurm.conf") if file.path != "<stdin>" else None
    defined = {name for _, _, names in _named(slurm, "nodename") for name in names} if slurm is not None else set()
    whole = slurm is not None and not any(record.kind == "include" for record in slurm.slurm)
    plugin = _setting(slurm, "topologyplugin") if slurm is not None else None
    used = not whole or (plugin is not None and plugin.value not in ("topology/none", "topology/default", ""))
    for record in file.slurm:
        below, nodes = record.values.get("switches"), record.values.get("nodes")
        missing = [name for name in hosts(below.value) or [] if name not in switches] if below is not None else []
        if below is not None and below.known and missing:
            yield problem(
                below,
                f"the switch {missing[0]} is not defined",
                did_you_mean(missing[0], sorted(switches)) or "define it with SwitchName",
                level=None if used else "info",
            )
        absent = [name for name in hosts(nodes.value) or [] if name not in defined] if nodes is not None else []
        if nodes is not None and nodes.known and absent and defined and whole:
            yield problem(
                nodes,
                f"slurm.conf defines no node {listed(absent, _LISTED)}",
                "correct the name, or define the node",
                level="warning" if used else "info",
                why="slurmctld logs 1 error, passes over the name and places no job by it.",
            )


def _cpus(node: SlurmRecord, defaults: bool) -> Iterator[Problem]:
    cpus = node.values.get("cpus") or node.values.get("procs")
    sockets = node.values.get("sockets") or node.values.get("socketsperboard")
    sizes = [sockets, node.values.get("corespersocket"), node.values.get("threadspercore")]
    if cpus is None or sockets is None or (defaults and None in sizes):  # a DEFAULT line may state the others
        return
    texts = [cpus.value, *(v.value if v is not None else "1" for v in sizes)]
    if not all(text.isdecimal() for text in texts):
        return
    numbers = [int(text) for text in texts[1:]]
    boards = node.values.get("boards")
    per_board = "socketsperboard" in node.values and boards is not None and boards.value.isdecimal()
    count = numbers[0] * (int(boards.value) if per_board and boards is not None else 1)
    fits = {count, count * numbers[1], count * numbers[1] * numbers[2]}
    if int(cpus.value) not in fits:
        yield problem(
            cpus,
            f"CPUs={cpus.value} is neither {count} sockets, {count * numbers[1]} cores nor "
            f"{count * numbers[1] * numbers[2]} threads: slurmctld resets it to {count * numbers[1] * numbers[2]}",
            _right_sizes(int(cpus.value), count * numbers[1], sizes[2]),
            why=_RESET,
        )


_NOT_FOUND = "slurmctld ends at its first start with this file, and no job runs."
_RESET = "slurmctld logs 1 error and takes the product of the sizes for the CPUs of the node."


def _right_sizes(cpus: int, cores: int, threads: Value[str] | None) -> str:
    """What makes the two agree: the threads that are missing, or what the node says of itself."""
    if threads is None and cpus == 2 * cores:
        return "add ThreadsPerCore=2 if the node has it, or correct CPUs"
    return "write what `slurmd -C` prints on the node"
