"""K8S: keys and types of Kubernetes' own objects and of custom kinds, which the API server takes or refuses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from trainwright.check.kubernetes_schema import CUSTOM, OBJECTS, VERSIONS, Key, custom_types, is_custom, keys_of, types
from trainwright.check.kustomize import is_kustomized, is_patch
from trainwright.check.model import File
from trainwright.check.readers.kubernetes import pod_specs
from trainwright.check.readers.values import is_placeholder, is_to_fill_in, text_at, value_of
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.rules.k8s_claims import shared_claims
from trainwright.check.rules.k8s_karpenter import of_older_version
from trainwright.check.rules.k8s_lists import BY_TYPE, as_list
from trainwright.check.rules.k8s_missing import fix_of_fork, no_version, repeats_a_container
from trainwright.check.rules.k8s_places import (
    MOVED,
    custom_place,
    for_kind,
    held_twice,
    native_place,
    place_below,
    written_right,
)
from trainwright.check.rules.k8s_refused import large_claims, requests_above_limits, why_refused, wrong_kind
from trainwright.check.rules.k8s_required import missing_parts
from trainwright.check.rules.k8s_validation import refused_values
from trainwright.check.rules.k8s_workloads import incomplete_workload
from trainwright.errors import nearest
from trainwright.spec.source import Node

_PATCH = re.compile(r"^(\$|x-|<<$)")  # Kustomize's own keys, extensions, YAML's merge
# A template may leave out the line that a key belongs to; a pod of a kind that is not known may have keys of its own
# (Knative: containerConcurrency).
_Source = Literal["manifest", "template", "other kind"]
_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?([eE][-+]?\d+)?")
_UNKNOWN_FIELD = (
    "the API server answers `strict decoding error: unknown field`, and a client that does not ask for strict decoding "
    "creates the object without the key."
)
_OF_OTHER_TYPE = "the API server cannot read the object, and keeps none of it."
# Amounts of Karpenter, which are texts with a unit.
_UNITS = {
    "volumeSize": "Gi",
    "expireAfter": "h",
    "consolidateAfter": "s",
    "terminationGracePeriod": "s",
    "duration": "m",
}
# What a single word means where a map is due.
_FIRST_KEYS = {
    "ports": "containerPort", "imagePullSecrets": "name", "hostPath": "path", "persistentVolumeClaim": "claimName",
    "configMap": "name", "secret": "secretName",
}  # fmt: skip


@rule("K8S006", "error")
def objects_are_of_their_type(file: File) -> Iterator[Problem]:
    """Kubernetes' objects must have keys and types of values that the API server takes.

    Kind and apiVersion belong together, and none is missing. Keys exist at the place where they are written
    (`volumeMounts` in a container, `volumes` in the pod's spec); texts such as the value of a variable, a label or an
    argument are quoted where they look like a number or a truth value; numbers are not quoted; lists are lists. A
    container does not request more memory or CPU than its limit, nor a claim more than the volume it names; a claim of
    an EBS volume is not shared by pods on several nodes, nor ReadWriteMany (a warning where only the name of its class,
    such as gp3, shows EBS; a note where the pods may be on one node). Names are of lower-case letters, digits and
    hyphens and stand once; amounts have units of Kubernetes (64Gi, not 64GB); a toleration with `Exists` has no value;
    a Deployment selects the labels of its pods and restarts them; containers have names, volume mounts paths, and a
    Job no selector of its own. Read are Pods, Jobs, CronJobs, Deployments,
    StatefulSets, DaemonSets, Services, claims, volumes, ConfigMaps and Secrets, and the pods inside of other kinds.
    RayJobs, RayClusters, PyTorchJobs, MPIJobs, JobSets, TrainJobs and their runtimes,
    Kueue's queues and flavors and Karpenter's pools and classes are read too: types of values, and keys that are
    misspelt or belong elsewhere. A key of theirs that may be of another version is not reported, but what v1 of
    Karpenter requires or has renamed since v1beta1 (`nodeClassRef.group`, `consolidateAfter`, `amiSelectorTerms`).

    Why: Kubernetes refuses the object ("strict decoding error: unknown field", "cannot unmarshal number into Go struct
    field EnvVar.value of type string"). Other clients than kubectl drop an unknown key and report nothing: the pod
    starts without its volume.

    Fix: as the message says.

    Source: schemas of Kubernetes 1.25 to 1.37 and of the CustomResourceDefinitions; Kubernetes documentation, field
    validation.

    When to ignore: a tool of your own changes the file before Kubernetes reads it.
    """
    if file.format != "kubernetes":
        return
    whole = not file.template and not is_patch(file.path) and not any(pod.partial for pod in file.pods)
    for root in file.nodes:
        yield from no_version(file, root) if whole else ()
        version, kind = text_at(root, "apiVersion"), text_at(root, "kind")
        if version is None or kind is None or not (version.known and kind.known):
            continue
        pair = (version.value, kind.value)
        type_ = OBJECTS.get(pair) or CUSTOM.get(pair)
        yield from wrong_kind(file, root, version, kind)
        if type_ is not None:
            for one in _map(root, type_, "template" if file.template else "manifest"):
                yield for_kind(one, kind.value)
        else:
            for spec in pod_specs(root):
                for one in _map(spec, "PodSpec", "template" if file.template else "other kind"):
                    yield for_kind(one, kind.value)
        if not file.template:
            yield from refused_values(root, pair, why_refused(kind.value))
        if whole and not is_kustomized(file.path):
            yield from of_older_version(root, pair)
            yield from missing_parts(root, kind.value) if pair in OBJECTS else ()
        if whole:
            yield from incomplete_workload(root, pair, labelled=not is_kustomized(file.path))
    yield from large_claims(file.nodes)
    yield from shared_claims(file)
    for pod in file.pods:
        for container in pod.containers:
            yield from requests_above_limits(pod, container)


def _map(node: Node, type_: str, source: _Source) -> Iterator[Problem]:
    """The keys of a map, which is of this type."""
    keys = keys_of(type_)
    if keys is None:
        return
    for name, child in node.items():
        key = keys.get(name)
        if key is None:
            if not _PATCH.match(name) and not is_placeholder(name) and not repeats_a_container(node, name, type_):
                yield from _unknown(node, name, type_, source)
        elif key.kind != "free" and child.value is not None and _readable(child):
            yield from _value(name, child, key, source)


def _unknown(node: Node, name: str, type_: str, source: _Source) -> Iterator[Problem]:
    if is_custom(type_):
        yield from _unknown_custom(node, name, type_, source)
        return
    known = types()[type_]
    near, place = nearest(name, tuple(known), 0.8) or _swapped(name, tuple(known)), native_place(name, type_)
    if not near and (source == "template" or (source == "other kind" and not place)):
        return
    twice = held_twice(node, name) if place == "the pod's spec" else ""
    place = place or place_below(node, name, known)
    fix = _respelt(node, name, near, known[near]) if near else twice or written_right(name, type_)
    yield problem(
        node.key_span(name),
        f"{_called(type_)} has no key {name} in Kubernetes {VERSIONS}: kubectl refuses it, other clients drop it",
        fix_of_fork(name) or (MOVED.format(place) if place and not near and not twice else fix),
        why=_UNKNOWN_FIELD,
    )


def _swapped(name: str, known: tuple[str, ...]) -> str:
    """The key with the same letters: nmae for name."""
    return next((key for key in known if sorted(key) == sorted(name)), "")


def _respelt(node: Node, name: str, near: str, key: Key) -> str:
    """The fix of a misspelt key, which must leave a value that the right one takes."""
    child = node.value[name]
    if node.get(near) is not None:
        return f"remove it: {near} is there too" if child.is_scalar else f"move what it holds to {near}"
    if near.endswith("SelectorTerms") and child.is_map and child.get("tags") is None:
        return f"write {near}: [{{tags: {{…}}}}] with these tags"
    if near in _FIRST_KEYS and key.is_list and child.is_scalar:
        return f"write {near}: [{{{_FIRST_KEYS[near]}: {child.text}}}]"
    as_list = ", as a list" if key.is_list and not child.is_list else ""
    inner = keys_of(key.inner) if key.kind == "map" and child.is_map else None
    unknown = [part for part, _ in child.items() if part not in inner] if inner is not None else []
    return f"write {near}{as_list}" + (f", without {' and '.join(unknown)}" if unknown else "")


def _unknown_custom(node: Node, name: str, type_: str, source: _Source) -> Iterator[Problem]:
    """A misspelt or misplaced key. Any other may be one of another version."""
    known = custom_types()[type_]
    same = (key for key in known if _plainly(key) == _plainly(name))
    near = next(same, "") or nearest(name, tuple(known), 0.87)
    place = "" if near or source == "template" else custom_place(name, type_)
    if (near and node.get(near) is None) or place:
        yield problem(
            node.key_span(name),
            f"{_called(type_)} has no key {name}: kubectl refuses it, other clients drop it",
            _respelt(node, name, near, known[near]) if near else f"it belongs to {place}: move it there",
            why=_UNKNOWN_FIELD,
        )


def _plainly(key: str) -> str:
    """nprocPerNode, nProcPerNode and nproc_per_node alike."""
    return key.lower().replace("_", "").replace("-", "")


def _called(type_: str) -> str:
    """PodSpec -> a PodSpec, EnvVar -> an EnvVar; RayJob:spec -> the spec of a RayJob."""
    kind, _, path = type_.partition(":")
    owner = f"{'an' if kind[0] in 'AEIOU' else 'a'} {kind}"
    last = path.rsplit(".", 1)[-1]
    return f"the spec of {owner}" if path == "spec" else path if last == "spec" else last or owner


def _value(name: str, node: Node, key: Key, source: _Source) -> Iterator[Problem]:
    if key.kind == "free":
        return  # an element of a list that holds anything, as podTemplateOverrides does
    if key.kind.endswith(" by name"):
        yield from _by_name(name, node, key, source)
    elif key.is_list:
        if not node.is_list:
            yield problem(node.span, f"{name} must be a list: Kubernetes refuses it", as_list(name, node, key),
                          why=_OF_OTHER_TYPE)  # fmt: skip
        of_each = Key(key.kind.removesuffix("s"), key.inner)
        for element in node.elements():
            if element.value is not None and _readable(element):
                entry = f"an entry of {name}" if of_each.kind == "map" else name
                yield from _value(entry, element, of_each, source)
    elif key.kind == "map":
        if node.is_map:
            yield from _map(node, key.inner, source)
        else:
            said = f"{name} must be a map of keys: Kubernetes refuses it"
            first = BY_TYPE.get(key.inner) or _FIRST_KEYS.get(name.removeprefix("an entry of "))
            first = "medium" if name == "emptyDir" and node.text == "Memory" else first
            fix = f"write {{{first}: {node.text}}}" if first and node.is_scalar else "write its keys below it"
            fix += ", without a dash" if node.is_list else ""
            yield problem(node.span, said, fix, why=_OF_OTHER_TYPE)
    else:
        yield from _scalar(name, node, key.kind)


def _by_name(name: str, node: Node, key: Key, source: _Source) -> Iterator[Problem]:
    kind = key.kind.removesuffix(" by name")
    if not node.is_map:
        said = f"{name} must be a map: Kubernetes refuses it"
        fix = "write `key: value` below it" + (", without a dash" if node.is_list else "")
        yield problem(node.span, said, fix, why=_OF_OTHER_TYPE)
    for part, child in node.items() if kind in ("text", "map") else ():
        if child.value is not None and _readable(child):
            yield from _value(f"{name}.{part}", child, Key(kind, key.inner), source)


def _readable(node: Node) -> bool:
    """Whether it is written here, and is no placeholder."""
    return not is_to_fill_in(node) and (node.is_map or value_of(node).known)


def _scalar(name: str, node: Node, kind: str) -> Iterator[Problem]:
    if node.is_list or node.is_map:
        shape = "list" if node.is_list else "map"
        said = f"{name} must be a single value, not a {shape}: Kubernetes refuses it"
        yield problem(node.span, said, _one_value(name, node, kind), why=_OF_OTHER_TYPE)
    elif kind == "text" and not isinstance(node.value, str) and _looks_typed(node):
        what = "truth values" if isinstance(node.value, bool) else "numbers"
        yield problem(
            node.span, f"{name} must be text, and {what} without quotes are not: Kubernetes refuses it",
            f"write it with a unit: {node.text}{_UNITS[name]}" if name in _UNITS else f'write "{node.text}"',
            why=_OF_OTHER_TYPE,
        )  # fmt: skip
    elif kind in ("whole", "number") and isinstance(node.value, str | bool):
        what = "a number without quotes" if _NUMBER.fullmatch(node.text) else "a number"
        said = f"{name} must be {what}: Kubernetes refuses it"
        yield problem(node.span, said, _plain(node, "a number"), why=_OF_OTHER_TYPE)
    elif kind == "flag" and not isinstance(node.value, bool):
        said = f"{name} must be true or false without quotes: Kubernetes refuses it"
        yield problem(node.span, said, _plain(node, "true or false"), why=_OF_OTHER_TYPE)


def _one_value(name: str, node: Node, kind: str) -> str:
    owner, _, part = name.partition(".")
    if owner == "rayStartParams":
        json = part in ("resources", "labels")
        return "write it as text: ray start takes JSON there" if json else "move it beside rayStartParams"
    only = list(node.elements()) if node.is_list else []
    if len(only) == 1 and only[0].is_scalar:
        typed = kind == "text" and not isinstance(only[0].value, str)
        return f'write "{only[0].text}", not a list' if typed else f"write {only[0].text}, not a list"
    if owner in ("data", "stringData"):
        return f"write `{part}: |`, with these lines below it"
    if part and node.is_map:
        return f"write its keys directly below {owner}"
    if name in ("runtimeEnv", "runtimeEnvYAML"):
        return "write `runtimeEnvYAML: |`, with these lines below it"
    if kind == "text" and node.is_map:
        return "put it in quotes: a colon before a blank makes it a map"
    return "write it as text" if kind == "text" else "write one"


def _looks_typed(node: Node) -> bool:
    """Whether Kubernetes' YAML reader sees a number or a truth value too: it has no 12:30 and no dates."""
    return isinstance(node.value, bool) or _NUMBER.fullmatch(node.text) is not None


def _plain(node: Node, what: str) -> str:
    plain = node.text.lower() in ("true", "false") or node.text.isdigit()
    return f"write {node.text} without quotes" if plain else f"write {what}"
