"""A spec that leaves its zone open stays where its network is: another catalog, another answer of AWS or a `zone:` that
was removed must not move a network that is deployed."""

from __future__ import annotations

from dataclasses import replace

from trainwright.aws.cloudformation import StackApi
from trainwright.platforms.plan.tree import ClusterPlan

NETWORK = "network"
ZONES = tuple(f"Zone{number}" for number in range(1, 7))


def with_deployed_zones(plan: ClusterPlan, stacks: StackApi) -> ClusterPlan:
    """The plan, its network in the zones of the network that is there."""
    planned = next((stack for stack in plan.stacks if stack.key == NETWORK), None)
    if plan.spec.zone is not None or planned is None:
        return plan
    deployed = stacks.describe(f"{plan.spec.name}-{NETWORK}")
    if deployed is None or not deployed.usable:
        return plan
    there = [zone for key in ZONES if (zone := deployed.parameters.get(key))]
    wanted = [planned.parameters[key] for key in ZONES if key in planned.parameters]
    style = deployed.parameters.get("ZoneStyle", "name")
    more = [zone for zone in wanted if zone not in there][: max(len(wanted) - len(there), 0)]
    if more and style != planned.parameters.get("ZoneStyle", "name"):
        return plan
    zones = [*there[: len(wanted)], *more]
    rest = {key: value for key, value in planned.parameters.items() if key not in (*ZONES, "ZoneStyle")}
    kept = replace(planned, parameters={**rest, "ZoneStyle": style, **dict(zip(ZONES, zones, strict=False))})
    return replace(plan, stacks=tuple(kept if stack is planned else stack for stack in plan.stacks))
