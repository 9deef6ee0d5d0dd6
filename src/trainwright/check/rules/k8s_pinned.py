"""K8S: pods that name a Karpenter node pool of their file or directory, whose nodes they cannot use."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.catalog.instances import InstanceType
from trainwright.check.model import File, Value
from trainwright.check.readers.kubernetes_pods import INSTANCE_LABELS, maps_at
from trainwright.check.readers.values import int_at, text_at, texts_at
from trainwright.check.registry import Problem, problem
from trainwright.check.rules.k8s_groups import PodGroup, kind_of, name_of, pod_groups
from trainwright.check.rules.k8s_kueue import GPU, QUEUE_LABEL, gpus_of
from trainwright.check.rules.k8s_services import manifests_beside
from trainwright.check.tables import machine
from trainwright.spec.source import Node

_POOL = "karpenter.sh/nodepool"
_KEEPS_OUT = ("NoSchedule", "NoExecute")
_WAITS = "Karpenter starts no node for the pod, which stays Pending."


def unfit_for_pool(file: File) -> Iterator[Problem]:
    """The first reason for each group of pods, and limits for all groups of an object."""
    if file.template or any(pod.partial for pod in file.pods) or _POOL not in file.text:
        return
    for root in file.nodes:
        pinned = [(group, pool) for group in pod_groups(root) if (pool := _pool_of(file, group)) is not None]
        for group, pool in pinned:
            reasons = (*_taints(root, group, pool), *_type(group, pool), *_gpus(group, pool))
            yield from reasons[:1]
        if pinned and len({name_of(pool) for _, pool in pinned}) == 1:
            yield from _limit([group for group, _ in pinned], pinned[0][1])


def _pool_of(file: File, group: PodGroup) -> Node | None:
    """The one pool of a group's node selector."""
    named = text_at(group.spec, "nodeSelector", _POOL)
    if named is None or not named.known:
        return None
    own = [root for root in file.nodes if _is_pool(root, named.value)]
    beside = [] if own else [n for other in manifests_beside(file, "NodePool") for n in other.nodes]
    pools = own or [root for root in beside if _is_pool(root, named.value)]
    return pools[0] if len(pools) == 1 else None


def _is_pool(root: Node, name: str) -> bool:
    return kind_of(root) == "NodePool" and name_of(root) == name


def _taints(root: Node, group: PodGroup, pool: Node) -> Iterator[Problem]:
    """Kueue adds the tolerations of a flavor, and EKS that of an extended resource that the pod requests."""
    spec, at = pool.get("spec", "template", "spec"), group.spec.key_span("nodeSelector")
    if spec is None or root.get("metadata", "labels", QUEUE_LABEL) is not None:
        return
    asked = {key for node in group.spec.walk() if node.is_map for key, _ in node.items() if "/" in key}
    missing: dict[str, str] = {}
    for taint in maps_at(spec, "taints"):
        key, value, effect = (_text(taint, name) for name in ("key", "value", "effect"))
        if effect in _KEEPS_OUT and key not in asked and not _tolerated(group.spec, key, value, effect):
            missing[key] = f"{key}={value}:{effect}" if value else f"{key}:{effect}"
    if missing:
        taints = "the taint" if len(missing) == 1 else "the taints"
        said = f"the pool {name_of(pool)} has {taints} {' and '.join(missing.values())}, which the pods do not tolerate"
        added = ", ".join(f"{{key: {key}, operator: Exists}}" for key in missing)
        fix = f"add a toleration: {added}" if len(missing) == 1 else f"add tolerations: {added}"
        yield problem(at, said, fix, level="warning", why=_WAITS)


def _text(node: Node, key: str) -> str:
    value = text_at(node, key)
    return value.value if value is not None else ""


def _tolerated(spec: Node, key: str, value: str, effect: str) -> bool:
    listed = spec.get("tolerations")
    if listed is not None and not listed.is_list:
        return True  # filled in elsewhere
    for one in maps_at(spec, "tolerations"):
        stated = [text_at(one, name) for name in ("key", "value", "effect", "operator")]
        own, meant, only, operator = ("" if v is None else v.value if v.known else "?" for v in stated)
        matches = own in (key, "?") or (not own and operator == "Exists")
        if matches and only in ("", effect, "?") and (operator in ("Exists", "?") or meant in (value, "?")):
            return True
    return False


def _types(pool: Node) -> list[Value[str]]:
    """The instance types that a pool lists; none where it does not say."""
    spec = pool.get("spec", "template", "spec")
    for one in maps_at(spec, "requirements") if spec is not None else ():
        if _text(one, "key") in INSTANCE_LABELS and _text(one, "operator") == "In":
            return texts_at(one, "values")
    return []


def _type(group: PodGroup, pool: Node) -> Iterator[Problem]:
    types = _types(pool)
    named = next((v for label in INSTANCE_LABELS if (v := text_at(group.spec, "nodeSelector", label))), None)
    if named is None or not named.known or not types or not all(type_.known for type_ in types):
        return
    if named.value not in [type_.value for type_ in types]:
        starts = ", ".join(type_.value for type_ in types[:3])
        said = f"the pods need {named.value}, and the pool {name_of(pool)} that they name starts {starts}"
        yield problem(named, said, "name one instance type in both places", level="warning", why=_WAITS)


def _gpus(group: PodGroup, pool: Node) -> Iterator[Problem]:
    rows = [machine(value) for value in _types(pool)]
    known: list[InstanceType] = [row for row in rows if row is not None]
    asked, most = gpus_of(group.spec) or 0, max((row.gpus for row in known), default=0)
    if known and len(known) == len(rows) and asked > most:
        said = f"a pod needs {asked} GPUs, and the nodes of the pool {name_of(pool)} have {most}"
        at = group.spec.key_span("nodeSelector")
        yield problem(at, said, "name a pool with larger instance types", level="warning", why=_WAITS)


def _limit(groups: list[PodGroup], pool: Node) -> Iterator[Problem]:
    """GPUs of pods that run at once; those of a Deployment need not."""
    limit = int_at(pool, "spec", "limits", GPU)
    total = sum((gpus_of(group.spec) or 0) * (group.count or 0) for group in groups if group.kind != "Deployment")
    if limit is not None and limit.known and 0 < limit.value < total:
        said = f"the pods need {total} GPUs at once, and the pool {name_of(pool)} is limited to {limit.value}"
        why = "Karpenter starts no node above a limit of its pool: the last pods stay Pending, and the others wait."
        at = groups[0].spec.key_span("nodeSelector")
        yield problem(at, said, "raise the limit, or make the job smaller", level="warning", why=why)
