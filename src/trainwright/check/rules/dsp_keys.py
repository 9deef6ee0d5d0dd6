"""DSP: keys that DeepSpeed does not have, as far as they look like typing mistakes."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.check.registry import Problem, problem
from trainwright.check.tables import table
from trainwright.errors import nearest
from trainwright.spec.source import Node

_NEAR_MISS = 0.9


def misspelled_keys(root: Node) -> Iterator[Problem]:
    """At the top DeepSpeed ignores a key that it does not know; in zero_optimization it stops."""
    known = table("deepspeed")
    for key, near in _near_misses(root, known["top"]):
        at = root.keys.get(key) or root.span
        yield problem(at, f"DeepSpeed ignores {key}: it has no such key", f"did you mean {near}?", level="warning")
    zero = root.get("zero_optimization")
    if zero is None or not zero.is_map:
        return
    keys = [*known["zero"], *known["stage3"], *(f"stage3_{name}" for name in known["stage3"])]
    for key, near in _near_misses(zero, keys):
        at = zero.keys.get(key) or zero.span
        yield problem(at, f"zero_optimization has no key {key}: DeepSpeed stops", f"did you mean {near}?")


def _near_misses(node: Node, known: list[str]) -> Iterator[tuple[str, str]]:
    for key, _ in node.items():
        near = nearest(key, known, _NEAR_MISS) if key not in known else ""
        if near and node.get(near) is None:
            yield key, near
