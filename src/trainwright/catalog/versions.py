"""Software versions: which ones go together, what an accelerator needs, what EKS still supports. The facts are in
data/versions.toml; the variables that depend on versions are re-exported from `environment`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Any

from trainwright.catalog.environment import EnvRule, EnvVar, env_rules, environment, rules_for
from trainwright.catalog.tables import cached, shipped_toml
from trainwright.catalog.version_numbers import Condition, Version, find_version, parse_conditions, parse_version
from trainwright.errors import UserError, did_you_mean

__all__ = [
    "Condition",
    "EnvRule",
    "EnvVar",
    "KubernetesVersion",
    "Minimum",
    "Version",
    "VersionSet",
    "env_rules",
    "environment",
    "find_version",
    "kubernetes_support",
    "kubernetes_versions",
    "minimums",
    "minimums_for",
    "parse_conditions",
    "parse_version",
    "rules_for",
    "software_title",
    "version_set",
]


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
    row: dict[str, Any] = {k: v if k in ("date", "source") else parse_version(v) for k, v in tables[name].items()}
    return VersionSet(name=name, **row)


def software_title(software: str) -> str:
    """`ofi_nccl` is printed as aws-ofi-nccl."""
    title: str = shipped_toml("versions.toml")["titles"].get(software, software)
    return title


@dataclass(frozen=True, slots=True)
class Minimum:
    """What an accelerator needs: below `minimum` it does not work, below `recommended` it works badly."""

    accelerators: tuple[str, ...]
    software: str
    minimum: Version
    recommended: Version | None
    why: str
    source: str


@cached
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
    matching = [m for m in minimums() if accelerator in m.accelerators and software in (None, m.software)]
    return tuple(sorted(matching, key=lambda m: m.minimum, reverse=True))


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


@cached
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
