"""K8S: objects that the API server refuses, or never serves, whatever their keys: kinds of another version, amounts
above their limits, claims above their volume."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check.kubernetes_schema import CUSTOM, OBJECTS, REMOVED
from trainwright.check.model import Container, File, Pod, Value
from trainwright.check.readers.kubernetes import pod_specs
from trainwright.check.readers.kubernetes_pods import quantity
from trainwright.check.readers.values import text_at
from trainwright.check.registry import Problem, problem
from trainwright.check.rules.k8s_services import manifests_beside
from trainwright.check.rules.k8s_workloads import SELECTING
from trainwright.spec.source import Node

_GROUPS = {version for version, _ in OBJECTS}
_OF_KUBERNETES = {kind for _, kind in OBJECTS} | {"ReplicaSet", "ReplicationController"}
# Kinds whose pods are as they are written; operators of others add volumes of their own (Slinky, Elastic, KServe).
AS_WRITTEN = _OF_KUBERNETES | {kind for _, kind in CUSTOM} | {"TFJob", "HyperPodPyTorchJob", "LeaderWorkerSet"}


def wrong_kind(file: File, root: Node, version: Value[str], kind: Value[str]) -> Iterator[Problem]:
    """An object that no API server has: of a version that is gone, of another group's version, or misspelt."""
    pair = (version.value, kind.value)
    if pair in OBJECTS or pair in CUSTOM:
        return
    all_ = (*OBJECTS, *CUSTOM)
    right = next((known for known, name in all_ if name == kind.value), "")
    similar = (name for known, name in all_ if known == version.value and _folded(name) == _folded(kind.value))
    near = next(similar, "")
    old = pair in REMOVED
    if old and _has_another_branch(file, version, right):
        return
    if old:
        said, fix = f"{version.value} has had no {kind.value} since Kubernetes {REMOVED[pair]}", f"write {right}"
    elif right and version.value in _GROUPS:
        said, fix = f"{version.value} has no {kind.value}", f"write apiVersion: {right}"
    elif near:
        said, fix = f"{version.value} has no {kind.value}", f"write kind: {near}"
    else:
        return
    # apps/v1 does not take the labels of the template for a selector.
    selector = root.get("spec", "selector") if kind.value in SELECTING else None
    if kind.value in SELECTING and selector is None:
        fix += ", and spec.selector.matchLabels with the labels of the pod template"
    elif selector is not None and selector.get("matchLabels") is None and selector.get("matchExpressions") is None:
        fix += ", and the labels of spec.selector below matchLabels there"
    if right.startswith("batch/") and not version.value.startswith("batch/"):  # of which K8S002 asks for it
        pods = list(pod_specs(root))
        if pods and all(spec.get("restartPolicy") is None for spec in pods):
            fix += ", and add restartPolicy: Never (or OnFailure) beside containers"
    at = kind if fix.startswith("write kind") else version
    yield problem(
        at, f"{said}: Kubernetes refuses it", fix, why="no controller ever sees the object.",
        level="info" if old and (_is_for_old(file.path, REMOVED[pair]) or _has_a_copy(file, root, right)) else None,
    )  # fmt: skip


_NEAR = 4  # lines between the branches of a template


def _has_another_branch(file: File, version: Value[str], right: str) -> bool:
    """Whether a template writes the version of newer clusters too, in another branch."""
    first, last = max(version.span.line - 1 - _NEAR, 0), version.span.line + _NEAR
    stated = re.compile(rf"\s*apiVersion:\s*[\"']?{re.escape(right)}\b")
    return file.template and any(stated.match(line) for line in file.lines[first:last])


_OF_KUBERNETES_1 = re.compile(r"(?<![\d.])1[._-](\d{1,2})(?![\d]|[._-]\d)")
_LEGACY = re.compile(r"(?<![a-z])(legacy|deprecated|old)(?![a-z])", re.IGNORECASE)


def _is_for_old(path: str, removed: str) -> bool:
    """Whether the name of a file or of its folder says that it is for clusters that still have the version."""
    names = "/".join(re.split(r"[\\/]", path)[-2:])
    minors = [int(minor) for minor in _OF_KUBERNETES_1.findall(names.removesuffix(".yaml").removesuffix(".yml"))]
    before = any(minor < int(removed.partition(".")[2]) for minor in minors)
    return before or _LEGACY.search(names) is not None


def _has_a_copy(file: File, root: Node, right: str) -> bool:
    """Whether the object is also written with the version of newer clusters, in this file or beside it."""
    wanted = [right, *(text_at(root, *path) for path in (("kind",), ("metadata", "name")))]
    own = [None if one is None else getattr(one, "value", one) for one in wanted]
    for other in (file, *manifests_beside(file, right)):
        for node in other.nodes if other.format == "kubernetes" else ():
            stated = [text_at(node, *path) for path in (("apiVersion",), ("kind",), ("metadata", "name"))]
            if [None if one is None else one.value for one in stated] == own:
                return True
    return False


def _folded(kind: str) -> str:
    """Job, job and Jobs alike."""
    return kind.lower().removesuffix("s")


def why_refused(kind: str) -> str:
    """What an invalid pod template does: Kubernetes' own kinds are refused with it, custom kinds only later."""
    if kind == "Pod":
        return "the API server refuses the pod."
    if kind in _OF_KUBERNETES:
        return f"the API server validates the pod inside of a {kind}, and refuses the whole object."
    return "the object itself is accepted, but the API server refuses its pods: the job does not start."


def requests_above_limits(pod: Pod, container: Container) -> Iterator[Problem]:
    for name in ("memory", "cpu"):
        request, limit = container.requests.get(name), container.limits.get(name)
        if request is not None and limit is not None and _is_above(request, limit):
            yield problem(
                request,
                f"{request.text} of {name} requested, limit {limit.text}: Kubernetes refuses a request above its limit",
                f"request at most {limit.text}",
                why=why_refused(pod.kind),
            )


def _is_above(one: Value[str], other: Value[str]) -> bool:
    """Whether both amounts are known, and the first is the larger one."""
    asked, most = quantity(one), quantity(other)
    return asked is not None and most is not None and asked > most


def large_claims(roots: list[Node]) -> Iterator[Problem]:
    """Claims that name a volume of the same file and ask for more than it has. A volume that names its claim too is
    bound to it whatever its size."""
    volumes = {
        name.value: text_at(root, "spec", "capacity", "storage")
        for root in roots
        if (name := text_at(root, "metadata", "name"))
        and (kind := text_at(root, "kind"))
        and kind.value == "PersistentVolume"
        and root.get("spec", "claimRef") is None
    }
    for root in roots:
        named = text_at(root, "spec", "volumeName")
        has = volumes.get(named.value) if named is not None and named.known else None
        wants = text_at(root, "spec", "resources", "requests", "storage")
        if wants is not None and has is not None and _is_above(wants, has):
            yield problem(
                wants,
                f"the claim asks for {wants.text} of a volume that has {has.text}: it is never bound",
                f"ask for at most {has.text}",
                why="the claim stays Pending, and every pod that uses it with it.",
            )
