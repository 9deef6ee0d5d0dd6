"""Software versions: how they compare, which ones go together, what an accelerator needs, what EKS still supports.
The facts are in data/versions.toml."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from functools import total_ordering
from typing import Any

from trainwright.catalog.tables import remembered, shipped_toml
from trainwright.errors import UserError, did_you_mean


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
    """None for what is no version at all (`latest`, `main`, an empty string)."""
    found = re.match(r"\s*[vV]?(\d+(?:[.\-+_]\d+)*)", text)
    if found is None:
        return None
    return Version(text.strip(), tuple(int(n) for n in re.split(r"[.\-+_]", found[1])))


def parse_version(text: str) -> Version:
    found = find_version(text)
    if found is None:
        raise UserError(f"{text!r} is not a version", fix="write it as numbers, like 2.27.7")
    return found


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
    found = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        match = re.fullmatch(r"(\w+)\s*(<=|>=|==|<|>)\s*(\S+)", part)
        if match is None:
            raise ValueError(f"not a condition: {part!r}")
        found.append(Condition(match[1], match[2], parse_version(match[3])))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class VersionSet:
    """Versions that were built and tested together."""

    name: str
    cuda: Version
    driver: Version
    gdrcopy: Version
    efa: Version
    libfabric: Version
    ofi_nccl: Version
    nccl: Version
    nccl_tests: Version
    parallelcluster: Version
    kubernetes: Version
    slurm: Version
    efa_k8s_plugin: Version
    date: str
    source: str

    def versions(self) -> dict[str, Version]:
        """By the names that conditions use."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in values.items() if isinstance(value, Version)}


def version_set(name: str = "default") -> VersionSet:
    tables: dict[str, dict[str, Any]] = shipped_toml("versions.toml")["set"]
    if name not in tables:
        raise UserError(f"no version set {name!r}", fix=did_you_mean(name, tables) or f"one of {', '.join(tables)}")
    row = {k: v if k in ("date", "source") else parse_version(v) for k, v in tables[name].items()}
    return VersionSet(name=name, **row)


@dataclass(frozen=True, slots=True)
class Minimum:
    """What an accelerator needs: below `minimum` it does not work, below `recommended` it works badly."""

    accelerators: tuple[str, ...]
    software: str
    minimum: Version
    recommended: Version | None
    why: str
    source: str


@remembered
def minimums() -> tuple[Minimum, ...]:
    return tuple(
        Minimum(
            accelerators=tuple(row["accelerators"]),
            software=row["software"],
            minimum=parse_version(row["minimum"]),
            recommended=parse_version(row["recommended"]) if "recommended" in row else None,
            why=row["why"],
            source=row["source"],
        )
        for row in shipped_toml("versions.toml")["minimum"]
    )


def minimums_for(accelerator: str, software: str | None = None) -> tuple[Minimum, ...]:
    """The needs of one accelerator, the strictest first for each software."""
    found = [m for m in minimums() if accelerator in m.accelerators and software in (None, m.software)]
    return tuple(sorted(found, key=lambda m: m.minimum, reverse=True))


@dataclass(frozen=True, slots=True)
class KubernetesVersion:
    version: Version
    released: date
    standard_until: date
    extended_until: date
    source: str

    def support(self, on: date) -> str:
        """`standard`, `extended` or `ended` on that day."""
        if on <= self.standard_until:
            return "standard"
        return "extended" if on <= self.extended_until else "ended"


@remembered
def kubernetes_versions() -> tuple[KubernetesVersion, ...]:
    rows = shipped_toml("versions.toml")["kubernetes"]
    return tuple(KubernetesVersion(**(row | {"version": parse_version(row["version"])})) for row in rows)


def kubernetes_support(version: str, on: date) -> str:
    """`standard`, `extended`, `ended`, or `unknown` for a version newer than the catalog."""
    wanted = parse_version(version)
    minor = Version(version, wanted.numbers[:2])
    for row in kubernetes_versions():
        if row.version == minor:
            return row.support(on)
    return "ended" if minor < kubernetes_versions()[0].version else "unknown"
