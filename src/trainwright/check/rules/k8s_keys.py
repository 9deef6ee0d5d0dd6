"""K8S: keys and types of Kubernetes' own objects, which the API server takes or refuses."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check.kubernetes_schema import OBJECTS, REMOVED, VERSIONS, Key, types
from trainwright.check.model import Container, File, Value
from trainwright.check.readers.kubernetes import pod_specs
from trainwright.check.readers.kubernetes_pods import quantity
from trainwright.check.readers.values import text_at, value_of
from trainwright.check.registry import Problem, problem, rule
from trainwright.errors import nearest
from trainwright.spec.source import Node

_PATCH = re.compile(r"^(\$|x-|<<$)")  # Kustomize's own keys, extensions, YAML's merge
_GROUPS = {version for version, _ in OBJECTS}
_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?([eE][-+]?\d+)?")
# Where a key that stands in the wrong place belongs, the most likely place first.
_PLACES = {
    "Container": "container", "PodSpec": "pod's spec", "JobSpec": "job's spec", "ObjectMeta": "metadata",
    "SecurityContext": "container's securityContext", "PodTemplateSpec": "pod template",
}  # fmt: skip


@rule("K8S006", "error")
def objects_are_of_their_type(file: File) -> Iterator[Problem]:
    """Kubernetes' objects must have keys and types of values that the API server takes.

    Kind and apiVersion belong together. Keys exist at the place where they are written (`volumeMounts` in a container,
    `volumes` in the pod's spec); texts such as the value of a variable, a label or an argument are quoted where they
    look like a number or a truth value; numbers are not quoted; lists are lists. A container does not request more
    memory or CPU than its limit, nor a claim more than the volume it names. Read are Pods, Jobs, CronJobs, Deployments,
    StatefulSets, DaemonSets, Services, claims, volumes, ConfigMaps and Secrets, and the pods inside of other kinds.

    Why: kubectl refuses the file ("strict decoding error: unknown field", "cannot unmarshal number into Go struct field
    EnvVar.value of type string"). Other clients drop an unknown key without a word: the pod starts without its volume.

    Fix: as the message says.

    Source: schemas of Kubernetes 1.25 to 1.37; Kubernetes documentation, field validation.

    When to ignore: a tool of your own changes the file before Kubernetes reads it.
    """
    if file.format != "kubernetes":
        return
    for root in file.nodes:
        version, kind = text_at(root, "apiVersion"), text_at(root, "kind")
        if version is None or kind is None or not (version.known and kind.known):
            continue
        type_ = OBJECTS.get((version.value, kind.value))
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
    if pair in OBJECTS:
        return
    right = next((known for known, name in OBJECTS if name == kind.value), "")
    similar = (name for known, name in OBJECTS if known == version.value and _folded(name) == _folded(kind.value))
    near = next(similar, "")
    if pair in REMOVED:
        said, fix = f"{version.value} has had no {kind.value} since Kubernetes {REMOVED[pair]}", f"write {right}"
    elif right and version.value in _GROUPS:
        said, fix = f"{version.value} has no {kind.value}", f"write apiVersion: {right}"
    elif near:
        said, fix = f"{version.value} has no {kind.value}", f"write kind: {near}"
    else:
        return
    at = version if right else kind
    yield problem(at, f"{said}: kubectl refuses the file", fix, why="no controller ever sees the object.")


def _folded(kind: str) -> str:
    """Job, job and Jobs alike."""
    return kind.lower().removesuffix("s")


def _map(node: Node, type_: str, template: bool) -> Iterator[Problem]:
    """The keys of a map, which is of this type."""
    keys = types().get(type_)
    for name, child in node.items() if keys is not None else ():
        if keys is None or _PATCH.match(name) or not value_of(Node(name, child.span, name)).known:
            continue
        key = keys.get(name)
        if key is None:
            yield from _unknown(node, name, type_, template)
        elif child.value is not None and _readable(child):
            yield from _value(name, child, key, template)


def _unknown(node: Node, name: str, type_: str, template: bool) -> Iterator[Problem]:
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


def _called(type_: str) -> str:
    """PodSpec -> a PodSpec, EnvVar -> an EnvVar."""
    return f"{'an' if type_[0] in 'AEIOU' else 'a'} {type_}"


def _value(name: str, node: Node, key: Key, template: bool) -> Iterator[Problem]:
    if key.kind == "free":
        return
    if key.kind.endswith(" by name"):
        yield from _by_name(name, node, key.kind.removesuffix(" by name"))
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


def _by_name(name: str, node: Node, kind: str) -> Iterator[Problem]:
    if not node.is_map:
        yield problem(node.span, f"{name} must be a map: kubectl refuses the file", "write `key: value` below it")
    for _, child in node.items() if kind == "text" else ():
        if child.value is not None and _readable(child):
            yield from _scalar(name, child, kind)


def _readable(node: Node) -> bool:
    """Whether it is written here, and is no placeholder."""
    return node.is_map or value_of(node).known


def _scalar(name: str, node: Node, kind: str) -> Iterator[Problem]:
    if node.is_list or node.is_map:
        shape = "list" if node.is_list else "map"
        yield problem(node.span, f"{name} must be a single value, not a {shape}: kubectl refuses the file", "write one")
    elif kind == "text" and not isinstance(node.value, str) and _looks_typed(node):
        what = "truth values" if isinstance(node.value, bool) else "numbers"
        yield problem(
            node.span, f"{name} must be text, and {what} without quotes are not: kubectl refuses the file",
            f'write "{node.text}"',
        )  # fmt: skip
    elif kind in ("whole", "number") and isinstance(node.value, str | bool):
        yield problem(node.span, f"{name} must be a number without quotes: kubectl refuses the file", _plain(node))
    elif kind == "flag" and not isinstance(node.value, bool):
        yield problem(node.span, f"{name} must be true or false without quotes: kubectl refuses the file", _plain(node))


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
