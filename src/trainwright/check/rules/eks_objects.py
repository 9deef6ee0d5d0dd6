"""EKS: objects of Kubernetes and settings of eksctl in the file of a cluster, written for a version that is no longer
there."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check.model import File, known
from trainwright.check.readers.values import text_at
from trainwright.check.tables import table
from trainwright.spec.source import Node

_API = re.compile(r"\bapi_?version\"?\s*[:=]\s*[\"']?([\w.]+/v\w+)", re.IGNORECASE)
_RESOURCE = re.compile(r"\bresource\s+\"(kubernetes_\w+)\"")
_AUTOSCALER = re.compile(r"cluster-autoscaler:v?1\.([12]\d|\d)\b")  # later ones ask for no API that is gone
_FAMILY = re.compile(r"\bamiFamily\"?\s*[:=]\s*\"?AL2\b(?!@)|\balias\"?\s*[:=]\s*\"?al2@")
_OLD_KARPENTER = re.compile(r"\bkind\"?\s*[:=]\s*\"?(Provisioner|AWSNodeTemplate)\b")
_BETA_KARPENTER = re.compile(r"\bkarpenter\.(k8s\.aws|sh)/v1beta1\b")


def objects_of_older_versions(file: File, text: str) -> Iterator[str]:
    """What a fix has to name beside the version; `text` is that of the file without comments."""
    facts = table("eks")
    if file.format == "terraform" and _has_karpenter(file):
        yield "a release of Karpenter that supports it"
    if _OLD_KARPENTER.search(text):
        yield "NodePool and EC2NodeClass of v1 instead of Provisioner and AWSNodeTemplate"
    elif _BETA_KARPENTER.search(text):
        yield "NodePool and EC2NodeClass of v1 instead of v1beta1"
    if _FAMILY.search(text):
        yield "AL2023 instead of AL2 in Karpenter's classes"
    if _AUTOSCALER.search(text):
        yield "an image of the cluster autoscaler for it"
    for match in _API.finditer(text):
        if match[1] in facts["removed_apis"]:
            yield f"{facts['removed_apis'][match[1]]} instead of {match[1]}"
    for match in _RESOURCE.finditer(text):
        if match[1] in facts["removed_resources"]:
            yield f"{facts['removed_resources'][match[1]]} instead of {match[1]}"
        elif match[1].startswith("kubernetes_pod_security_policy"):
            yield f"no {match[1]} (which Kubernetes no longer has)"


def _has_karpenter(file: File) -> bool:
    """Whether Helm installs a release of Karpenter that is written here."""
    pairs = [(text_at(body, "chart"), text_at(body, "version")) for body in file.nodes]
    return any((known(chart) or "").endswith("karpenter") and known(version) is not None for chart, version in pairs)


def parts_of_eksctl(root: Node) -> Iterator[str]:
    """What a file of eksctl says that newer versions do not take."""
    if text_at(root, "karpenter", "version") is not None:
        yield "a release of Karpenter that supports it"
    addons = root.get("addons")
    stated = [text_at(one, "version") for one in (addons.elements() if addons is not None else ()) if one.is_map]
    if any(one is not None and one.value != "latest" for one in stated):
        yield "versions of the addons that it takes"
    if root.get("git") is not None:
        yield "no git section (which eksctl no longer reads)"
    for group in groups_of_eksctl(root):
        if group.get("containerRuntime") is not None:
            yield "no containerRuntime (containerd is the only one)"
        gates = group.get("kubeletExtraConfig", "featureGates")
        removed = [name for name, _ in gates.items() if name in _removed_gates()] if gates is not None else []
        if removed:
            yield f"no feature gate {' and '.join(removed)} (which its kubelet refuses)"


def _removed_gates() -> list[str]:
    return list(table("eks")["kubelet"]["removed_gates"])


def groups_of_eksctl(root: Node) -> list[Node]:
    """The node groups of a file of eksctl."""
    listed = (root.get(key) for key in ("nodeGroups", "managedNodeGroups"))
    return [one for groups in listed if groups is not None for one in groups.elements() if one.is_map]
