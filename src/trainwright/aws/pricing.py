"""The Price List API: on-demand prices. It has endpoints in a few regions, which answer for all of them."""

from __future__ import annotations

import json
from typing import Any

from trainwright.aws.session import aws_errors

API_REGION = "us-east-1"
LINUX_ON_DEMAND = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",  # the list also names capacity blocks, at zero
}


def on_demand_prices(pricing: Any, region: str) -> dict[str, float]:
    """Instance type -> USD per hour for Linux on shared hardware in that region."""
    wanted = LINUX_ON_DEMAND | {"regionCode": region}
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()]
    prices: dict[str, float] = {}
    with aws_errors("pricing:GetProducts"):
        pages = pricing.get_paginator("get_products").paginate(ServiceCode="AmazonEC2", Filters=filters)
        for page in pages:
            for text in page["PriceList"]:
                product = json.loads(text)
                usd = hourly_usd(product)
                if usd:
                    prices[product["product"]["attributes"]["instanceType"]] = usd
    return prices


def hourly_usd(product: dict[str, Any]) -> float:
    """The hourly rate of one product; 0 where it is sold some other way (a capacity block's instance costs nothing)."""
    rates = [
        float(dimension["pricePerUnit"].get("USD", 0))
        for term in product.get("terms", {}).get("OnDemand", {}).values()
        for dimension in term["priceDimensions"].values()
        if dimension["unit"] == "Hrs"
    ]
    return max(rates, default=0.0)
