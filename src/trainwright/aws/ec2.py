"""EC2 queries of the catalog: the instance types there are, and their prices today."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from trainwright.aws.session import aws_errors

BLOCK_HOURS = 24
NOT_SOLD_IN_BLOCKS = ("InvalidParameterValue", "InvalidParameterCombination", "Unsupported", "UnsupportedOperation")


def describe_instance_types(ec2: Any, names: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Every entry of DescribeInstanceTypes in the client's region, or only those of the given names."""
    wanted = {"InstanceTypes": list(names)} if names else {}
    with aws_errors("ec2:DescribeInstanceTypes"):
        pages = ec2.get_paginator("describe_instance_types").paginate(**wanted)
        return [entry for page in pages for entry in page["InstanceTypes"]]


def spot_prices(ec2: Any) -> dict[str, float]:
    """Instance type -> the lowest zone's Linux spot price right now, USD per hour."""
    lowest: dict[str, float] = {}
    with aws_errors("ec2:DescribeSpotPriceHistory"):
        pages = ec2.get_paginator("describe_spot_price_history").paginate(
            ProductDescriptions=["Linux/UNIX"], StartTime=datetime.now(UTC)
        )
        for page in pages:
            for row in page["SpotPriceHistory"]:
                usd = float(row["SpotPrice"])
                lowest[row["InstanceType"]] = min(usd, lowest.get(row["InstanceType"], usd))
    return lowest


def capacity_block_prices(ec2: Any, names: Iterable[str]) -> dict[str, float]:
    """Instance type -> USD per hour of the cheapest one-day block of one instance that AWS offers now. A type without
    an offer, or that is not sold in blocks in this region, is left out."""
    prices: dict[str, float] = {}
    for name in names:
        rates = [float(o["UpfrontFee"]) / o["CapacityBlockDurationHours"] for o in _offers(ec2, name)]
        if rates:
            prices[name] = round(min(rates), 4)
    return prices


def _offers(ec2: Any, name: str) -> list[dict[str, Any]]:
    from botocore.exceptions import ClientError

    with aws_errors("ec2:DescribeCapacityBlockOfferings"):
        try:
            answer = ec2.describe_capacity_block_offerings(
                InstanceType=name, InstanceCount=1, CapacityDurationHours=BLOCK_HOURS
            )
        except ClientError as error:
            if error.response.get("Error", {}).get("Code", "") in NOT_SOLD_IN_BLOCKS:
                return []
            raise
    offers: list[dict[str, Any]] = answer["CapacityBlockOfferings"]
    return offers
