"""SLU: partitions: what a batch script asks of its own, against the slurm.conf beside it, and that there is one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trainwright.check import around, reasons
from trainwright.check.beside import file_beside
from trainwright.check.launches.submitters import given_elsewhere
from trainwright.check.model import File, ShellScript, SlurmRecord, Value
from trainwright.check.registry import Problem, problem
from trainwright.check.rules.slu_times import minutes

_ENFORCED = ("yes", "all", "any")
_RAISED_BY = {"qos", "time-min", "reservation", "clusters"}  # with these other limits than the partition's may count


def beyond_the_partition(file: File, script: ShellScript) -> Iterator[Problem]:
    """`--time` and `--nodes` above MaxTime and MaxNodes of the partition that the script names."""
    given = dict(script.directives)
    partition = given.get("partition")
    if partition is None or not partition.known or file.path == "<stdin>" or _RAISED_BY & given.keys():
        return
    conf = file_beside(file.path, "slurm.conf")
    if conf is None or conf.format != "slurm.conf" or {"partition", "time", "nodes"} & given_elsewhere(file):
        return
    record = _partitions(conf).get(partition.value)
    if record is None or "qos" in record:
        return
    for option, key in (("time", "maxtime"), ("nodes", "maxnodes")):
        asked, limit = given.get(option), record.get(key)
        if asked is not None and limit is not None and _is_more(option, asked, limit):
            yield _beyond(conf, asked, limit, f"{partition.value} has {_TITLES[key]}={limit.value}")


_TITLES = {"maxtime": "MaxTime", "maxnodes": "MaxNodes"}


def _partitions(conf: File) -> dict[str, dict[str, Value[str]]]:
    """The values of each partition, with those of the DEFAULT lines above it; none of what is defined twice."""
    defaults: dict[str, Value[str]] = {}
    partitions: dict[str, dict[str, Value[str]]] = {}
    for record in conf.slurm:
        if record.kind == "partitionname":
            _add(partitions, defaults, record)
    return partitions


def _add(partitions: dict[str, dict[str, Value[str]]], defaults: dict[str, Value[str]], record: SlurmRecord) -> None:
    name = record.values["partitionname"].value
    if name.upper() == "DEFAULT":
        defaults |= record.values
    else:
        partitions[name] = {} if name in partitions else {**defaults, **record.values}


def _is_more(option: str, asked: Value[str], limit: Value[str]) -> bool:
    if not (asked.known and limit.known):
        return False
    if option == "time":
        return 0 < minutes(limit.value) < minutes(asked.value)
    fewest = asked.value.partition("-")[0]
    return fewest.isdecimal() and limit.value.isdecimal() and 0 < int(limit.value) < int(fewest)


def _beyond(conf: File, asked: Value[str], limit: Value[str], of: str) -> Problem:
    enforced = next((r.values["enforcepartlimits"] for r in conf.slurm if "enforcepartlimits" in r.values), None)
    refused = enforced is not None and enforced.value.lower() in _ENFORCED
    effect = "sbatch refuses the job" if refused else "the job waits for ever"
    return problem(
        asked,
        f"{effect}: {of} (slurm.conf, line {limit.span.line})",
        f"ask for {limit.value} at most, or for another partition",
        why=reasons.BEYOND_THE_PARTITION,
    )


def without_partition(file: File) -> Iterator[Problem]:
    """Nodes that no partition can hold: slurmctld ends at its start, unless a program beside the file adds one."""
    names = [record.values["nodename"] for record in file.slurm if record.kind == "nodename"]
    nodes = [name for name in names if name.value.upper() != "DEFAULT"]
    if not nodes or any(record.kind == "partitionname" for record in file.slurm):
        return
    folder = str(Path(file.path).absolute().parent)
    texts = [*around.texts(folder), *around.configurations(folder)] if file.path != "<stdin>" else []
    if not any("partitionname" in text.lower() for _, text in texts):
        yield problem(
            nodes[0],
            "the file has no PartitionName: slurmctld does not start",
            "add PartitionName=… Nodes=ALL Default=YES",
            why="slurmctld ends with `No PartitionName information available!`.",
        )
