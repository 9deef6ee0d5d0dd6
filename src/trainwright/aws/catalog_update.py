"""Fetches the types and prices that EC2 has today, and stores what differs from the shipped catalog for this user."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from trainwright.aws.ec2 import capacity_block_prices, describe_instance_types, spot_prices
from trainwright.aws.pricing import API_REGION, on_demand_prices
from trainwright.aws.session import client
from trainwright.catalog import tables
from trainwright.catalog.describe import COLUMNS, instance_row
from trainwright.catalog.instances import find_instance
from trainwright.catalog.prices import price
from trainwright.catalog.tables import Table, overlay_folder, overlay_table, shipped_table, write_table

PRICE_COLUMNS = ("instance", "region", "on_demand", "spot", "capacity_block", "date")


@dataclass(frozen=True, slots=True)
class Quotes:
    """The prices in one region: instance type -> USD per hour, by purchase option."""

    on_demand: dict[str, float]
    spot: dict[str, float]
    capacity_block: dict[str, float]

    @property
    def by_kind(self) -> dict[str, dict[str, float]]:
        return {"on-demand": self.on_demand, "spot": self.spot, "capacity-block": self.capacity_block}

    @property
    def count(self) -> int:
        return sum(len(quotes) for quotes in self.by_kind.values())


@dataclass(frozen=True, slots=True)
class PriceChange:
    instance: str
    kind: str
    before: float | None
    after: float


@dataclass(frozen=True, slots=True)
class Changes:
    """What an update changed."""

    region: str
    date: str
    types_seen: int
    new_types: tuple[str, ...]
    changed_types: dict[str, tuple[str, ...]]  # name -> the fields that differ
    prices_seen: int
    prices: tuple[PriceChange, ...]
    folder: str


def update(region: str, profile: str | None = None) -> Changes:
    """Ask EC2 and the Price List API about one region and write the answers, which look-ups then prefer."""
    ec2, pricing = client("ec2", region, profile), client("pricing", API_REGION, profile)
    entries = describe_instance_types(ec2)
    blocks = [e["InstanceType"] for e in entries if "capacity-block" in e.get("SupportedUsageClasses", [])]
    quotes = Quotes(on_demand_prices(pricing, region), spot_prices(ec2), capacity_block_prices(ec2, sorted(blocks)))
    return store(region, entries, quotes)


def store(region: str, entries: list[dict[str, Any]], quotes: Quotes) -> Changes:
    """Write both tables and return what changed."""
    today = datetime.now(UTC).date().isoformat()
    rows = {entry["InstanceType"]: instance_row(entry, f"api {today}") for entry in entries}
    new, changed = _instance_changes(rows)
    price_changes = tuple(_price_changes(region, quotes))
    _write_instances({name: rows[name] for name in (*new, *changed)}, today)
    _write_prices(region, quotes, today)
    tables.clear_caches()
    folder = str(overlay_folder())
    return Changes(region, today, len(rows), new, changed, quotes.count, price_changes, folder)


def _instance_changes(
    rows: dict[str, tuple[str, ...]],
) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    known = {row[0]: row for table in (shipped_table, overlay_table) for row in _rows(table("instances.csv"))}
    new = tuple(sorted(name for name in rows if name not in known))
    changed = {}
    for name in sorted(rows.keys() & known.keys()):
        pairs = zip(COLUMNS[:-1], rows[name], known[name], strict=False)
        fields = tuple(column for column, now, before in pairs if now != before)
        if fields:
            changed[name] = fields
    return new, changed


def _price_changes(region: str, quotes: Quotes) -> list[PriceChange]:
    changes = []
    for kind, now in quotes.by_kind.items():
        for name, usd in sorted(now.items()):
            before = price(name, region, kind)
            if before is None or before.usd_hour != usd:
                changes.append(PriceChange(name, kind, before.usd_hour if before else None, usd))
    return changes


def _write_instances(rows: dict[str, tuple[str, ...]], today: str) -> None:
    kept = {row[0]: row for row in _rows(overlay_table("instances.csv"))}
    if not rows and not kept:
        return
    notes = {"source": "EC2 DescribeInstanceTypes, by `trainwright catalog update`", "date": today}
    merged = tuple(row for _, row in sorted((kept | rows).items()))
    write_table(overlay_folder() / "instances.csv", Table(notes, COLUMNS, merged))


def _write_prices(region: str, quotes: Quotes, today: str) -> None:
    kept = [row for row in _rows(overlay_table("prices.csv")) if row[1] != region]
    kinds = quotes.by_kind.values()
    names = sorted(set().union(*kinds))
    fresh = [(name, region, *(_usd(asked.get(name)) for asked in kinds), today) for name in names]
    notes = {"source": "AWS Price List API and EC2 offers, by `trainwright catalog update`", "date": today}
    write_table(overlay_folder() / "prices.csv", Table(notes, PRICE_COLUMNS, tuple(sorted([*kept, *fresh]))))


def _rows(table: Table | None) -> tuple[tuple[str, ...], ...]:
    return table.rows if table else ()


def _usd(value: float | None) -> str:
    return "" if value is None else repr(value)


def accelerated_changes(changes: Changes) -> tuple[PriceChange, ...]:
    """The price changes of accelerated types, most expensive first."""
    accelerated = [c for c in changes.prices if (type_ := find_instance(c.instance)) and type_.accelerator_count]
    return tuple(sorted(accelerated, key=lambda c: -c.after))
