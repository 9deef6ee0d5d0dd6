"""HYP: every key and value of HyperPod's two files against what SageMaker's API takes, today's fields included."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trainwright.check.finding import Level
from trainwright.check.hyperpod_schema import PROVISIONING, Key, create_cluster
from trainwright.check.model import File
from trainwright.check.readers.hyperpod import CONFIG, is_masked, part
from trainwright.check.readers.values import bool_at, int_at, text_at, value_of
from trainwright.check.registry import Problem, problem, rule
from trainwright.errors import did_you_mean
from trainwright.spec.source import Node

Sections = Mapping[str, Mapping[str, Key]]
_ON_THE_COMMAND_LINE = ("ClusterName", "version")  # `--cluster-name` beside the file; no script reads `version`
_PREFIX = "ml."  # HYP001 reports a type without it
# What a value looks like, for those whose pattern says little to a reader.
_SHAPES = {
    "ExecutionRole": "write arn:aws:iam::ACCOUNT:role/NAME, with the 12 digits of the account",
    "ClusterRole": "write arn:aws:iam::ACCOUNT:role/NAME, with the 12 digits of the account",
    "TrainingPlanArn": "write arn:aws:sagemaker:REGION:ACCOUNT:training-plan/NAME",
    "InstanceGroupName": "use letters, digits and hyphens",
    "ImageId": "write an id such as ami-0123456789abcdef0, or default",
}
_ELSEWHERE = ("ThreadsPerCore", "InstanceGroups")  # HYP001 reports these bounds, in CloudFormation too


@rule("HYP003", "error")
def hyperpod_knows_every_key(file: File) -> Iterator[Problem]:
    """HyperPod's files may only hold keys and values that SageMaker takes.

    Every key of `cluster-config.json` is one of CreateCluster (or UpdateCluster), with a value of its type, within its
    bounds and choices; required keys are there. Beyond single keys: a group names an instance type or a list of them,
    and takes its nodes from a training plan or as spot (both: a warning); a lifecycle configuration has one entry
    script; the orchestrator is Slurm or EKS; groups that configure Slurm have exactly one controller, at most one login
    group, and one partition per compute group; an accounting database goes with continuous provisioning.
    `provisioning_parameters.json` is held to its own keys.

    Why: the command line rejects the request, or the lifecycle scripts ignore a misspelt key on every node.

    Fix: as the message says.

    Source: botocore's model of SageMaker CreateCluster; the user guide of HyperPod, Slurm configuration.

    When to ignore: the key is newer than the table, whose date `trainwright catalog` shows.
    """
    if file.format != "hyperpod":
        return
    for root in file.nodes:
        kind = part(root)
        if kind == CONFIG:
            yield from _section(root, "", create_cluster())
            yield from _together(root)
        elif kind is not None:
            yield from _section(root, "", PROVISIONING)


def _section(node: Node, path: str, sections: Sections) -> Iterator[Problem]:
    keys = sections.get(path, {})
    for name, child in node.items():
        key = keys.get(name)
        if key is None:
            where = f"in {path}" if path else "here"
            level: Level | None = None
            if name.startswith("_") or sections is PROVISIONING:
                level = "info"  # a comment, which a script may take out; lifecycle scripts may read keys of their own
            fix = did_you_mean(name, [one for one in keys if node.get(one) is None]) or "remove it"
            yield problem(node.key_span(name), f"unknown key {name!r} {where}", fix, level=level)
            continue
        yield from _value(child, name, key, f"{path}.{name}" if path else name, sections)
    for name, key in keys.items():
        if key.required and node.get(name) is None:
            given = name in _ON_THE_COMMAND_LINE and not path
            what = f"{path or 'the file'} lacks {name}"
            yield problem(node.span, what, f"add {name}", level="info" if given or sections is PROVISIONING else None)


def _value(node: Node, name: str, key: Key, path: str, sections: Sections) -> Iterator[Problem]:
    if not value_of(node).known and not node.is_map:
        return
    if key.is_list:
        if not node.is_list:
            yield problem(node, f"{name} is a list", "write it in [ ]")
            return
        yield from _bounds(node, len(list(node.elements())), name, key, "elements")
        for element in node.elements():
            yield from _one(element, name, key, path, sections)
        return
    yield from _one(node, name, key, path, sections)
    if key.kind == "text" and node.is_scalar and key.pattern is None and not key.allowed:
        yield from _bounds(node, len(node.text), name, key, "letters")


def _one(node: Node, name: str, key: Key, path: str, sections: Sections) -> Iterator[Problem]:
    kind = key.kind.removesuffix("s")
    if kind == "free":
        return
    if kind == "map":
        if not node.is_map:
            yield problem(node, f"{name} is a section with keys of its own", "write it as { }")
            return
        yield from _section(node, path, sections)
        return
    if not value_of(node).known:
        return
    if kind == "number":
        if not isinstance(node.value, int) or isinstance(node.value, bool):
            yield problem(node, f"{name} is a whole number, not {node.text!r}", "write it without quotes")
        else:
            yield from _bounds(node, node.value, name, key, "")
    elif kind == "flag":
        if not isinstance(node.value, bool):
            yield problem(node, f"{name} is true or false, not {node.text!r}", "write it without quotes")
    elif not isinstance(node.value, str):
        yield problem(node, f"{name} is a text", "write it in quotes")
    elif key.allowed and node.text not in key.allowed and _is_ours(name, node.text, key):
        yield problem(
            node, f"{name} cannot be {node.text!r}", did_you_mean(node.text, key.allowed) or _choices(key.allowed)
        )
    elif path in ("ClusterName", "InstanceGroups.InstanceGroupName") or name == "SourceS3Uri":
        return  # CFG002, CFG003 and HYP001 say so
    elif key.pattern is not None and not key.pattern.fullmatch(node.text) and node.text and not is_masked(node.text):
        fix = _SHAPES.get(name, "write one that matches")
        yield problem(node, f"{name} {node.text!r} is not what SageMaker takes: {key.pattern.pattern}", fix)


def _is_ours(name: str, text: str, key: Key) -> bool:
    """HYP001 reports instance types without their prefix, and NodeRecovery."""
    return not (f"{_PREFIX}{text}" in key.allowed or name == "NodeRecovery")


def _choices(allowed: tuple[str, ...]) -> str:
    return f"one of {', '.join(allowed[:8])}" + (" and more" if len(allowed) > 8 else "")


def _bounds(node: Node, amount: int, name: str, key: Key, unit: str) -> Iterator[Problem]:
    low, high = (None, None) if name in _ELSEWHERE else (key.least, key.most)
    if (low is not None and amount < low) or (high is not None and amount > high):
        bounds = f"{low if low is not None else ''} to {high if high is not None else ''}".strip()
        yield problem(node, f"{name} has {amount} {unit}".strip() + f"; SageMaker takes {bounds}", "change it")


def _together(root: Node) -> Iterator[Problem]:
    groups = root.get("InstanceGroups")
    for group in groups.elements() if groups is not None else ():
        yield from _group(group)
    yield from _slurm(root, [g for g in (groups.elements() if groups is not None else ()) if g.get("SlurmConfig")])
    orchestrator = root.get("Orchestrator")
    if orchestrator is not None and len(list(orchestrator.items())) != 1:
        yield problem(orchestrator, "an orchestrator is either Eks or Slurm", "keep one")
    database = root.get("Orchestrator", "Slurm", "AccountingDatabase")
    if database is not None and root.get("NodeProvisioningMode") is None:
        yield problem(
            database, "an accounting database needs continuous provisioning", 'add "NodeProvisioningMode": "Continuous"'
        )


def _group(group: Node) -> Iterator[Problem]:
    if group.is_map and (group.get("InstanceType") is None) == (group.get("InstanceRequirements") is None):
        yield problem(group, "a group names either InstanceType or InstanceRequirements", "write one of them")
    scripts = group.get("LifeCycleConfig")
    if scripts is not None and scripts.get("OnCreate") is not None and scripts.get("OnInitComplete") is not None:
        yield problem(scripts.key_span("OnInitComplete"), "OnCreate and OnInitComplete exclude each other", "keep one")
    if group.get("TrainingPlanArn") is not None and group.get("CapacityRequirements", "Spot") is not None:
        yield problem(
            group.key_span("CapacityRequirements"), "nodes come from the training plan or are spot, not both",
            "keep the one that was bought", level="warning",
        )  # fmt: skip
    least, count = int_at(group, "MinInstanceCount"), int_at(group, "InstanceCount")
    if least is not None and count is not None and least.known and count.known and least.value > count.value:
        yield problem(least, f"at least {least.value} of {count.value} nodes", "MinInstanceCount is at most the count")
    volumes = [v for v in (group.get("InstanceStorageConfigs") or group).elements() if v.get("EbsVolumeConfig")]
    second = [v for v in volumes if not _is_root(v)]
    for volume in second[1:]:
        yield problem(volume, "a node has one second disk", "keep one EbsVolumeConfig beside that of the root volume")


def _is_root(volume: Node) -> bool:
    root = bool_at(volume, "EbsVolumeConfig", "RootVolume")
    return root is not None and root.value


def _slurm(root: Node, groups: list[Node]) -> Iterator[Problem]:
    kinds = [text_at(group, "SlurmConfig", "NodeType") for group in groups]
    if not groups or any(kind is None or not kind.known for kind in kinds):
        return
    names = [kind.value for kind in kinds if kind is not None]
    if names.count("Controller") != 1:
        yield problem(root.key_span("InstanceGroups"), f"{names.count('Controller')} controller groups", "have one")
    if names.count("Login") > 1:
        yield problem(groups[[i for i, n in enumerate(names) if n == "Login"][1]], "two login groups", "keep one")
    for group, name in zip(groups, names, strict=True):
        partitions = group.get("SlurmConfig", "PartitionNames")
        has = partitions is not None and bool(list(partitions.elements()))
        if has != (name == "Compute"):
            fix = "add PartitionNames" if not has else "remove PartitionNames"
            yield problem(
                group.get("SlurmConfig") or group, f"a {name} group has {'a' if has else 'no'} partition", fix
            )
