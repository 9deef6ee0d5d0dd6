"""CFG: the keys of a ParallelCluster file, against the table of those that each version has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from trainwright.catalog.tables import Table, read_table
from trainwright.check.model import File
from trainwright.check.readers.values import to_int, value_of
from trainwright.check.registry import Problem, problem, rule
from trainwright.errors import did_you_mean
from trainwright.spec.source import Node, Span

_TABLE = Path(__file__).parents[1] / "data" / "parallelcluster_keys.csv"
# What changes from version to version: a value that this one refuses may suit an older one.
_BY_VERSION = {"Os", "Scheduler"}


@dataclass(frozen=True, slots=True)
class Key:
    """What is known about one key."""

    kind: str  # map | maps | value | list | free
    required: bool
    allowed: tuple[str, ...]
    least: int | None
    id: str  # the prefix of an AWS id


@cache
def _table() -> Table:
    return read_table(_TABLE)


@cache
def _keys() -> dict[str, dict[str, Key]]:
    keys: dict[str, dict[str, Key]] = {}
    for row in _table().records():
        allowed = tuple(row["allowed"].split("|")) if row["allowed"] else ()
        least = int(float(row["least"])) if row["least"] else None
        key = Key(row["kind"], row["required"] == "yes", allowed, least, row["id"])
        keys.setdefault(row["parent"], {})[row["key"]] = key
    return keys


@rule("CFG005", "error")
def keys_are_known(file: File) -> Iterator[Problem]:
    """A ParallelCluster file must use keys and values that ParallelCluster accepts.

    Misspelled and missing keys, values outside a fixed choice, numbers below the minimum, and malformed ids. The file's
    version (a comment or file name that states it, or the newest from 3.0 to 3.16 that accepts its keys) decides which
    keys exist, and the message names it. Files of the awsbatch scheduler and of schedulers of your own are checked as
    far as their schema is known. Only the first wrong key of a section is reported.

    Why: ParallelCluster refuses the file, with the path of the key but without its line.

    Fix: the key or value that the message proposes.

    Source: aws-parallelcluster 3.0.0 to 3.16.1, cluster schema.

    When to ignore: you use a ParallelCluster newer than this table.
    """
    if file.format == "parallelcluster":
        for root in file.nodes:
            if root.get("Scheduling") is not None:
                yield from _map(root, "", root.span)


def _map(node: Node, path: str, at: Span) -> Iterator[Problem]:
    known = _keys().get(path, {})
    for name, child in node.items():
        if name not in known:
            yield _unknown(node, name, path, known)
        elif not (child.is_scalar and child.value is None):
            yield from _value(node, name, child, known[name], f"{path}.{name}" if path else name)
    for name, key in known.items():
        if key.required and node.get(name) is None:
            yield problem(at, f"{path or 'the file'} has no {name}", f"add {name}")


def _unknown(node: Node, name: str, path: str, known: dict[str, Key]) -> Problem:
    hint = did_you_mean(name, known)
    if hint:
        return problem(node.key_span(name), f"ParallelCluster has no key {name!r} here", hint)
    where = f"under {path}" if path else "at the top"
    return problem(
        node.key_span(name),
        f"ParallelCluster {_table().notes['version']} knows no key {name!r} {where}",
        f"it knows {', '.join(known)}",
        level="warning",
    )


def _value(node: Node, name: str, child: Node, key: Key, path: str) -> Iterator[Problem]:
    if key.kind in ("map", "maps"):
        elements = list(child.elements()) if key.kind == "maps" and child.is_list else [child]
        for element in elements:
            if element.is_map:
                yield from _map(element, path, element.span if key.kind == "maps" else node.key_span(name))
            elif value_of(element).known and element.value is not None:
                yield problem(element, f"{name} expects a map here, not {element.text!r}", "indent its keys below it")
    elif key.kind in ("value", "list"):
        for element in child.elements() if child.is_list else [child]:
            if element.is_scalar and value_of(element).known and element.value is not None:
                yield from _scalar(name, element, key)


def _scalar(name: str, node: Node, key: Key) -> Iterator[Problem]:
    number = to_int(node.value)
    if key.allowed and node.text not in key.allowed and str(node.value) not in key.allowed:
        yield problem(
            node,
            f"{name} cannot be {node.text!r}"
            + (f" in ParallelCluster {_table().notes['version']}" if name in _BY_VERSION else ""),
            did_you_mean(node.text, key.allowed) or f"one of {', '.join(key.allowed)}",
            level="warning" if name in _BY_VERSION else None,
        )
    elif key.least is not None and number is not None and number < key.least:
        yield problem(node, f"{name} cannot be {number}", f"write {key.least} or more")
    elif key.id and not re.fullmatch(rf"{key.id}-[0-9a-z]{{8,}}", node.text):
        yield problem(node, f"{node.text!r} is not a valid id for {name}", f"write {key.id}-…")
