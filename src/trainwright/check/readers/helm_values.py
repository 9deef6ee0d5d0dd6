"""Values of a Helm chart -> model: what stands beside a `resources` map with accelerators is taken as a container."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.check.model import File, Pod, Value
from trainwright.check.readers.kubernetes_pods import container_of
from trainwright.check.readers.values import text_at
from trainwright.spec.source import Node

_ACCELERATORS = ("nvidia.com/gpu", "vpc.amazonaws.com/efa", "aws.amazon.com/neuron")


def recognise(root: Node) -> bool:
    """Values have no kind of their own: only those that ask for accelerators are ours."""
    return root.get("kind") is None and next(_containers(root), None) is not None


def read(file: File) -> None:
    """Fill the file's pods, one per container."""
    for root in file.nodes:
        for node in _containers(root):
            container = container_of(node)
            container.image = _image(node) or _image(root)
            file.pods.append(Pod(node.span, "values", containers=[container]))


def _containers(root: Node) -> Iterator[Node]:
    for node in root.walk():
        resources = node.get("resources") if node.is_map else None
        limits = resources.get("limits") if resources is not None else None
        if limits is not None and limits.is_map and any(name in limits.value for name in _ACCELERATORS):
            yield node


def _image(node: Node) -> Value[str] | None:
    """`image: {repository: …, tag: …}`, as most charts write it; a tag that is left to the chart is not known."""
    repository, tag = text_at(node, "image", "repository"), text_at(node, "image", "tag")
    if repository is None or not repository.value:
        return None
    if tag is None or not tag.value:
        return repository.meaning(repository.value, known=False)
    return Value(f"{repository.value}:{tag.value}", tag.span, tag.text, tag.key, tag.known and repository.known)
