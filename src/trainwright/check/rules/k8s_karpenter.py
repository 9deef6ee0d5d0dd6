"""K8S: Karpenter's objects of v1 that are written as v1beta1 and earlier versions took them."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.check.readers.values import text_at
from trainwright.check.registry import Problem, problem
from trainwright.spec.source import Node

_REFUSED = "Kubernetes refuses it"
_WHY = "the API server checks the object against the schema of v1, and keeps none of it."
_TERMS = {
    "amiSelectorTerms": "amiSelectorTerms: [{alias: FAMILY@latest}], or a version in place of latest",
    "subnetSelectorTerms": "subnetSelectorTerms with the tags or ids of the subnets",
    "securityGroupSelectorTerms": "securityGroupSelectorTerms with the tags or ids of the security groups",
}
_ALIASES = ("AL2", "AL2023", "Bottlerocket", "Windows2019", "Windows2022", "Windows2025")
_GROUPS = {
    "EC2NodeClass": "karpenter.k8s.aws", "NodeClass": "eks.amazonaws.com", "AKSNodeClass": "karpenter.azure.com",
}  # fmt: skip


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
        yield from _class(root, spec)


def _class(root: Node, spec: Node) -> Iterator[Problem]:
    """All that is missing in one finding: with a part of it the class is refused as before."""
    missing = [name for name in _TERMS if spec.get(name) is None]
    if not missing:
        return
    fixes = [_term(spec, name) for name in missing]
    if spec.get("role") is None and spec.get("instanceProfile") is None:
        fixes.append("role with the IAM role of the nodes")
    said = f"an EC2NodeClass of v1 without {' and '.join(missing)}: {_REFUSED}"
    yield problem(root.key_span("spec"), said, f"add {', and '.join(fixes)}", why=_WHY)


def _term(spec: Node, name: str) -> str:
    """What to add; an alias is of the family that the class states."""
    family = text_at(spec, "amiFamily")
    if name != "amiSelectorTerms" or family is None:
        return _TERMS[name].replace("FAMILY", "al2023")
    if family.value not in _ALIASES:
        other = "" if family.value == "Custom" else ", and write amiFamily: Custom"  # v1 has no Ubuntu
        return f"amiSelectorTerms with the ids or tags of the images{other}"
    if family.value == "AL2":  # which has no image from Kubernetes 1.33 on
        return _TERMS[name].replace("FAMILY", "al2023") + ", and write amiFamily: AL2023"
    return _TERMS[name].replace("FAMILY", family.value.lower())


def _class_of(spec: Node) -> Iterator[Problem]:
    reference = spec.get("template", "spec", "nodeClassRef")
    if reference is None or not reference.is_map:
        return
    version, kind = text_at(reference, "apiVersion"), text_at(reference, "kind")
    called = kind.value if kind is not None else "EC2NodeClass"
    group = _GROUPS.get(called, f"<API group of {called}>")
    group = version.value.partition("/")[0] if version is not None and version.known else group
    wanted = {"group": group, "kind": "EC2NodeClass", "name": "<name of the node class>"}
    missing = [key for key in wanted if reference.get(key) is None]
    if missing:
        instead = " instead of apiVersion" if version is not None and "group" in missing else ""
        said = f"nodeClassRef without {' and '.join(missing)}, which v1 requires{instead}: {_REFUSED}"
        at = reference.key_span("apiVersion") if instead else reference.span
        fix = ", ".join(f"{key}: {wanted[key]}" for key in missing) + instead
        if spec.get("template", "spec", "requirements") is None:
            fix += ", and requirements beside nodeClassRef"  # which v1 requires too, were they empty
        yield problem(at, said, f"write {fix}", why=_WHY)


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
