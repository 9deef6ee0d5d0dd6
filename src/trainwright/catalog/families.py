"""Container families: which base image holds a framework, and what is installed on it. Recipes name a family;
`trainwright image container` writes it. The facts are in data/families.toml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainwright.catalog.tables import cached, shipped_toml
from trainwright.errors import UserError, did_you_mean


@dataclass(frozen=True, slots=True)
class FrameworkImage:
    """What one framework adds to its family's image."""

    name: str
    packages: tuple[str, ...]  # of a package index; `torch` alone is the version set's
    imports: tuple[str, ...] = ()  # modules that its programs import; a build without one of them ends
    git: str = ""  # a source tree that it is started from
    commit: str = ""
    folder: str = ""
    path: str = ""  # of its Python modules in that tree, where they are not beside its programs
    torch: str = ""  # where it does not run with the set's
    set: str = "default"  # the version set it runs with
    base: str = ""  # where it needs another image than the family's


@dataclass(frozen=True, slots=True)
class Family:
    """A base image and the frameworks that run in it."""

    name: str
    title: str
    base: str  # with places such as {cuda}
    build: str  # the image that native code is compiled in; empty where none is
    accelerator: str  # nvidia | neuron
    nccl: str  # wheel: a Python package brings it; base: the base image holds it; empty: none
    frameworks: Mapping[str, FrameworkImage]
    source: str
    date: str
    system: tuple[str, ...] = ()  # packages of the distribution that jobs need

    def framework(self, name: str) -> FrameworkImage:
        """A framework of this family; a wrong name is a UserError."""
        if name not in self.frameworks:
            fix = did_you_mean(name, self.frameworks) or f"there are: {', '.join(self.frameworks)}"
            raise UserError(f"family {self.name} holds no framework {name!r}", fix=fix)
        return self.frameworks[name]


@cached
def families() -> Mapping[str, Family]:
    """Every family by its name."""
    tables: dict[str, dict[str, Any]] = shipped_toml("families.toml")
    return {name: _family(name, table) for name, table in tables.items()}


def _family(name: str, table: dict[str, Any]) -> Family:
    frameworks = {key: FrameworkImage(key, **_frozen(row)) for key, row in table["frameworks"].items()}
    system = tuple(table.get("system", ()))
    return Family(name=name, **{**table, "frameworks": frameworks, "system": system})


def family(name: str) -> Family:
    """A family by name; a wrong name is a UserError."""
    if name not in families():
        fix = did_you_mean(name, families()) or f"one of {', '.join(families())}"
        raise UserError(f"no container family {name!r}", fix=fix)
    return families()[name]


def family_of(framework: str) -> Family:
    """The family that holds a framework."""
    for one in families().values():
        if framework in one.frameworks:
            return one
    known = [name for one in families().values() for name in one.frameworks]
    fix = did_you_mean(framework, known) or f"there are: {', '.join(known)}"
    raise UserError(f"no container family holds {framework!r}", fix=fix)


def _frozen(row: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
