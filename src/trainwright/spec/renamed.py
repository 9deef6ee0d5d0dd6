"""Words that earlier versions used for a key or value. They stay accepted: the document is brought up to date before it
is validated, each value keeps its position, and `check` notes the word of today."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trainwright.spec.source import Node, Span

Place = tuple[str, ...]  # keys from the top of a document; `*` stands for any element or key

_AXES = {"tensor": "tp", "pipeline": "pp", "context": "cp", "expert": "ep", "virtual": "virtual_stages",
         "vp": "virtual_stages"}  # fmt: skip
_BATCH = {"micro": "micro_batch"}
_PRECISION = {"float8": "fp8"}


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The old words of one kind of document."""

    keys: Mapping[Place, Mapping[str, str]]
    values: Mapping[Place, Mapping[str, str]]


SPEC = Vocabulary(
    {("jobs", "*", "parallel"): _AXES, ("jobs", "*", "batch"): _BATCH}, {("jobs", "*", "precision"): _PRECISION}
)
RECIPE = Vocabulary({("parallel", "*"): _AXES, ("batch",): _BATCH}, {("precision",): _PRECISION})


@dataclass(frozen=True, slots=True)
class Renamed:
    """An old word, where it stands, and the word of today."""

    span: Span
    old: str
    new: str


def modernise(document: Node, vocabulary: Vocabulary) -> list[Renamed]:
    """Replace the old words of a document in place, and list them."""
    renamed: list[Renamed] = []
    for place, words in vocabulary.keys.items():
        for node in _nodes_at(document, place):
            renamed += _rename_keys(node, words)
    for place, words in vocabulary.values.items():
        for node in _nodes_at(document, place):
            if node.is_scalar and node.value in words:
                renamed.append(Renamed(node.span, node.value, words[node.value]))
                node.value = words[node.value]
    return renamed


def _nodes_at(node: Node, place: Place) -> Iterator[Node]:
    if not place:
        yield node
        return
    step, rest = place[0], place[1:]
    if step == "*":
        children = list(node.elements()) if node.is_list else [child for _, child in node.items()]
        for child in children:
            yield from _nodes_at(child, rest)
    elif node.is_map and (child_at := node.get(step)) is not None:
        yield from _nodes_at(child_at, rest)


def _rename_keys(node: Node, words: Mapping[str, str]) -> Iterator[Renamed]:
    """A key that is written under both words is left alone: validation names the unknown one."""
    if not node.is_map:
        return
    for old, new in words.items():
        if old in node.value and new not in node.value:
            span = node.key_span(old)
            node.value[new] = node.value.pop(old)
            node.keys[new] = node.keys.pop(old, span)
            yield Renamed(span, old, new)
