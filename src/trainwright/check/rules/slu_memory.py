"""SLU: the memory of nodes in slurm.conf, which is in megabytes everywhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from trainwright.check.model import File, SlurmRecord, Value
from trainwright.check.readers.slurm_conf import hosts
from trainwright.check.registry import Problem, problem

_DEFAULTS = {"defmempernode": "DefMemPerNode", "defmempergpu": "DefMemPerGPU", "defmempercpu": "DefMemPerCPU"}
_SIZE = re.compile(r"(?<![\w.])(\d+(?:[.,]\d+)?)\s*(TB|TiB|To|T|GB|GiB|Go|G)\b", re.IGNORECASE)
_MEGABYTES = (
    "RealMemory and the defaults are in MB: a job gets no node that has less than it asks for, and waits with "
    "`Requested node configuration is not available`. 1000 is 1 GB."
)

_ONE_MEGABYTE = (
    "RealMemory is 1 MB where it is not stated: sbatch refuses every job that asks for more, or gets more by default, "
    "with `Memory specification can not be satisfied`."
)
_MOST_PER_CPU = 1_000_000  # MB; 24 TiB for 448 vCPUs is the largest that AWS sells
_TAKES_THE_REAL_SIZE = re.compile(r"^\s*FastSchedule\s*=\s*0", re.MULTILINE | re.IGNORECASE)


def small_memories(file: File) -> Iterator[Problem]:
    """Nodes with less memory than jobs get by default, or a thousandth of what the comment says."""
    yield from islice(_without_memory(file), 1)
    yield from _kilobytes(file)
    nodes = [record for record in file.slurm if record.kind == "nodename" and _number(record, "realmemory")]
    for node in nodes:
        real, said = node.values["realmemory"], _said(file, node.values["realmemory"])
        default = _default_above(file, node, int(real.value))
        if said:
            message = f"RealMemory={real.value} is {real.value} MB, and the comment says {said}"
        elif default:
            message = f"RealMemory={real.value} MB is less than {default}: jobs that state no memory never start there"
        else:
            continue
        fix = f"write {int(real.value) * 1000}, or what `slurmd -C` prints on the node"
        yield problem(real, message, fix, why=_MEGABYTES)


def _kilobytes(file: File) -> Iterator[Problem]:
    """More memory per CPU than any machine has: what `free` and /proc/meminfo print is in kB."""
    for node in file.slurm:
        cpus = next((node.values[key] for key in ("cpus", "procs") if _number(node, key)), None)
        if node.kind == "nodename" and cpus is not None and _number(node, "realmemory"):
            real = node.values["realmemory"]
            if int(real.value) > _MOST_PER_CPU * int(cpus.value):
                yield problem(
                    real,
                    f"RealMemory={real.value} is {int(real.value) / 1024**2:,.1f} TiB for {cpus.value} CPUs: it is in "
                    "MB, and this looks like kB",
                    f"write {int(real.value) // 1024}, or what `slurmd -C` prints on the node",
                    why="slurmctld drains a node that reports less than is written here (Low RealMemory).",
                )


def _without_memory(file: File) -> Iterator[Problem]:
    """Nodes without RealMemory, which have 1 MB then, where jobs get memory by default. A DEFAULT line or an included
    file may state it, and old versions may take what a node says of itself; so do FUTURE nodes."""
    nodes = [record for record in file.slurm if record.kind == "nodename"]
    stated = any(node.values["nodename"].value.upper() == "DEFAULT" for node in nodes)
    if stated or any(record.kind == "include" for record in file.slurm) or _TAKES_THE_REAL_SIZE.search(file.text):
        return
    for node in nodes:
        real, state = node.values.get("realmemory"), node.values.get("state")
        if (real is not None and real.value != "1") or (state is not None and state.value.upper() == "FUTURE"):
            continue
        default = _default_above(file, node, 1)
        if default:
            name = node.values["nodename"]
            yield problem(
                real or name,
                f"{name.value} has {'RealMemory=1' if real is not None else 'no RealMemory'}, which is 1 MB, and jobs "
                f"get {default}: sbatch refuses them",
                "write RealMemory=… as `slurmd -C` prints it on the node",
                why=_ONE_MEGABYTE,
            )


def _number(record: SlurmRecord, name: str) -> bool:
    value = record.values.get(name)
    return value is not None and value.known and value.value.isdecimal() and int(value.value) > 1


def _said(file: File, real: Value[str]) -> str:
    """The size in a comment on the line or above it, if it is the number as gigabytes."""
    lines = file.lines[max(real.span.line - 2, 0) : real.span.line]
    comments = [lines[-1].partition("#")[2], *(line for line in lines[:-1] if line.lstrip().startswith("#"))]
    for number, unit in _SIZE.findall(" ".join(comments)):
        size = float(number.replace(",", "."))
        sizes = (size * 1000, size * 1024) if unit.upper().startswith("T") else (size,)
        if int(real.value) in sizes:
            return f"{number} {unit}"
    return ""


@dataclass(frozen=True, slots=True)
class Default:
    """The memory that a job gets without asking, and the nodes of the partition that says so; None: of all."""

    title: str
    given: Value[str]
    nodes: frozenset[str] | None


def _default_above(file: File, node: SlurmRecord, real: int) -> str:
    """The default of a partition, or of all, that a job without --mem gets and the node has not."""
    large = [one for one in file.derived(_defaults) if int(one.given.value) > real]
    names = set(hosts(node.values["nodename"].value) or []) if large else set()
    gpus = "gpu" in (node.values["gres"].value.lower() if "gres" in node.values else "")
    for one in large:
        if (gpus or one.title != "DefMemPerGPU") and (one.nodes is None or not names.isdisjoint(one.nodes)):
            return f"{one.title}={one.given.value} (line {one.given.span.line})"
    return ""


def _defaults(file: File) -> list[Default]:
    """Those of a file whose jobs are given memory; an `infinite` or other word is none."""
    select = next((r.values["selecttypeparameters"] for r in file.slurm if "selecttypeparameters" in r.values), None)
    if select is None or "memory" not in select.value.lower():
        return []
    records = [record for record in file.slurm if record.kind in ("partitionname", "setting")]
    return [
        Default(title, record.values[key], _nodes(record))
        for record in records
        for key, title in _DEFAULTS.items()
        if _number(record, key)
    ]


def _nodes(record: SlurmRecord) -> frozenset[str] | None:
    nodes = record.values.get("nodes")
    if record.kind == "setting" or (nodes is not None and nodes.value.upper() == "ALL"):
        return None
    return frozenset(hosts(nodes.value) or [] if nodes is not None else [])
