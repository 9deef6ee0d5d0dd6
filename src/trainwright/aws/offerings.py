"""In which zones instance types are offered today, asked of EC2."""

from __future__ import annotations

from collections.abc import Iterable

from trainwright.aws.session import aws_errors, client


def offered_zones(region: str, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Instance type -> the zone ids of the region that offer it; none at all gives an empty tuple."""
    ec2 = client("ec2", region)
    zones: dict[str, set[str]] = {name: set() for name in names}
    with aws_errors("ec2:DescribeInstanceTypeOfferings"):
        pages = ec2.get_paginator("describe_instance_type_offerings").paginate(
            LocationType="availability-zone-id", Filters=[{"Name": "instance-type", "Values": sorted(zones)}]
        )
        for page in pages:
            for offer in page["InstanceTypeOfferings"]:
                zones[offer["InstanceType"]].add(offer["Location"])
    return {name: tuple(sorted(places)) for name, places in zones.items()}
