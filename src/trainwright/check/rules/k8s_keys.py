"""K8S: keys and types of Kubernetes' own objects and of custom kinds, which the API server takes or refuses."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check.kubernetes_schema import (
    CUSTOM,
    OBJECTS,
    REMOVED,
    VERSIONS,
    Key,
    custom_types,
    is_custom,
    keys_of,
    types,
)
from trainwright.check.model import Container, File, Value
from trainwright.check.readers.kubernetes import pod_specs
from trainwright.check.readers.kubernetes_pods import quantity
from trainwright.check.readers.values import is_placeholder, text_at, value_of
from trainwright.check.registry import Problem, problem, rule
from trainwright.errors import nearest
from trainwright.spec.source import Node

_PATCH = re.compile(r"^(\$|x-|<<$)")  # Kustomize's own keys, extensions, YAML's merge
_GROUPS = {version for version, _ in OBJECTS}
_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?([eE][-+]?\d+)?")
# Amounts of Karpenter, which are texts with a unit.
_UNITS = {
    "volumeSize": "Gi",
    "expireAfter": "h",
    "consolidateAfter": "s",
    "terminationGracePeriod": "s",
    "duration": "m",
}
# Where a key that stands in the wrong place belongs, the most likely place first.
_PLACES = {
    "Container": "container", "PodSpec": "pod's spec", "JobSpec": "job's spec", "ObjectMeta": "metadata",
    "SecurityContext": "container's securityContext", "PodTemplateSpec": "pod template",
}  # fmt: skip
# Keys of a pod that are written beside its template.
_OF_PODS = frozenset({
    "affinity", "containers", "dnsPolicy", "hostIPC", "hostNetwork", "imagePullSecrets", "initContainers",
    "nodeSelector", "restartPolicy", "securityContext", "serviceAccountName", "terminationGracePeriodSeconds",
    "tolerations", "topologySpreadConstraints", "volumeMounts", "volumes",
})  # fmt: skip
# Keys of custom kinds that no version has here: type, where they belong, and which they are.
_ELSEWHERE = [
    ("RayJob:spec", "rayClusterSpec",
     {"headGroupSpec", "workerGroupSpecs", "rayVersion", "enableInTreeAutoscaling", "autoscalerOptions"}),
    ("RayCluster:spec", "the spec of a RayJob", {"entrypoint", "shutdownAfterJobFinishes", "runtimeEnvYAML"}),
    ("NodePool:spec", "template.spec", {"requirements", "taints", "startupTaints", "nodeClassRef", "expireAfter"}),
    ("NodePool:spec", "disruption", {"consolidationPolicy", "consolidateAfter", "budgets"}),
    ("NodePool:spec.disruption", "spec.template.spec", {"expireAfter"}),
    ("NodePool:spec.template.spec", "the spec of the node class", {"kubelet"}),
    ("NodePool:spec.template.spec", "the spec of the NodePool", {"disruption", "limits", "weight"}),
    ("ClusterQueue:spec", "resourceGroups", {"flavors", "coveredResources"}),
    ("JobSet:spec.replicatedJobs", "template.spec", {"parallelism", "completions", "completionMode"}),
    ("PyTorchJob:spec", "elasticPolicy", {"minReplicas", "maxReplicas", "maxRestarts", "rdzvBackend"}),
]  # fmt: skip


@rule("K8S006", "error")
def objects_are_of_their_type(file: File) -> Iterator[Problem]:
    """Kubernetes' objects must have keys and types of values that the API server takes.

    Kind and apiVersion belong together. Keys exist at the place where they are written (`volumeMounts` in a container,
    `volumes` in the pod's spec); texts such as the value of a variable, a label or an argument are quoted where they
    look like a number or a truth value; numbers are not quoted; lists are lists. A container does not request more
    memory or CPU than its limit, nor a claim more than the volume it names. Read are Pods, Jobs, CronJobs, Deployments,
    StatefulSets, DaemonSets, Services, claims, volumes, ConfigMaps and Secrets, and the pods inside of other kinds.
    RayJobs, RayClusters, PyTorchJobs, MPIJobs, JobSets, TrainJobs and their runtimes, Kueue's queues and flavors and
    Karpenter's pools and classes are read too: types of values, and keys that are misspelt or belong elsewhere. A key
    of theirs that may be of another version is not reported.

    Why: kubectl refuses the file ("strict decoding error: unknown field", "cannot unmarshal number into Go struct field
    EnvVar.value of type string"). Other clients drop an unknown key without a word: the pod starts without its volume.

    Fix: as the message says.

    Source: schemas of Kubernetes 1.25 to 1.37 and of the CustomResourceDefinitions; Kubernetes documentation, field
    validation.

    When to ignore: a tool of your own changes the file before Kubernetes reads it.
    """
    if file.format != "kubernetes":
        return
    for root in file.nodes:
        version, kind = text_at(root, "apiVersion"), text_at(root, "kind")
        if version is None or kind is None or not (version.known and kind.known):
            continue
        pair = (version.value, kind.value)
        type_ = OBJECTS.get(pair) or CUSTOM.get(pair)
        yield from _kind(version, kind)
        if type_ is not None:
            yield from _map(root, type_, file.template)
        else:
            for spec in pod_specs(root):
                yield from _map(spec, "PodSpec", file.template)
    yield from _claims(file.nodes)
    for pod in file.pods:
        for container in pod.containers:
            yield from _amounts(container)


def _kind(version: Value[str], kind: Value[str]) -> Iterator[Problem]:
    """An object that no API server has: of a version that is gone, of another group's version, or misspelt."""
    pair = (version.value, kind.value)
    if pair in OBJECTS or pair in CUSTOM:
        return
    all_ = (*OBJECTS, *CUSTOM)
    right = next((known for known, name in all_ if name == kind.value), "")
    similar = (name for known, name in all_ if known == version.value and _folded(name) == _folded(kind.value))
    near = next(similar, "")
    if pair in REMOVED:
        said, fix = f"{version.value} has had no {kind.value} since Kubernetes {REMOVED[pair]}", f"write {right}"
    elif right and version.value in _GROUPS:
        said, fix = f"{version.value} has no {kind.value}", f"write apiVersion: {right}"
    elif near:
        said, fix = f"{version.value} has no {kind.value}", f"write kind: {near}"
    else:
        return
    at = kind if fix.startswith("write kind") else version
    yield problem(at, f"{said}: kubectl refuses the file", fix, why="no controller ever sees the object.")


def _folded(kind: str) -> str:
    """Job, job and Jobs alike."""
    return kind.lower().removesuffix("s")


def _map(node: Node, type_: str, template: bool) -> Iterator[Problem]:
    """The keys of a map, which is of this type."""
    keys = keys_of(type_)
    if keys is None:
        return
    for name, child in node.items():
        key = keys.get(name)
        if key is None:
            if not _PATCH.match(name) and not is_placeholder(name):
                yield from _unknown(node, name, type_, template)
        elif key.kind != "free" and child.value is not None and _readable(child):
            yield from _value(name, child, key, template)


def _unknown(node: Node, name: str, type_: str, template: bool) -> Iterator[Problem]:
    if is_custom(type_):
        yield from _unknown_custom(node, name, type_, template)
        return
    near = nearest(name, tuple(types()[type_]), 0.8)
    place = next((place for other, place in _PLACES.items() if name in types()[other]), "")
    if template and not near:
        return  # what the template leaves out may be the line that this key belongs to
    fix = f"write {near}" if near else f"it belongs to the {place}: move it there" if place else "remove it"
    yield problem(
        node.key_span(name),
        f"{_called(type_)} has no key {name} in Kubernetes {VERSIONS}: kubectl refuses it, other clients drop it",
        fix,
    )


def _unknown_custom(node: Node, name: str, type_: str, template: bool) -> Iterator[Problem]:
    """A misspelt or misplaced key. Any other may be one of another version."""
    known = custom_types()[type_]
    same = (key for key in known if _plainly(key) == _plainly(name))
    near = next(same, "") or nearest(name, tuple(known), 0.87)
    place = "" if near or template else _place(name, type_)
    if (near and node.get(near) is None) or place:
        yield problem(
            node.key_span(name),
            f"{_called(type_)} has no key {name}: kubectl refuses it, other clients drop it",
            f"write {near}" if near else f"it belongs to {place}: move it there",
        )


def _plainly(key: str) -> str:
    """nprocPerNode, nProcPerNode and nproc_per_node alike."""
    return key.lower().replace("_", "").replace("-", "")


def _place(name: str, type_: str) -> str:
    """Where a key of a custom kind belongs, if that is certain."""
    template = custom_types()[type_].get("template")
    if template is not None and template.inner == "PodTemplateSpec" and name in _OF_PODS:
        return "template.spec" if name in types()["PodSpec"] else "a container of template.spec"
    return next((place for here, place, names in _ELSEWHERE if here == type_ and name in names), "")


def _called(type_: str) -> str:
    """PodSpec -> a PodSpec, EnvVar -> an EnvVar; RayJob:spec -> the spec of a RayJob."""
    kind, _, path = type_.partition(":")
    owner = f"{'an' if kind[0] in 'AEIOU' else 'a'} {kind}"
    last = path.rsplit(".", 1)[-1]
    return f"the spec of {owner}" if path == "spec" else path if last == "spec" else last or owner


def _value(name: str, node: Node, key: Key, template: bool) -> Iterator[Problem]:
    if key.kind == "free":
        return
    if key.kind.endswith(" by name"):
        yield from _by_name(name, node, key, template)
    elif key.is_list:
        if not node.is_list:
            yield problem(node.span, f"{name} must be a list: kubectl refuses the file", "write it as a list")
        for element in node.elements():
            if element.value is not None and _readable(element):
                yield from _value(name, element, Key(key.kind.removesuffix("s"), key.inner), template)
    elif key.kind == "map":
        if node.is_map:
            yield from _map(node, key.inner, template)
        else:
            yield problem(
                node.span, f"{name} must be a map of keys: kubectl refuses the file", "write its keys below it"
            )
    else:
        yield from _scalar(name, node, key.kind)


def _by_name(name: str, node: Node, key: Key, template: bool) -> Iterator[Problem]:
    kind = key.kind.removesuffix(" by name")
    if not node.is_map:
        yield problem(node.span, f"{name} must be a map: kubectl refuses the file", "write `key: value` below it")
    for part, child in node.items() if kind in ("text", "map") else ():
        if child.value is not None and _readable(child):
            yield from _value(f"{name}.{part}", child, Key(kind, key.inner), template)


def _readable(node: Node) -> bool:
    """Whether it is written here, and is no placeholder."""
    return node.is_map or value_of(node).known


def _scalar(name: str, node: Node, kind: str) -> Iterator[Problem]:
    if node.is_list or node.is_map:
        shape = "list" if node.is_list else "map"
        said = f"{name} must be a single value, not a {shape}: kubectl refuses the file"
        yield problem(node.span, said, _one_value(name, node, kind))
    elif kind == "text" and not isinstance(node.value, str) and _looks_typed(node):
        what = "truth values" if isinstance(node.value, bool) else "numbers"
        yield problem(
            node.span, f"{name} must be text, and {what} without quotes are not: kubectl refuses the file",
            f"write it with a unit: {node.text}{_UNITS[name]}" if name in _UNITS else f'write "{node.text}"',
        )  # fmt: skip
    elif kind in ("whole", "number") and isinstance(node.value, str | bool):
        what = "a number without quotes" if _NUMBER.fullmatch(node.text) else "a number"
        yield problem(node.span, f"{name} must be {what}: kubectl refuses the file", _plain(node))
    elif kind == "flag" and not isinstance(node.value, bool):
        yield problem(node.span, f"{name} must be true or false without quotes: kubectl refuses the file", _plain(node))


def _one_value(name: str, node: Node, kind: str) -> str:
    owner, _, part = name.partition(".")
    if owner == "rayStartParams":
        return "write it as text: ray start takes JSON there"
    if part and node.is_map:
        return f"write its keys directly below {owner}"
    if name in ("runtimeEnv", "runtimeEnvYAML"):
        return "write `runtimeEnvYAML: |`, with these lines below it"
    return "write it as text" if kind == "text" else "write one"


def _looks_typed(node: Node) -> bool:
    """Whether Kubernetes' YAML reader sees a number or a truth value too: it has no yes, no 12:30 and no dates."""
    return node.text.lower() in ("true", "false") or _NUMBER.fullmatch(node.text) is not None


def _plain(node: Node) -> str:
    return f"write {node.text} without quotes" if node.text.lower() in ("true", "false") or node.text.isdigit() else ""


def _amounts(container: Container) -> Iterator[Problem]:
    for name in ("memory", "cpu"):
        request, limit = container.requests.get(name), container.limits.get(name)
        if request is not None and limit is not None and _is_above(request, limit):
            yield problem(
                request,
                f"{request.text} of {name} requested, limit {limit.text}: Kubernetes refuses a request above its limit",
                f"request at most {limit.text}",
                why="the API server rejects the pod, and the controller of a job tries for ever.",
            )


def _is_above(one: Value[str], other: Value[str]) -> bool:
    """Whether both amounts are known, and the first is the larger one."""
    asked, most = quantity(one), quantity(other)
    return asked is not None and most is not None and asked > most


def _claims(roots: list[Node]) -> Iterator[Problem]:
    """Claims that name a volume of the same file and ask for more than it has."""
    volumes = {
        name.value: text_at(root, "spec", "capacity", "storage")
        for root in roots
        if (name := text_at(root, "metadata", "name"))
        and (kind := text_at(root, "kind"))
        and kind.value == "PersistentVolume"
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
