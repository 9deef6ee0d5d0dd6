"""The list of checks, and the suites they run in."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache

from trainwright.health.node import Node
from trainwright.health.profile import Profile
from trainwright.health.verdict import Check, Outcome

SUITES = ("quick", "deep", "burn")  # each runs the ones before it too
FAMILIES = ("gpu", "nvlink", "kernel_log", "efa", "neuron", "host", "storage", "software", "burn")
_CHECKS: list[Check] = []

Function = Callable[[Node, Profile], Outcome]


def check(
    id: str,
    *,
    action: str,
    needs: tuple[str, ...] = (),
    suite: str = "quick",
    seconds: float = 0.05,
    commands: tuple[tuple[str, ...], ...] = (),
) -> Callable[[Function], Function]:
    """Register a check. The first line of its docstring is its title."""

    def register(function: Function) -> Function:
        title = (function.__doc__ or "").strip().split("\n")[0].rstrip(".")
        _CHECKS.append(Check(id, title, suite, needs, seconds, action, commands, function))
        return function

    return register


@cache
def checks() -> tuple[Check, ...]:
    for family in FAMILIES:
        importlib.import_module(f"trainwright.health.checks.{family}")
    # In the order of the families, whichever of them was imported first.
    return tuple(sorted(_CHECKS, key=lambda one: FAMILIES.index(one.function.__module__.rsplit(".", 1)[1])))


def checks_of(suite: str) -> tuple[Check, ...]:
    included = SUITES[: SUITES.index(suite) + 1]
    return tuple(one for one in checks() if one.suite in included)
