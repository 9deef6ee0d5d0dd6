"""Version numbers as people write them, how they compare, and conditions on them (`efa <1.29.1, nccl >=2.19`)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import total_ordering

from trainwright.errors import UserError


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Version:
    """`v2.27.7-1`, `1.43.2`, `5.15.0-1051-aws`: compared number by number; 1.7 equals 1.7.0."""

    text: str
    numbers: tuple[int, ...]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self._key() == other._key()

    def __lt__(self, other: Version) -> bool:
        return self._key() < other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __str__(self) -> str:
        return self.text

    def _key(self) -> tuple[int, ...]:
        numbers = self.numbers
        while numbers and numbers[-1] == 0:
            numbers = numbers[:-1]
        return numbers


def find_version(text: str) -> Version | None:
    """None for text that is not a version (`latest`, `main`, an empty string)."""
    match = re.match(r"\s*[vV]?(\d+(?:[.\-+_]\d+)*)", text)
    if match is None:
        return None
    return Version(text.strip(), tuple(int(n) for n in re.split(r"[.\-+_]", match[1])))


def parse_version(text: str) -> Version:
    version = find_version(text)
    if version is None:
        raise UserError(f"{text!r} is not a version", fix="write it as numbers, like 2.27.7")
    return version


@dataclass(frozen=True, slots=True)
class Condition:
    """`ofi_nccl <1.7`: one comparison on one piece of software."""

    software: str
    operator: str
    version: Version

    def holds(self, actual: Version) -> bool:
        if self.operator == "<":
            return actual < self.version
        if self.operator == "<=":
            return actual <= self.version
        if self.operator == ">":
            return actual > self.version
        if self.operator == ">=":
            return actual >= self.version
        return actual == self.version

    def __str__(self) -> str:
        return f"{self.software} {self.operator}{self.version}"


def parse_conditions(text: str) -> tuple[Condition, ...]:
    """`efa <1.29.1, nccl >=2.19` as conditions that must all hold; empty text is no condition."""
    conditions = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        match = re.fullmatch(r"(\w+)\s*(<=|>=|==|<|>)\s*(\S+)", part)
        if match is None:
            raise ValueError(f"not a condition: {part!r}")
        conditions.append(Condition(match[1], match[2], parse_version(match[3])))
    return tuple(conditions)
