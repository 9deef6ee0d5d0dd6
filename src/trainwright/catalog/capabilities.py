"""What each platform and scheduler can honour of a spec, as data. Rules report what a spec asks for and its platform
cannot honour; renderers and schedulers rely on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from trainwright.catalog.tables import cached, shipped_toml


@dataclass(frozen=True, slots=True)
class Limit:
    """Something that cannot be honoured: why, and what to do instead."""

    why: str
    fix: str
    level: Literal["error", "info"] = "error"  # info: a section for another platform, which this one passes over


Limits = Mapping[tuple[str, ...], Limit]  # path in the spec (`*`: any element) -> why it cannot be honoured


@dataclass(frozen=True, slots=True)
class SchedulerCapabilities:
    """One way of running jobs."""

    name: str
    ships_code: bool  # the run folder made on this machine reaches the nodes; else the image holds the software
    cannot: Limits


@dataclass(frozen=True, slots=True)
class PlatformCapabilities:
    """One way of making a cluster, and the scheduler it comes with."""

    name: str
    title: str
    scheduler: str
    on_aws: bool
    cannot: Limits
    values: Mapping[tuple[str, ...], tuple[str, ...]]  # path -> the values that are possible


@cached
def platforms() -> dict[str, PlatformCapabilities]:
    """Every platform, by the name that a spec gives it."""
    table = shipped_toml("capabilities.toml")
    return {name: _platform(name, row, table["shared"]) for name, row in table["platforms"].items()}


@cached
def schedulers() -> dict[str, SchedulerCapabilities]:
    rows = shipped_toml("capabilities.toml")["schedulers"]
    return {name: SchedulerCapabilities(name, row["ships_code"], _limits(row)) for name, row in rows.items()}


def scheduler_of(platform: str) -> SchedulerCapabilities:
    """The scheduler that a platform's jobs run on."""
    return schedulers()[platforms()[platform].scheduler]


def _platform(name: str, row: dict[str, Any], shared: dict[str, Any]) -> PlatformCapabilities:
    values = {_path(key): tuple(choices) for key, choices in row.get("values", {}).items()}
    cannot = {path: limit for block in row.get("inherits", ()) for path, limit in _limits(shared[block]).items()}
    cannot |= _limits(row)
    return PlatformCapabilities(name, row["title"], row["scheduler"], row["on_aws"], cannot, values)


def _limits(row: dict[str, Any]) -> Limits:
    return {_path(key): Limit(*words) for key, words in row.get("cannot", {}).items()}


def _path(key: str) -> tuple[str, ...]:
    return tuple(key.split("."))
