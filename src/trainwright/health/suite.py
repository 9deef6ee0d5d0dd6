"""Runs a suite on a node: every check that applies, whatever the others say, and one verdict from all of them."""

from __future__ import annotations

import time
from collections.abc import Callable

from trainwright.health import inventory
from trainwright.health.node import Node
from trainwright.health.profile import Profile
from trainwright.health.registry import checks_of
from trainwright.health.verdict import Check, Outcome, Report, Result, skipped, worst
from trainwright.health.versions import versions_of

# Each need: whether the node has it, and what a report says where it has not.
NEEDS: dict[str, tuple[Callable[[Node, Profile], bool], str]] = {
    "gpu": (inventory.has_gpus, "no NVIDIA GPU"),
    "nvlink": (inventory.has_nvlink, "no NVLink"),
    "efa": (inventory.has_efa, "no EFA"),
    "neuron": (inventory.has_neuron, "no Neuron device"),
    "type": (lambda node, profile: profile.vcpus is not None, "the instance type is not known"),
    "nvme": (lambda node, profile: bool(profile.nvme_disks), "no instance storage"),
    "dcgmi": (lambda node, profile: node.has("dcgmi"), "DCGM is not installed"),
}


def run_suite(node: Node, profile: Profile, suite: str = "quick") -> Report:
    """Run every check of a suite and sum up."""
    began = time.perf_counter()
    chosen = checks_of(suite)
    applicable = [one for one in chosen if _unmet(one, node, profile) is None]
    node.prefetch(dict.fromkeys(command for one in applicable for command in one.commands))
    results = tuple(run_check(one, node, profile) for one in chosen)
    return Report(
        node=node.name,
        instance=profile.instance,
        suite=suite,
        verdict=worst([result.verdict for result in results]),
        complete=not any(result.unknown for result in results),
        time=node.time,
        seconds=round(time.perf_counter() - began, 3),
        results=results,
        versions=versions_of(node),
    )


def run_check(one: Check, node: Node, profile: Profile) -> Result:
    """One check's result. A mistake in a check is reported; it neither stops the others nor takes the node away."""
    began = time.perf_counter()
    reason = _unmet(one, node, profile)
    try:
        outcome = skipped(reason) if reason else one.function(node, profile)
    except Exception as error:  # a check that raises must become a line of the report
        outcome = Outcome("error", f"the check itself failed: {type(error).__name__}: {error}")
    verdict = {"fail": outcome.verdict or one.action, "warn": "monitor", "error": "monitor"}.get(outcome.status, "pass")
    unknown = outcome.status == "error" or outcome.verdict == "unknown"
    seconds = round(time.perf_counter() - began, 3)
    return Result(one.id, one.title, outcome.status, verdict, outcome.message, seconds, unknown)


def _unmet(one: Check, node: Node, profile: Profile) -> str | None:
    """Why a check does not apply to this node."""
    for need in one.needs:
        present, reason = NEEDS[need]
        if not present(node, profile):
            return reason
    return None
