"""K8S: what a pod asks for and no node has: misspelt resources, more than the instance type it is pinned to."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.catalog.instances import find_instance
from trainwright.check.model import Container, Value
from trainwright.check.readers.kubernetes import pod_specs
from trainwright.check.readers.kubernetes_pods import INSTANCE_LABELS, container_of, quantity
from trainwright.check.readers.values import text_at
from trainwright.check.registry import Problem, problem
from trainwright.spec.source import Node

_RESOURCES = (
    "nvidia.com/gpu", "vpc.amazonaws.com/efa", "aws.amazon.com/neuron", "aws.amazon.com/neuroncore", "amd.com/gpu"
)  # fmt: skip
_ALIASES = {
    "nvidia/gpu": "nvidia.com/gpu",
    "amd/gpu": "amd.com/gpu",
    "vpc.amazon.com/efa": "vpc.amazonaws.com/efa",
    "aws.amazon.com/efa": "vpc.amazonaws.com/efa",
    "aws.amazonaws.com/neuron": "aws.amazon.com/neuron",
    "alpha.kubernetes.io/nvidia-gpu": "nvidia.com/gpu",  # until Kubernetes 1.10
}
_HUGE_PAGES = re.compile(r"hugepages-(2m|1g)(i?b?)", re.IGNORECASE)
_LONG_NAME = 10  # of a domain: two letters may be wrong
_WAITS = "the scheduler finds no node for the pod, which stays Pending without an error."
_UNITS = {"cpu": "CPUs", "memory": "GiB of memory"}


def unplaceable(root: Node) -> Iterator[Problem]:
    """What keeps the pods of an object pending for ever."""
    for spec in pod_specs(root):
        listed = spec.get("containers")
        containers = [container_of(one) for one in listed.elements() if one.is_map] if listed is not None else []
        for container in containers:
            yield from _misspelt(container)
        yield from _too_large(spec, containers)


def _misspelt(container: Container) -> Iterator[Problem]:
    for name, value in {**container.limits, **container.requests}.items():
        right = nearest_resource(name)
        if right:
            at = value.key or value.span
            said = f"no node has the resource {name}: the pod stays pending"
            yield problem(at, said, _respelt(container, name, right), level="error", why=_WAITS)


def _respelt(container: Container, name: str, right: str) -> str:
    """The fix, of every place: a request without the same limit is refused."""
    places = [key for key, amounts in _places(container) if name in amounts]
    if all(right in amounts for key, amounts in _places(container) if key in places):
        return f"remove it: {right} is there too"
    return f"write {right}" + (" in requests and limits" if len(places) > 1 else "")


def _places(container: Container) -> list[tuple[str, dict[str, Value[str]]]]:
    return [("requests", container.requests), ("limits", container.limits)]


def nearest_resource(name: str) -> str:
    """The resource that a name misspells, or an empty string. Names that go on (gpu.shared, gpumem) or begin otherwise
    (vgpu) are those of other plugins."""
    pages = _HUGE_PAGES.fullmatch(name)
    if pages is not None:
        right = f"hugepages-{pages[1].upper()}i"
        return right if right != name else ""
    if name in _RESOURCES or name in _ALIASES:
        return _ALIASES.get(name, "")
    domain, _, device = name.partition("/")
    for known in _RESOURCES:
        own, _, part = known.partition("/")
        most = 2 if len(own) >= _LONG_NAME else 1
        if (domain == own and _is_slip(device, part)) or (device == part and _distance(domain, own) <= most):
            return known
    return ""


def _is_slip(word: str, right: str) -> bool:
    """Whether a word is the plural, in other letters, or has two letters swapped."""
    swapped = {right[:i] + right[i + 1] + right[i] + right[i + 2 :] for i in range(len(right) - 1)}
    return word != right and (word.lower() in (right, f"{right}s") or word in swapped)


def _distance(one: str, other: str) -> int:
    """How many letters must be added, removed or changed."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one[:64], start=1):
        above, row = row, [i]
        for j, b in enumerate(other, start=1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (a != b)))
    return row[-1]


def _too_large(spec: Node, containers: list[Container]) -> Iterator[Problem]:
    """More than the instance type has, to which the node selector pins the pod."""
    named = next((v for label in INSTANCE_LABELS if (v := text_at(spec, "nodeSelector", label)) is not None), None)
    type_ = find_instance(named.value.removeprefix("ml.")) if named is not None and named.known else None
    if type_ is None:
        return
    amounts = {"cpu": (type_.vcpus, 1), "memory": (type_.memory_mib * 2**20, 2**30)}
    requests = {name: [pair for one in containers for pair in _request(one, name)] for name in amounts}
    totals = {name: sum(size for _, size in asked) for name, asked in requests.items()}
    # The system keeps a part of both: all CPUs of a type do not fit either, where the kubelet keeps one.
    full = [f"{has / unit:g} {_UNITS[name]}" for name, (has, unit) in amounts.items() if totals[name] >= has]
    for name, (has, unit) in amounts.items():
        asked, total = requests[name], totals[name]
        if total > has or (total == has and name == "memory"):  # the kernel keeps some of it on every node
            largest = max(asked, key=lambda pair: pair[1])[0]
            yield problem(
                largest,
                f"the pod requests {total / unit:g} {_UNITS[name]}, and {type_.name}, which it is pinned to, has "
                f"{has / unit:g}: it stays pending",
                f"request less than {' and '.join(full)}, of which the kubelet and the system keep a part",
                level="error",
                why=_WAITS,
            )


def _request(container: Container, name: str) -> Iterator[tuple[Value[str], float]]:
    """What a container requests; a limit alone is the request too."""
    value = container.requests.get(name) or container.limits.get(name)
    size = quantity(value)
    if value is not None and size is not None:
        yield value, size
