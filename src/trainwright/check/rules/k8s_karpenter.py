"""K8S: Karpenter's objects of v1 that are written as v1beta1 and earlier versions took them."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.check.readers.values import text_at
from trainwright.check.registry import Problem, problem
from trainwright.spec.source import Node

_REFUSED = "Kubernetes refuses it"
_WHY = "the API server checks the object against the schema of v1, and keeps none of it."
_TERMS = {
    "amiSelectorTerms": "amiSelectorTerms: [{alias: al2023@vDATE}]",
    "subnetSelectorTerms": "subnetSelectorTerms with the tags or ids of the subnets",
    "securityGroupSelectorTerms": "securityGroupSelectorTerms with the tags or ids of the security groups",
}


def of_older_version(root: Node, kind: tuple[str, str]) -> Iterator[Problem]:
    """What v1 requires or has renamed; `root` is no patch."""
    spec = root.get("spec")
    if spec is None or not spec.is_map:
        return
    if kind == ("karpenter.sh/v1", "NodePool"):
        yield from _class_of(spec)
        yield from _disruption(spec)
        yield from _limits(spec)
    elif kind == ("karpenter.k8s.aws/v1", "EC2NodeClass"):
        for name, fix in _TERMS.items():
            if spec.get(name) is None:
                said = f"an EC2NodeClass of v1 without {name}: {_REFUSED}"
                yield problem(root.key_span("spec"), said, f"add {fix}", why=_WHY)


def _class_of(spec: Node) -> Iterator[Problem]:
    reference = spec.get("template", "spec", "nodeClassRef")
    if reference is None or not reference.is_map:
        return
    version, kind = text_at(reference, "apiVersion"), text_at(reference, "kind")
    group = "karpenter.k8s.aws" if kind is None or kind.value == "EC2NodeClass" else f"<API group of {kind.value}>"
    group = version.value.partition("/")[0] if version is not None and version.known else group
    wanted = {"group": group, "kind": "EC2NodeClass", "name": "<name of the node class>"}
    missing = [key for key in wanted if reference.get(key) is None]
    if missing:
        instead = " instead of apiVersion" if version is not None and "group" in missing else ""
        said = f"nodeClassRef without {' and '.join(missing)}, which v1 requires{instead}: {_REFUSED}"
        at = reference.key_span("apiVersion") if instead else reference.span
        fix = ", ".join(f"{key}: {wanted[key]}" for key in missing)
        yield problem(at, said, f"write {fix}{instead}", why=_WHY)


def _disruption(spec: Node) -> Iterator[Problem]:
    disruption = spec.get("disruption")
    if disruption is None or not disruption.is_map:
        return
    policy = text_at(disruption, "consolidationPolicy")
    if policy is not None and policy.value == "WhenUnderutilized":
        said = f"v1 has no consolidationPolicy WhenUnderutilized: {_REFUSED}"
        yield problem(policy, said, "write WhenEmptyOrUnderutilized", why=_WHY)
    if disruption.get("consolidateAfter") is None:
        said = f"disruption without consolidateAfter, which v1 requires: {_REFUSED}"
        yield problem(spec.key_span("disruption"), said, "add consolidateAfter: 0s, or how long it waits", why=_WHY)


def _limits(spec: Node) -> Iterator[Problem]:
    limits = spec.get("limits")
    inner = limits.get("resources") if limits is not None else None
    if limits is not None and inner is not None and inner.is_map:
        said = f"limits.resources is a map, and limits takes amounts: {_REFUSED}"
        yield problem(limits.key_span("resources"), said, "write its keys directly below limits", why=_WHY)
