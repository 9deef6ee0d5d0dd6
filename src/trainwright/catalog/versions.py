"""Software versions: which ones go together, what an accelerator needs, what EKS still supports. The sets are in
data/versions.toml, what fits together in health/data/compatibility.csv; the variables that depend on versions are
re-exported from `environment`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from trainwright.catalog.environment import EnvRule, EnvVar, env_rules, environment, rules_for
from trainwright.catalog.tables import cached, shipped_table, shipped_toml
from trainwright.catalog.version_numbers import Condition, Version, find_version, parse_conditions, parse_version
from trainwright.errors import UserError, did_you_mean
from trainwright.health import compatibility

__all__ = [
    "Condition",
    "Conflict",
    "EfaInstaller",
    "EnvRule",
    "EnvVar",
    "KubernetesVersion",
    "Minimum",
    "Version",
    "VersionSet",
    "conflicts",
    "efa_installer",
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
    "today",
    "version_set",
    "version_sets",
]


@dataclass(frozen=True, slots=True)
class VersionSet:
    """Versions that were built and tested together."""

    name: str
    driver: Version
    cuda: Version
    nccl: Version
    torch: Version
    efa: Version
    efa_driver: Version
    libfabric: Version
    ofi_nccl: Version
    gdrcopy: Version
    nccl_tests: Version
    enroot: Version
    pyxis: Version
    container_toolkit: Version
    parallelcluster: Version
    slurm: Version
    kubernetes: Version
    efa_k8s_plugin: Version
    eks_image: str  # of EKS's own images for nodes: the date in their names
    date: str
    source: str

    def versions(self) -> dict[str, Version]:
        """By the names that conditions use."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in values.items() if isinstance(value, Version)}


def version_sets() -> tuple[str, ...]:
    """The names of the sets, the default first."""
    return tuple(shipped_toml("versions.toml")["set"])


@cached
def version_set(name: str = "default") -> VersionSet:
    tables: dict[str, dict[str, Any]] = shipped_toml("versions.toml")["set"]
    if name not in tables:
        raise UserError(f"no version set {name!r}", fix=did_you_mean(name, tables) or f"one of {', '.join(tables)}")
    row: dict[str, Any] = {
        k: v if k in ("eks_image", "date", "source") else parse_version(v) for k, v in tables[name].items()
    }
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


# What the compatibility table calls software, as it is found on a node -> what it is called here.
_NODE_NAMES = {"cuda_runtime": "cuda", "efa_installer": "efa"}


@cached
def minimums() -> tuple[Minimum, ...]:
    """The rows of the compatibility table that are about accelerators."""
    needs: dict[tuple[str, str], Minimum] = {}
    for row in compatibility.table():
        of = next((condition.value for condition in row.when if condition.operator == "in"), None)
        if of is None:
            continue
        software, version = _NODE_NAMES.get(row.requires.name, row.requires.name), parse_version(row.requires.value)
        if row.level == "fail":
            needs[of, software] = Minimum(tuple(of.split("|")), software, version, None, row.why, row.source)
        else:
            needs[of, software] = replace(needs[of, software], recommended=version)
    return tuple(needs.values())


def minimums_for(accelerator: str, software: str | None = None) -> tuple[Minimum, ...]:
    """The needs of one accelerator, the strictest first for each software."""
    matching = [m for m in minimums() if accelerator in m.accelerators and software in (None, m.software)]
    return tuple(sorted(matching, key=lambda m: m.minimum, reverse=True))


@dataclass(frozen=True, slots=True)
class Conflict:
    """Versions that do not go together."""

    software: str  # the one to change
    level: str  # error | warning
    why: str
    requires: str  # the least version of it, where that is what helps
    source: str


def conflicts(versions: Mapping[str, Version], accelerator: str = "") -> tuple[Conflict, ...]:
    """What the compatibility table says about versions, by the names that a set uses."""
    node = {there: here for there, here in _NODE_NAMES.items() if here in versions}
    known = {name: str(version).lstrip("vV") for name, version in versions.items() if name not in node.values()}
    known |= {there: str(versions[here]).lstrip("vV") for there, here in node.items()}
    return tuple(
        Conflict(
            _NODE_NAMES.get(row.requires.name, row.requires.name),
            "error" if row.level == "fail" else "warning",
            row.why,
            row.requires.value if row.requires.operator == ">=" else "",
            row.source,
        )
        for row in compatibility.broken(known, accelerator)
    )


@dataclass(frozen=True, slots=True)
class EfaInstaller:
    """What an EFA installer brings along."""

    installer: Version
    efa_driver: Version
    libfabric: Version
    ofi_nccl: Version


@cached
def _efa_installers() -> tuple[EfaInstaller, ...]:
    rows: list[EfaInstaller] = []
    known: dict[str, Version] = {}
    for record in shipped_table("efa_installers.csv").records():
        known |= {name: parse_version(text) for name, text in record.items() if name != "released" and text}
        rows.append(EfaInstaller(**known))
    return tuple(rows)


def efa_installer(version: Version) -> EfaInstaller | None:
    """What an installer brings: of a version between two that are known, at least what the older one does."""
    return next((row for row in reversed(_efa_installers()) if row.installer <= version), None)


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


def today() -> date:
    """The day on which support is judged: one place, so that tests can hold it."""
    return date.today()


def kubernetes_support(version: str, on: date) -> str:
    """`standard`, `extended`, `ended`, or `unknown` for a version newer than the catalog."""
    wanted = parse_version(version)
    minor = Version(version, wanted.numbers[:2])
    for row in kubernetes_versions():
        if row.version == minor:
            return row.support(on)
    return "ended" if minor < kubernetes_versions()[0].version else "unknown"
