"""K8S: values of the right type that the API server refuses all the same: names, labels, amounts, tolerations, names
that are given twice. Each was sent to an API server (tests/control_plane/test_refused_values.py)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from trainwright.check.kubernetes_schema import CUSTOM, OBJECTS, types
from trainwright.check.model import Value
from trainwright.check.readers.kubernetes import pod_specs
from trainwright.check.readers.kubernetes_pods import maps_at, quantity
from trainwright.check.readers.values import map_values, text_at, texts_at
from trainwright.check.registry import Problem, problem
from trainwright.spec.source import Node

_LABEL = re.compile(r"(?=.{1,63}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?")  # of RFC 1123: containers, volumes
_SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")  # objects
_SERVICE = re.compile(r"(?=.{1,63}$)[a-z]([a-z0-9-]*[a-z0-9])?")  # of RFC 1035
_LABEL_VALUE = re.compile(r"(?=.{0,63}$)([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?")
_PORT = re.compile(r"(?=.{1,15}$)(?=.*[a-z])[a-z0-9]+(-[a-z0-9]+)*")
# What is replaced on the way to Kubernetes: JOB_NAME, job_name, __job__, {job}, <job>.
_STAND_IN = re.compile(r"[A-Z0-9_-]+|[\W_].*|.*[^\w. /@:-].*|.*_$|.*(name|your|replace|placeholder|todo).*", re.DOTALL)
_WORD_TO_REPLACE = re.compile(r"(?<![A-Za-z0-9])[A-Z][A-Z_]{2,}(?![A-Za-z])")  # train-USER: sed may fill it in
_AMOUNT = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?")
_WITH_BYTES = re.compile(r"(\d+(?:\.\d+)?)\s*([kKmMgGtT])i?[bB]?")
_STANDARD = re.compile(r"cpu|memory|ephemeral-storage|storage|hugepages-.*|.*/.*")
_FULL_NAMES = {
    "gpu": "nvidia.com/gpu", "gpus": "nvidia.com/gpu", "nvidiagpu": "nvidia.com/gpu", "efa": "vpc.amazonaws.com/efa",
    "neuron": "aws.amazon.com/neuron", "cpus": "cpu", "cores": "cpu", "vcpu": "cpu", "mem": "memory", "ram": "memory",
    "disk": "ephemeral-storage", "ephemeral": "ephemeral-storage",
}  # fmt: skip
_CHOICES = {
    "restartPolicy": ("Always", "OnFailure", "Never"),
    "imagePullPolicy": ("Always", "IfNotPresent", "Never"),
    "effect": ("NoSchedule", "PreferNoSchedule", "NoExecute"),
    "protocol": ("TCP", "UDP", "SCTP"),
    "accessModes": ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"),
    "clusterIP": ("None",),
    "operator": ("Exists", "Equal", "In", "NotIn", "DoesNotExist", "Gt", "Lt"),
}

_REFUSED = "Kubernetes refuses it"
_OTHER_LETTERS = "is not made of lower-case letters, digits and hyphens"
_WHOLE = "the API server refuses the whole object."


def refused_values(root: Node, kind: tuple[str, str], why: str) -> Iterator[Problem]:
    """What is refused in an object and the pods that it makes."""
    for one in _of_object(root, kind):
        yield replace(one, why=_WHOLE)
    for spec in pod_specs(root):
        for one in _pod(spec):
            yield replace(one, why=one.why or why)


def _of_object(root: Node, kind: tuple[str, str]) -> Iterator[Problem]:
    name = text_at(root, "metadata", "name")
    if kind in OBJECTS or kind in CUSTOM:
        fix = "write {} here and wherever the object is named"
        yield from _name(name, "the name", _SUBDOMAIN, fix, _SERVICE if kind == ("v1", "Service") else _SUBDOMAIN)
        yield from _labels(root.get("metadata", "labels"), "label")
        yield from _labels(root.get("spec", "template", "metadata", "labels"), "label")
    if kind[1] in ("PersistentVolumeClaim", "PersistentVolume") and kind in OBJECTS:
        for path in (("spec", "resources", "requests"), ("spec", "capacity")):
            yield from _amounts(root.get(*path))
        for mode in texts_at(root, "spec", "accessModes"):
            yield from _word(mode, "accessModes")
    service = root.get("spec")
    if kind == ("v1", "Service") and service is not None:
        yield from _choice(service, "clusterIP")
        for port in maps_at(service, "ports"):
            yield from _choice(port, "protocol")


def _pod(spec: Node) -> Iterator[Problem]:
    containers = [*maps_at(spec, "containers"), *maps_at(spec, "initContainers")]
    for container in containers:
        yield from _name(text_at(container, "name"), "the container's name", _LABEL, "write {}")
        yield from _choice(container, "imagePullPolicy")
        for key in ("requests", "limits"):
            yield from _amounts(container.get("resources", key), container.get("resources"))
        yield from _variables(container)
        yield from _port_names(container)
        yield from _twice([text_at(m, "mountPath") for m in maps_at(container, "volumeMounts")], "mounted")
    yield from _twice([text_at(container, "name") for container in containers], "the name of a container")
    yield from _volumes(spec)
    yield from _choice(spec, "restartPolicy")
    yield from _labels(spec.get("nodeSelector"), "node selector")
    for toleration in maps_at(spec, "tolerations"):
        yield from _toleration(toleration)


def _name(
    name: Value[str] | None, what: str, pattern: re.Pattern[str], fix: str, proposed: re.Pattern[str] = _LABEL
) -> Iterator[Problem]:
    if name is None or not name.known or pattern.fullmatch(name.value) or _STAND_IN.fullmatch(name.value):
        return
    plain = re.sub(r"[^a-z0-9.-]+" if proposed is _SUBDOMAIN else r"[^a-z0-9-]+", "-", name.value.lower()).strip("-.")
    made = (
        "is longer than 63 letters" if plain == name.value else "is not made of lower-case letters, digits and hyphens"
    )
    said = f"{what} {name.value!r} {made}: {_REFUSED}"
    fix = fix.format(plain) if proposed.fullmatch(plain) else "rename it"
    yield problem(name, said, fix, level="info" if _WORD_TO_REPLACE.search(name.value) else None)


def _labels(node: Node | None, what: str) -> Iterator[Problem]:
    for key, value in map_values(node).items():
        text = value.text
        known = value.known and isinstance(value.value, str) and not _STAND_IN.fullmatch(text)
        if known and not _LABEL_VALUE.fullmatch(text):
            shown = f"{text[:30]}…" if len(text) > 63 else text
            said = (
                f"the {what} {key} is {shown!r}: it takes 63 letters, digits, '-', '_' and '.' at most, and {_REFUSED}"
            )
            plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", text)[:63].strip("-_.")
            fix = f"write {plain or 'another value'} here and in selectors that name it, or make it an annotation"
            fix = fix if what == "label" else "write the node's label"
            yield problem(value, said, fix)


def _full_name(name: str, resources: Node) -> str:
    """The fix of a short name; an accelerator needs a limit, and the same request where it has one."""
    full = _FULL_NAMES.get(name, "")
    if not full:
        return "remove it, or write its full name, such as nvidia.com/gpu"
    holders = [resources.get(key) for key in ("requests", "limits")]
    if any(one is not None and one.get(full) is not None and one.get(name) is not None for one in holders):
        return f"remove it: {full} is there too"
    limit = resources.get("limits", name) or resources.get("limits", full)
    return f"write {full}" + (", and the same in limits" if "/" in full and limit is None else "")


def _amounts(node: Node | None, resources: Node | None = None) -> Iterator[Problem]:
    """`resources`: those of the container, where it is one of its lists."""
    for name, value in map_values(node).items():
        if not value.known or isinstance(value.value, dict | list) or value.value is None:
            continue
        amount = value.meaning(value.text)
        if resources is not None and not _STANDARD.fullmatch(name) and name.isalpha() and name.islower():
            at, said = value.key or value.span, f"{name} is no resource of a container: {_REFUSED}"
            yield problem(at, said, _full_name(name, resources))
        elif _is_no_amount(amount):
            yield problem(value, f"{value.text!r} is no amount of {name}: {_REFUSED}", _amount_fix(value.text, name))
        elif "/" in name and (quantity(amount) or 0) % 1:
            yield problem(value, f"{value.text} of {name}: {_REFUSED}, it takes whole numbers", "write a whole number")


def _is_no_amount(value: Value[str]) -> bool:
    """Whether a text that begins with a digit is no amount; what begins with a letter may be filled in."""
    text = value.value.strip()
    return text[:1].isdigit() and not _AMOUNT.fullmatch(value.value) and not re.search(r"[<{[(%]", text)


def _amount_fix(text: str, name: str = "memory") -> str:
    match = _WITH_BYTES.fullmatch(text.strip())
    if name == "cpu" or "/" in name:
        return "write a number without a unit"
    return f"write {match[1]}{match[2].upper()}i" if match is not None else "write a number, with a unit such as Gi"


def _variables(container: Node) -> Iterator[Problem]:
    for variable in maps_at(container, "env"):
        value = text_at(variable, "value")
        if value is not None and value.value and _is_given(variable, "valueFrom"):
            said = f"a variable has a value or valueFrom, not both: {_REFUSED}"
            yield problem(variable.key_span("valueFrom"), said, "keep one of the two")


def _is_given(node: Node, key: str) -> bool:
    """Whether a key has a value: one without is as good as none."""
    child = node.get(key)
    return child is not None and child.value is not None


def _port_names(container: Node) -> Iterator[Problem]:
    for port in maps_at(container, "ports"):
        yield from _choice(port, "protocol")
        name = text_at(port, "name")
        text = name.value if name is not None and name.known else ""
        if name is not None and text and not _PORT.fullmatch(text) and not _STAND_IN.fullmatch(text):
            said = f"the name of the port {name.value!r} is too long or has other characters: {_REFUSED}"
            yield problem(name, said, "use at most 15 lower-case letters, digits and single hyphens")


def _volumes(spec: Node) -> Iterator[Problem]:
    volumes, known = maps_at(spec, "volumes"), types()["Volume"].keys() - {"name"}
    for volume in volumes:
        name = text_at(volume, "name")
        yield from _name(name, "the volume's name", _LABEL, "write {} here and where it is mounted")
        sources = [key for key, child in volume.items() if key in known and child.value is not None]
        if len(sources) > 1 and name is not None:
            yield problem(name, f"a volume with {len(sources)} sources ({', '.join(sources)}): {_REFUSED}", "keep one")
        medium = text_at(volume, "emptyDir", "medium")
        if medium is not None and medium.value != "Memory" and medium.value.lower() == "memory":
            said = f"the kubelet does not know the medium {medium.value!r}: the pod does not start"
            yield problem(medium, said, "write Memory", why="the kubelet ends with `unknown storage medium`.")
        size = text_at(volume, "emptyDir", "sizeLimit")
        if size is not None and size.known and _is_no_amount(size):
            yield problem(size, f"{size.value!r} is no amount of memory: {_REFUSED}", _amount_fix(size.value))
    yield from _twice([text_at(volume, "name") for volume in volumes], "the name of a volume")


def _twice(values: list[Value[str] | None], what: str) -> Iterator[Problem]:
    stated = [value for value in values if value is not None and value.known]
    for text, count in Counter(value.value for value in stated).items():
        if count > 1:
            again = [value for value in stated if value.value == text][1]
            said = f"{text} is {what} twice" if what == "mounted" else f"{text!r} is {what} twice"
            yield problem(again, f"{said}: {_REFUSED}", "keep one, or change the second")


def _choice(node: Node, key: str) -> Iterator[Problem]:
    """A word in other letters than Kubernetes has it; any other may be one of a newer version."""
    value = text_at(node, key)
    if value is not None:
        yield from _word(value, key)


def _word(value: Value[str], key: str) -> Iterator[Problem]:
    if not value.known or value.value in _CHOICES[key]:
        return
    right = next((one for one in _CHOICES[key] if one.lower() == value.value.lower()), "")
    if right:
        yield problem(value, f"{key} cannot be {value.value!r}: {_REFUSED}", f"write {right}")


def _toleration(node: Node) -> Iterator[Problem]:
    operator, value = text_at(node, "operator"), text_at(node, "value")
    yield from _choice(node, "operator")
    yield from _choice(node, "effect")
    if operator is not None and operator.value == "Exists" and value is not None and value.value:
        yield problem(
            value, f"a toleration with the operator Exists takes no value: {_REFUSED}",
            "remove the value, or write operator: Equal",
        )  # fmt: skip
