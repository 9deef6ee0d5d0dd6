"""What the questions before `up` share: the form of an answer, and the zone in which the nodes will be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainwright.aws.session import Account, aws_errors

if TYPE_CHECKING:
    from trainwright.platforms.plan.tree import ClusterPlan


@dataclass(frozen=True)
class Answer:
    """One question and its verdict: pass, warn, fail or skip."""

    question: str
    verdict: str
    words: str


@dataclass(frozen=True)
class Place:
    """The zone of the nodes, by its id and by the name that it has in this account; empty where it is not known."""

    id: str = ""
    name: str = ""
    known: Mapping[str, str] = field(default_factory=dict)  # id -> name of all zones of the region


def place_of(account: Account, plan: ClusterPlan) -> Place:
    """Where the plan puts its nodes: in the zone of the subnet that the spec names, or of the planned network."""
    ec2, subnet = account.client("ec2"), plan.spec.network.private_subnet
    with aws_errors("zones"):
        rows = ec2.describe_availability_zones()["AvailabilityZones"]
    known = {row["ZoneId"]: row["ZoneName"] for row in rows}
    wanted = plan.spec.zone or _planned(plan)
    if subnet is not None:
        with aws_errors(f"subnet {subnet}"):
            wanted = ec2.describe_subnets(SubnetIds=[subnet])["Subnets"][0]["AvailabilityZone"]
    ids = {name: id for id, name in known.items()}
    if wanted in known:
        return Place(wanted, known[wanted], known)
    return Place(ids[wanted], wanted, known) if wanted in ids else Place(known=known)


def _planned(plan: ClusterPlan) -> str:
    """The zone of a planned network; empty where its nodes may be in several."""
    if plan.spec.network.zones > 1:
        return ""
    return next((stack.parameters.get("Zone1", "") for stack in plan.stacks if stack.key == "network"), "")
