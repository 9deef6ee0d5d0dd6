"""One pod template: its containers, volumes and the instance types its selectors allow."""

from __future__ import annotations

import re

from trainwright.check.model import Container, EnvVar, Pod, Value, Volume
from trainwright.check.readers.values import map_values, text_at
from trainwright.spec.source import Node

_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50} | {
    "m": 1e-3, "": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15,
}  # fmt: skip
_QUANTITY = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(Ki|Mi|Gi|Ti|Pi|m|k|M|G|T|P|)")
_COMMENT = re.compile(r"^\s*#.*$", re.MULTILINE)
INSTANCE_LABELS = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")


def pod_of(node: Node, kind: str, role: str, replicas: Value[int] | None) -> Pod:
    """A pod from its spec."""
    instances = _instances(node)
    return Pod(
        span=node.span,
        kind=kind,
        role=role,
        replicas=replicas,
        containers=[container_of(one) for one in maps_at(node, "containers")],
        volumes=_volumes(node),
        instance=instances[0] if len(instances) == 1 and instances[0].known else None,
        instances=instances,
        host_network=_true(node, "hostNetwork"),
        host_ipc=_true(node, "hostIPC"),
        mounted={name for key in _CONTAINERS for one in maps_at(node, key) for name in _used_volumes(one)},
        prepared={name for one in maps_at(node, "initContainers") for name in _used_volumes(one)},
        partial=any(one.get("image") is None for one in maps_at(node, "containers")),
    )


def _volumes(node: Node) -> list[Volume]:
    """The volumes that a pod declares. One that is filled in later, or has no name, stands for any."""
    listed = node.get("volumes")
    elements = list(listed.elements()) if listed is not None and listed.is_list else [listed] if listed else []
    named = [_volume(one) for one in elements if one.is_map and text_at(one, "name") is not None]
    others = [one for one in elements if one.value and (not one.is_map or text_at(one, "name") is None)]
    texts = [one.text if one.is_scalar else "" for one in others]
    return named + [
        Volume(one.span, Value("", one.span, text, known=False), "") for one, text in zip(others, texts, strict=True)
    ]


def _used_volumes(container: Node) -> list[str]:
    entries = maps_at(container, "volumeMounts") + maps_at(container, "volumeDevices")
    return [entry.value["name"].text for entry in entries if "name" in entry.value]


def container_of(node: Node) -> Container:
    """A container from its map."""
    return Container(
        span=node.span,
        name=text_at(node, "name"),
        image=text_at(node, "image"),
        requests=_quantities(node.get("resources", "requests")),
        limits=_quantities(node.get("resources", "limits")),
        mounts=_mounts(node),
        env=_env(node),
        workdir=text_at(node, "workingDir"),
        runs=_COMMENT.sub("", " ".join(word.text for word in command_words(node))),
        privileged=_true(node.get("securityContext") or node, "privileged"),
        claims_devices=node.get("resources", "claims") is not None,
    )


def command_words(container: Node) -> list[Node]:
    """The words that a container runs: its command and its arguments."""
    words = [word for key in ("command", "args") for word in _words(container.get(key))]
    return [word for word in words if word.value is not None]


def _words(node: Node | None) -> list[Node]:
    """The words of a command, which some write as one text."""
    listed = list(node.elements()) if node is not None and node.is_list else [node] if node is not None else []
    return [word for word in listed if word.is_scalar]


def maps_at(node: Node, key: str) -> list[Node]:
    """The maps of the list under a key."""
    child = node.get(key)
    return [one for one in child.elements() if one.is_map] if child is not None else []


def _true(node: Node, key: str) -> bool:
    child = node.get(key)
    return child is not None and child.value is True


def quantity(value: Value[str] | None) -> float | None:
    """Bytes or CPUs; None where it is not known."""
    match = _QUANTITY.fullmatch(value.text) if value is not None and value.known else None
    return float(match[1]) * _UNITS[match[2]] if match is not None else None


def _quantities(node: Node | None) -> dict[str, Value[str]]:
    values = map_values(node) if node is not None and node.is_map else {}
    return {
        name: value.meaning(value.text) for name, value in values.items() if not isinstance(value.value, dict | list)
    }


def _mounts(node: Node) -> list[tuple[Value[str], str]]:
    mounts = []
    for mount in maps_at(node, "volumeMounts"):
        path, name = text_at(mount, "mountPath"), text_at(mount, "name")
        if path is not None:
            mounts.append((path, name.value if name is not None else ""))
    return mounts


def _env(node: Node) -> list[EnvVar]:
    variables = []
    for entry in maps_at(node, "env"):
        name, value = text_at(entry, "name"), text_at(entry, "value")
        if name is not None and value is not None:
            variables.append(EnvVar(name.value, value, name.span))
    return variables


def _volume(node: Node) -> Volume:
    name = text_at(node, "name")
    kind = next((key for key, _ in node.items() if key != "name"), "emptyDir")
    assert name is not None  # the caller asks for volumes with a name
    return Volume(
        node.span, name, kind, text_at(node, "emptyDir", "medium"), size_limit=text_at(node, "emptyDir", "sizeLimit")
    )


def _instances(node: Node) -> list[Value[str]]:
    """The types a node selector or a required affinity allows."""
    labels = [text_at(node, "nodeSelector", label) for label in INSTANCE_LABELS]
    chosen = [one for one in labels if one is not None]
    required = node.get("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    terms = required.get("nodeSelectorTerms") if required is not None else None
    for term in terms.elements() if terms is not None else ():
        for expression in maps_at(term, "matchExpressions"):
            key, operator = text_at(expression, "key"), text_at(expression, "operator")
            values = expression.get("values")
            if key is not None and key.value in INSTANCE_LABELS and operator is not None and operator.value == "In":
                elements = values.elements() if values is not None else ()
                chosen += [Value(e.text, e.span, e.text) for e in elements if e.is_scalar]
    return chosen
