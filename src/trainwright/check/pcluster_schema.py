"""The keys of ParallelCluster files by version, and which version a file is written for: the one it states, else the
newest that accepts most of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from trainwright.catalog.tables import Table, read_table
from trainwright.check.model import File
from trainwright.check.readers.values import value_of
from trainwright.spec.source import Node

_TABLE = Path(__file__).parent / "data" / "parallelcluster_keys.csv"
# A comment that only names the version; one that says more may speak of another (`since`, `or later`, `dropped in`).
_STATED = re.compile(
    r"^[ \t]*#+[ \t]*(?:(?:made|written|tested|works)[ \t]+)?(?:(?:for|with|on|using)[ \t]+)?(?:AWS[ \t]+)?"
    r"(?:p|parallel[- ]?)cluster[ \t]*(?:version)?[ \t:=]*v?(3\.\d+)(?:\.\d+)?[ \t]*\.?[ \t\r]*$",
    re.IGNORECASE | re.MULTILINE,
)
Version = tuple[int, int]
_FIRST, _LAST = (0, 0), (99, 0)


@dataclass(frozen=True, slots=True)
class Key:
    """What the schema says about one key."""

    kind: str  # map | maps | value | list | free
    required: bool
    allowed: dict[str, tuple[Version, Version]]  # value -> first and last version
    least: int | None
    id: str  # the prefix of an AWS id
    period: tuple[Version, Version]

    def choices(self, version: Version) -> tuple[str, ...]:
        """The values that a version accepts; empty where any value goes."""
        return tuple(value for value, period in self.allowed.items() if period[0] <= version <= period[1])


@dataclass(frozen=True, slots=True)
class Refusal:
    """A key or value that one version does not have."""

    parent: Node
    path: str
    name: str
    value: Node | None = None  # the value, where the key itself is known


def text(version: Version) -> str:
    return f"{version[0]}.{version[1]}"


def _version(written: str, default: Version) -> Version:
    major, _, minor = written.partition(".")
    return (int(major), int(minor)) if written else default


def _period(since: str, until: str) -> tuple[Version, Version]:
    return _version(since, _FIRST), _version(until, _LAST)


@cache
def _table() -> Table:
    return read_table(_TABLE)


@cache
def versions() -> tuple[Version, ...]:
    """Every version of the table, newest first."""
    return tuple(_version(name, _FIRST) for name in reversed(_table().notes["versions"].split()))


@cache
def _sections() -> dict[str, dict[str, Key]]:
    sections: dict[str, dict[str, Key]] = {}
    for row in _table().records():
        allowed = {}
        for choice in row["allowed"].split("|") if row["allowed"] else ():
            value, _, period = choice.partition("@")
            allowed[value] = _period(*period.split("-")) if period else (_FIRST, _LAST)
        least = int(float(row["least"])) if row["least"] else None
        key = Key(row["kind"], row["required"] == "yes", allowed, least, row["id"], _period(row["since"], row["until"]))
        sections.setdefault(row["parent"], {})[row["key"]] = key
    return sections


def keys_of(path: str, version: Version) -> dict[str, Key]:
    """The keys of a section in one version."""
    section = _sections().get(path, {})
    return {name: key for name, key in section.items() if key.period[0] <= version <= key.period[1]}


def is_key(path: str, name: str) -> bool:
    """Whether any version has the key in this section."""
    return name in _sections().get(path, {})


def sections_with(path: str, name: str, version: Version) -> tuple[list[str], list[str]]:
    """The sections above this one (the nearest first) and those below it that have the key."""
    others = [other for other in _sections() if other != path and name in keys_of(other, version)]
    above = [other for other in others if not other or path.startswith(f"{other}.")] if path else []
    below = [other for other in others if not path or other.startswith(f"{path}.")]
    return sorted(above, key=len, reverse=True), below


def version_of(file: File, root: Node) -> tuple[Version, bool]:
    """The version a file is written for, and whether the file states it."""
    stated = _STATED.search(file.text)
    target = file.targets.get("parallelcluster") or (stated[1] if stated else "")
    if re.fullmatch(r"3\.\d+(\.\d+)?", target):
        wanted = _version(".".join(target.split(".")[:2]), _FIRST)
        return (wanted if wanted in versions() else versions()[0]), True
    fewest, best = None, versions()[0]
    for version in versions():
        count = sum(1 for _ in refusals(root, version))
        if fewest is None or count < fewest:
            fewest, best = count, version
        if count == 0:
            break
    return best, False


def may_be_older_than(file: File, limit: Version) -> bool:
    """Whether the newest version refuses the file anyway and one before the limit accepts it: which one reads it, the
    file does not say."""
    roots = [root for root in file.nodes if root.get("Scheduling") is not None]
    if not roots or not any(_refused(root, versions()[0]) for root in roots):
        return False
    version, stated = version_of(file, roots[0])
    if stated:
        return version < limit
    return any(not any(_refused(root, one) for root in roots) for one in versions() if one < limit)


def _refused(root: Node, version: Version) -> bool:
    return next(refusals(root, version), None) is not None


def refusals(node: Node, version: Version, path: str = "") -> Iterator[Refusal]:
    """Every key and fixed value below a node that a version does not have. Nothing below an unknown key is reported."""
    keys = keys_of(path, version)
    for name, child in node.items():
        key = keys.get(name)
        below = f"{path}.{name}" if path else name
        if key is None:
            yield Refusal(node, path, name)
        elif key.kind in ("map", "maps"):
            for element in child.elements() if child.is_list else [child]:
                yield from refusals(element, version, below)
        elif key.allowed:
            for element in child.elements() if child.is_list else [child]:
                if refused(element, key.choices(version)):
                    yield Refusal(node, path, name, element)


def refused(node: Node, choices: tuple[str, ...]) -> bool:
    """Whether a plain value is outside a fixed choice."""
    if not choices or not node.is_scalar or node.value is None or not value_of(node).known:
        return False
    return node.text not in choices and str(node.value) not in choices
