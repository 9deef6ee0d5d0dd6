"""K8S: requirements of one key that no value meets together, of node pools and of pods."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainwright.check.readers.values import text_at, texts_at, to_int
from trainwright.check.registry import Problem, problem
from trainwright.spec.source import Node

# Labels that every instance type or offering has. Where another is excluded, nodes without it are left.
_OF_EVERY_TYPE = {
    "kubernetes.io/arch", "kubernetes.io/os", "node.kubernetes.io/instance-type", "topology.kubernetes.io/zone",
    "karpenter.sh/capacity-type", "karpenter.k8s.aws/instance-category", "karpenter.k8s.aws/instance-family",
    "karpenter.k8s.aws/instance-generation", "karpenter.k8s.aws/instance-size", "karpenter.k8s.aws/instance-cpu",
    "karpenter.k8s.aws/instance-memory",
}  # fmt: skip


@dataclass(slots=True)
class _Allowed:
    """The values of a label that the entries so far leave."""

    values: set[str] | None = None  # None: any
    without: bool = True  # nodes without the label
    excluded: frozenset[str] = frozenset()
    above: int | None = None
    below: int | None = None

    def add(self, operator: str, values: list[str]) -> None:
        number = to_int(values[0]) if len(values) == 1 else None
        if operator == "In":
            self.values = set(values) if self.values is None else self.values & set(values)
        elif operator == "DoesNotExist":
            self.values = set()
        elif operator == "NotIn":
            self.excluded |= set(values)
        elif operator == "Gt" and number is not None:
            self.above = number if self.above is None else max(self.above, number)
        elif operator == "Lt" and number is not None:
            self.below = number if self.below is None else min(self.below, number)
        self.without &= operator in ("NotIn", "DoesNotExist")

    @property
    def is_empty(self) -> bool:
        if self.without:
            return False
        if self.above is not None and self.below is not None and self.below - self.above < 2:
            return True
        return self.values is not None and not any(self._allows(value) for value in self.values)

    def _allows(self, value: str) -> bool:
        number = to_int(value)
        if value in self.excluded or (number is None and (self.above is not None or self.below is not None)):
            return False
        if number is None:
            return True
        return (self.above is None or number > self.above) and (self.below is None or number < self.below)


def _torn(entries: Node | None, selected: Node | None = None) -> Iterator[tuple[str, Node]]:
    """Each key with the entry that leaves no value for it."""
    allowed: dict[str, _Allowed] = {}
    for key, one in selected.items() if selected is not None else ():
        value = text_at(selected, key)
        if one.is_scalar and value is not None and value.known:
            allowed.setdefault(key, _Allowed()).add("In", [value.value])
    for entry in entries.elements() if entries is not None else ():
        name, operator, values = text_at(entry, "key"), text_at(entry, "operator"), texts_at(entry, "values")
        if name is None or operator is None or not all(value.known for value in (name, operator, *values)):
            continue
        several = name.value in allowed
        left = allowed.setdefault(name.value, _Allowed())
        left.add(operator.value, [value.value for value in values])
        if several and left.is_empty:
            yield name.value, entry


def torn_pools(root: Node) -> Iterator[Problem]:
    """Requirements of a node pool that exclude each other."""
    for key, entry in _torn(root.get("spec", "template", "spec", "requirements")):
        if key in _OF_EVERY_TYPE:
            yield problem(
                entry,
                f"with the entries above it for {key} no value is left: no instance type meets them together",
                "keep one entry for the key",
                level="error",
                why="Karpenter starts 0 nodes of this pool, and its pods stay pending.",
            )
            return


def torn_affinities(node: Node) -> Iterator[Problem]:
    """The node affinity of a pod whose every term excludes itself."""
    required = node.get("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    terms = required.get("nodeSelectorTerms") if required is not None else None
    selected = node.get("nodeSelector")
    torn = [
        next(_torn(term.get("matchExpressions"), selected), None)
        for term in (terms.elements() if terms is not None else ())
    ]
    if torn and torn[0] is not None and all(torn):
        key, entry = torn[0]
        yield problem(
            entry,
            f"with the other requirements for {key} no value is left: no node meets them together",
            "keep one entry for the key",
            level="error",
            why="the scheduler finds 0 nodes for the pod, and it stays pending.",
        )


def torn_namespaces(root: Node) -> Iterator[Problem]:
    """The namespaces of a ClusterQueue, of which its selector leaves none."""
    selector = root.get("spec", "namespaceSelector")
    if selector is None or not selector.is_map:
        return
    for key, entry in _torn(selector.get("matchExpressions"), selector.get("matchLabels")):
        what = f"with the other requirements for {key} no value is left: the queue admits jobs of no namespace"
        why = "Kueue admits 0 jobs of its local queues."
        yield problem(entry, what, "keep one entry for the key", why=why)
        return
