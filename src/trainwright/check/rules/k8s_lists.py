"""K8S: what stands where Kubernetes takes a list, written as the list that it is meant to be."""

from __future__ import annotations

from trainwright.check.kubernetes_schema import Key, keys_of
from trainwright.spec.source import Node

_SEVERAL_WORDS = 'write each word as an element of its own, or the whole line as one: [sh, -c, "…"]'
# Elements of lists that one value stands for.
BY_TYPE = {"ContainerPort": "containerPort", "ServicePort": "port", "LocalObjectReference": "name"}


def as_list(name: str, node: Node, key: Key) -> str:
    """The fix, with which Kubernetes takes the value and it means what is written there."""
    if node.is_map:
        return _of_maps(node, key)
    if name == "args":
        return "write a list: each word as an element of its own, or the whole text as one if sh -c runs it"
    if name == "command" and len(node.text.split()) > 1:
        return _SEVERAL_WORDS
    if key.kind == "maps":
        inner = BY_TYPE.get(key.inner)
        return f"write [{{{inner}: {node.text}}}]" if inner is not None else "write it as a list"
    return f"write [{node.text}]" if "\n" not in node.text else "write it as a list"


def _of_maps(node: Node, key: Key) -> str:
    known = keys_of(key.inner) or {}
    if any(name in known for name, _ in node.items()):
        return "write a dash before its first key, and indent the others like this one"
    if key.inner == "EnvVar":
        return 'write each variable as an element: `- name: NAME`, and `value: "…"` below name'
    if "name" in known:
        return "write each entry as an element: `- name: NAME`, and its keys below name"
    return "write it as a list"
