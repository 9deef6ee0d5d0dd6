"""The default security group of the VPC, which containers of EFA queues get from Batch.

A compute environment may not name groups where its launch template has network interfaces, and EFA needs those. AWS
then puts the containers of a multi-node job, each with an interface of its own, into the default group of the VPC. AWS
makes that group open among its members; many accounts close it by policy, and then the nodes of a job never meet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trainwright.aws.session import Account, aws_errors
from trainwright.platforms.apply.answers import Answer
from trainwright.spec.model import Spec

QUESTION = "default security group"


def closed_default_group(account: Account, subnet: str) -> str:
    """The id of the default group of a subnet's VPC if it keeps its members apart; empty where it does not."""
    ec2 = account.client("ec2")
    with aws_errors(f"subnet {subnet}"):
        vpc = ec2.describe_subnets(SubnetIds=[subnet])["Subnets"][0]["VpcId"]
    only = [{"Name": "vpc-id", "Values": [vpc]}, {"Name": "group-name", "Values": ["default"]}]
    with aws_errors(f"default security group of {vpc}"):
        group = ec2.describe_security_groups(Filters=only)["SecurityGroups"][0]
    inward = _admits(group["IpPermissions"], group["GroupId"])
    return "" if inward and _admits(group["IpPermissionsEgress"], group["GroupId"]) else str(group["GroupId"])


def _admits(rules: Iterable[Mapping[str, Any]], group: str) -> bool:
    """Whether the rules let all traffic of the group's members pass, by name or by address."""
    return any(
        rule["IpProtocol"] == "-1"
        and (
            group in [pair["GroupId"] for pair in rule.get("UserIdGroupPairs", ())]
            or "0.0.0.0/0" in [row["CidrIp"] for row in rule.get("IpRanges", ())]
        )
        for rule in rules
    )


def what_is_closed(group: str) -> str:
    return f"{group}, the default security group of the VPC, keeps the containers of a job apart"


def how_to_open(group: str) -> str:
    return (
        f"aws ec2 authorize-security-group-ingress --group-id {group} --protocol all --source-group {group}, and the "
        "egress rule to everywhere if it was removed: Batch puts the containers of EFA queues there"
    )


def ask_default_group(account: Account, spec: Spec) -> Iterator[Answer]:
    """Before `up`, where the network is there already."""
    subnet = spec.network.private_subnet
    if subnet is None or not any(queue.efa for queue in spec.queues):
        return
    group = closed_default_group(account, subnet)
    if group:
        yield Answer(QUESTION, "fail", f"{what_is_closed(group)}: {how_to_open(group)}")
    else:
        yield Answer(QUESTION, "pass", "containers of a job reach each other through it")
