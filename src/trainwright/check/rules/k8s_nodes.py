"""K8S: which nodes a job may run on."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.catalog.instances import instance_names
from trainwright.check.launches.job_sizes import once
from trainwright.check.model import File, Value
from trainwright.check.readers.values import text_at, texts_at
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.rules.k8s_capacity import unplaceable
from trainwright.check.rules.k8s_kueue import gpus_of
from trainwright.check.rules.k8s_pinned import unfit_for_pool
from trainwright.check.rules.k8s_torn import torn_affinities
from trainwright.spec.source import Node

_HEALTH = "sagemaker.amazonaws.com/node-health-status"
_HEALTHY = "Schedulable"  # no taint of a broken node has this value
_FAMILIES = ("karpenter.k8s.aws/instance-family", "eks.amazonaws.com/instance-family")


@rule("K8S005", "warning")
def nodes_can_be_had_and_are_healthy(file: File) -> Iterator[Problem]:
    """A job must not tolerate broken nodes, nor ask for what no node has.

    A toleration of HyperPod's taint `sagemaker.amazonaws.com/node-health-status`; an instance family of a node pool or
    a node affinity that EC2 does not have, where others begin with its name (`p4`: p4d and p4de). Errors: a misspelt
    resource (`nvidia.com/gpus`, `vpc.amazon.com/efa`, `hugepages-2M`), more CPUs or memory than the instance type has
    that the node selector names, and a node affinity whose requirements of one key exclude each other. Warnings: pods
    that select a Karpenter NodePool of the file or directory by its name (`karpenter.sh/nodepool`) and do not tolerate
    its taint, need another instance type, more GPUs than a node has or together more than the pool's limit.

    Why: HyperPod taints the nodes that failed a health check, and replaces them: a job that tolerates the taint is
    started there again, and 1 bad GPU stops all of 512. A family that does not exist matches 0 nodes, and pods stay
    pending.

    Fix: remove the toleration; name whole families.

    Source: SageMaker developer guide, health monitoring of HyperPod with EKS; EC2 instance types; Karpenter, well-known
    labels.

    When to ignore: the pod examines broken nodes.
    """
    if file.format == "kubernetes":
        nodes = [node for root in file.nodes for node in root.walk() if node.is_map]
        pending = [p for root in file.nodes for p in unplaceable(root)]
        torn = [p for node in nodes if node.get("affinity") is not None for p in torn_affinities(node)]
        yield from once([*_tolerations(nodes), *_families(nodes), *pending, *torn, *unfit_for_pool(file)])


def _tolerations(nodes: list[Node]) -> Iterator[Problem]:
    for node in nodes:
        listed = node.get("tolerations")
        trains = node.get("containers") is not None and gpus_of(node) is not None
        for one in listed.elements() if listed is not None and trains else ():
            key, value = text_at(one, "key"), text_at(one, "value")
            if key is None or key.value != _HEALTH or (value is not None and value.value.startswith(_HEALTHY)):
                continue
            said = "the pod may be started on nodes that failed HyperPod's health checks"
            why = "HyperPod taints a node that failed a check until it is repaired: 1 bad GPU stops all ranks of a job."
            yield problem(key, said, "remove the toleration", why=why)


def _families(nodes: list[Node]) -> Iterator[Problem]:
    named = [family for node in nodes for family in _named(node) if family.known]
    if not named:
        return
    existing = {name.split(".")[0] for name in instance_names()}
    missing = [family for family in named if family.value not in existing]
    pairs = [(family, _longer(family.value, existing)) for family in missing]
    pairs = [(family, longer) for family, longer in pairs if longer]
    if pairs:
        family, longer = pairs[0]
        others = sorted({other.value for other, _ in pairs[1:]} - {family.value})
        also = f", nor {', '.join(others)}" if others else ""
        yield problem(
            family,
            f"EC2 has no family {family.value}{also}: it matches no node",
            f"write {', '.join(longer)}",
            why="no instance has this family, so that the requirement allows 0 of them.",
            level="info" if len(missing) < len(named) else None,  # others of the list match
        )


def _named(node: Node) -> list[Value[str]]:
    key, operator = text_at(node, "key"), text_at(node, "operator")
    asked = key is not None and key.value in _FAMILIES and operator is not None and operator.value == "In"
    return texts_at(node, "values") if asked else []


def _longer(family: str, existing: set[str]) -> list[str]:
    """Families whose names go on with letters: p4d and p4de for p4."""
    return sorted(name for name in existing if name.startswith(family) and not name[len(family) :][:1].isdigit())[:3]
