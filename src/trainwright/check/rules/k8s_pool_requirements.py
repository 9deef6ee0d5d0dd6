"""K8S: requirements of a Karpenter node pool that no instance type meets together, and node classes that are not
there."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.catalog.instances import InstanceType
from trainwright.check.model import File, Value
from trainwright.check.readers.values import text_at
from trainwright.check.registry import Problem, problem
from trainwright.check.rules.k8s_services import manifests_beside
from trainwright.check.tables import machine
from trainwright.errors import nearest
from trainwright.spec.source import Node

Requirements = dict[str, list[Value[str]]]
_TYPE = "node.kubernetes.io/instance-type"
_ARCHITECTURES = {"x86_64": "amd64", "arm64": "arm64"}


def _category(type_: InstanceType) -> str:
    match = re.match("[a-z]+", type_.name)
    return match[0] if match is not None else ""


# Labels that follow from the instance type.
_LABELS = {
    "kubernetes.io/arch": lambda type_: _ARCHITECTURES.get(type_.arch, type_.arch),
    "karpenter.k8s.aws/instance-family": lambda type_: type_.name.partition(".")[0],
    "karpenter.k8s.aws/instance-size": lambda type_: type_.name.partition(".")[2],
    "karpenter.k8s.aws/instance-category": _category,
}


def contradictions(wanted: Requirements) -> Iterator[Problem]:
    """A requirement that none of the listed types meets. A type that the catalog does not have may meet any."""
    types = [machine(value) for value in wanted.get(_TYPE, [])]
    known = [type_ for type_ in types if type_ is not None]
    for label, of_type in _LABELS.items():
        values = wanted.get(label, [])
        if not known or len(known) < len(types) or not values or not all(value.known for value in values):
            continue
        have = sorted({of_type(type_) for type_ in known})
        if not set(have) & {value.value for value in values}:
            names, verb = " and ".join(type_.name for type_ in known[:2]), "is" if len(known) == 1 else "are"
            asked = " or ".join(value.value for value in values)
            yield problem(
                values[0],
                f"{label} is {asked}, and {names} {verb} {', '.join(have)}: no instance type meets both requirements",
                f"write {', '.join(have)}, or other instance types",
                level="error",
                why="Karpenter starts 0 nodes of this pool, and its pods stay pending.",
            )


def missing_class(file: File, root: Node, classes: dict[str, Node]) -> Iterator[Problem]:
    """A node class that no object of the file has, where the file has such objects."""
    reference = root.get("spec", "template", "spec", "nodeClassRef")
    name, kind = text_at(reference, "name"), text_at(reference, "kind")
    if name is None or not name.known or not all(classes) or not classes or name.value in classes:
        return
    if kind is not None and kind.value != "EC2NodeClass":
        return
    if any(is_class(node, name.value) for other in manifests_beside(file, "EC2NodeClass") for node in other.nodes):
        return
    near = nearest(name.value, [one for one in classes if not are_a_series(one, name.value)], 0.85)
    yield problem(
        name,
        f"the file has no EC2NodeClass {name.value}, but {', '.join(classes)}",
        f"write {near}" if near else f"write {next(iter(classes))}, or add the class",
        level="error" if near else "info",  # another may be in the cluster
        why="without its class a pool is not ready, and Karpenter starts 0 nodes of it.",
    )


_PART_OF_A_SERIES = re.compile(r"v?\d+[a-z]?|[a-z]")


def are_a_series(one: str, other: str) -> bool:
    """Whether two names differ in a number or a letter of their own: gpu-a and gpu-b, nodes-v1 and nodes-v2."""
    parts = list(zip(re.split(r"[-_.]", one), re.split(r"[-_.]", other), strict=False))
    differing = [pair for pair in parts if pair[0] != pair[1]]
    same_length = one.count("-") == other.count("-")
    return same_length and all(_PART_OF_A_SERIES.fullmatch(part) for pair in differing for part in pair)


def is_class(root: Node, name: str) -> bool:
    kind, stated = text_at(root, "kind"), text_at(root, "metadata", "name")
    return kind is not None and kind.value == "EC2NodeClass" and stated is not None and stated.value == name
