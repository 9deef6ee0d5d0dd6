"""EC2 questions the catalog asks: which instance types there are, and what spot costs today."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from trainwright.aws.session import aws_errors


def describe_instance_types(ec2: Any, names: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Every entry of DescribeInstanceTypes in the client's region, or only those of the given names."""
    wanted = {"InstanceTypes": list(names)} if names else {}
    with aws_errors("ec2:DescribeInstanceTypes"):
        pages = ec2.get_paginator("describe_instance_types").paginate(**wanted)
        return [entry for page in pages for entry in page["InstanceTypes"]]


def spot_prices(ec2: Any) -> dict[str, float]:
    """Instance type -> the lowest zone's Linux spot price of this moment, USD an hour."""
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
