"""What goes together: data/compatibility.csv and how it is read. The catalog, `check` and `image` read it too."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

TABLE = Path(__file__).parent / "data" / "compatibility.csv"
_CONDITION = re.compile(r"\s*(\w+) (?:(unknown)|(>=|<|>|same |in )(\S+))\s*")


@dataclass(frozen=True)
class Condition:
    """`driver >=580`, `accelerator in h100|h200`, `fabric_manager same driver`, `cuda_driver unknown`."""

    name: str
    operator: str
    value: str

    def holds(self, versions: Mapping[str, str]) -> bool:
        have = versions.get(self.name, "")
        if self.operator == "unknown":
            return not have
        if self.operator == "in":
            return have in self.value.split("|")
        if self.operator == "same":
            return have == versions.get(self.value, "")
        if not have:
            return False
        ours, theirs = _plain(have), _plain(self.value)
        return ours >= theirs if self.operator == ">=" else (ours > theirs if self.operator == ">" else ours < theirs)


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    id: str
    when: tuple[Condition, ...]
    requires: Condition
    level: str  # fail | warn
    why: str
    source: str

    def broken_by(self, versions: Mapping[str, str]) -> bool:
        applies = all(condition.holds(versions) for condition in self.when)
        return applies and bool(versions.get(self.requires.name)) and not self.requires.holds(versions)

    @property
    def names(self) -> tuple[str, ...]:
        """The software it is about."""
        same = [self.requires.value] if self.requires.operator == "same" else []
        return tuple(dict.fromkeys([*(one.name for one in self.when), self.requires.name, *same]))


@lru_cache(maxsize=1)
def table() -> tuple[Row, ...]:
    with TABLE.open(encoding="utf-8") as handle:
        records = list(csv.DictReader(line for line in handle if not line.startswith("#")))
    return tuple(
        Row(
            record["id"], tuple(_condition(text) for text in record["when"].split("&")),
            _condition(record["requires"]), record["level"], record["why"], record["source"],
        )
        for record in records
    )  # fmt: skip


def _condition(text: str) -> Condition:
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise ValueError(f"{TABLE.name} has a condition that cannot be read: {text!r}")
    return Condition(match[1], (match[2] or match[3]).strip(), match[4] or "")


def broken(versions: Mapping[str, str], accelerator: str = "") -> Iterator[Row]:
    """The rows that these versions break. An accelerator counts by its name (`rtx-pro-6000`) or family (`a100-80`)."""
    named = any(accelerator in one.value.split("|") for row in table() for one in row.when if one.operator == "in")
    known = {**versions, "accelerator": accelerator if named else accelerator.split("-")[0]}
    return (row for row in table() if row.broken_by(known))


def numbers(version: str) -> tuple[int, ...]:
    """`2.1.0amzn5.0` as (2, 1, 0): what two versions are compared by."""
    match = re.match(r"v?(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in match[1].split(".")) if match else ()


def _plain(version: str) -> tuple[int, ...]:
    """1.15 equals 1.15.0."""
    parts = list(numbers(version))
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts)
