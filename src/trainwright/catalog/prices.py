"""What one instance costs per hour, by region and purchase option. Every price carries its date and its source:
a number without them is not shown anywhere."""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.catalog.tables import cached, overlay_table, shipped_table
from trainwright.errors import UserError, did_you_mean

KINDS = ("on-demand", "spot", "capacity-block")
ANY_REGION = "*"


@dataclass(frozen=True, slots=True)
class Price:
    """USD per hour for one instance. `spot` is the lowest zone's price on that day: a floor, not a promise."""

    usd_hour: float
    kind: str
    region: str
    date: str
    source: str


def price(instance: str, region: str, kind: str = "on-demand") -> Price | None:
    """None where it is not sold that way there, or the catalog has not seen a price. Capacity blocks have few public
    prices (`catalog update` asks AWS for an offer); nothing is derived from on-demand: AWS sets the two apart."""
    if kind not in KINDS:
        raise UserError(f"no kind of price {kind!r}", fix=did_you_mean(kind, KINDS) or f"one of {', '.join(KINDS)}")
    name = instance.removeprefix("ml.")
    by_kind = _prices()
    match = by_kind.get((name, region, kind)) or by_kind.get((name, ANY_REGION, kind))
    if match is None or match.region == region:
        return match
    return Price(match.usd_hour, kind, region, match.date, match.source)


def prices_of(instance: str, kind: str = "on-demand") -> tuple[Price, ...]:
    """Every region's price for one type, cheapest first."""
    return _ranked().get((instance.removeprefix("ml."), kind), ())


@cached
def regions() -> tuple[str, ...]:
    """Regions for which the catalog has at least one price."""
    return tuple(sorted({region for _, region, _ in _prices()} - {ANY_REGION}))


def price_date() -> str:
    """The date of the shipped list; a price fetched by the user has its own."""
    return shipped_table("prices.csv").notes["date"]


@cached
def _ranked() -> dict[tuple[str, str], tuple[Price, ...]]:
    """(instance, kind) -> prices, cheapest first."""
    groups: dict[tuple[str, str], list[Price]] = {}
    for (name, _, kind), price_ in _prices().items():
        groups.setdefault((name, kind), []).append(price_)
    return {key: tuple(sorted(group, key=lambda p: (p.usd_hour, p.region))) for key, group in groups.items()}


@cached
def _prices() -> dict[tuple[str, str, str], Price]:
    prices: dict[tuple[str, str, str], Price] = {}
    for row in shipped_table("capacity_blocks.csv").records():
        key = (row["instance"], row["region"], "capacity-block")
        prices[key] = Price(float(row["usd_hour"]), "capacity-block", row["region"], row["date"], row["source"])
    for table in (shipped_table("prices.csv"), overlay_table("prices.csv")):
        if table is None:
            continue
        date, source = table.notes.get("date", ""), table.notes["source"]
        for row in table.records():
            name, region, day = row["instance"], row["region"], row.get("date", date)
            for kind in KINDS:
                text = row.get(kind.replace("-", "_"))
                if text:
                    prices[name, region, kind] = Price(float(text), kind, region, day, source)
    return prices
