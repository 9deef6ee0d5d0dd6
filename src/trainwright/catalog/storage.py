"""Shared storage: what FSx for Lustre accepts, and what storage and the network around a cluster cost per month. Rules
are in data/storage.toml, list prices in data/storage_prices.csv."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainwright.catalog.tables import cached, shipped_table, shipped_toml
from trainwright.errors import UserError

HOURS_PER_MONTH = 730
REFERENCE_REGION = "us-east-1"


@dataclass(frozen=True, slots=True)
class LustreRule:
    """One deployment type on one kind of disk. Capacities are GiB, throughputs MB/s per TiB."""

    deployment: str
    storage: str
    throughputs: tuple[int, ...]  # empty: none may be given
    first: tuple[int, ...]  # sizes allowed besides the multiples of the step
    step: int
    step_by_throughput: dict[int, int]
    efa_step: dict[int, int]  # throughput -> step when EFA is on; empty: no EFA
    baseline: int  # MB/s per TiB where none is chosen

    def step_for(self, throughput: int | None, efa: bool) -> int:
        if efa and throughput in self.efa_step:
            return self.efa_step[throughput]
        return self.step_by_throughput.get(throughput or 0, self.step)

    def capacity_fits(self, capacity_gib: int, throughput: int | None = None, efa: bool = False) -> bool:
        step = self.step_for(throughput, efa)
        return capacity_gib > 0 and ((not efa and capacity_gib in self.first) or capacity_gib % step == 0)

    def next_capacity(self, capacity_gib: int, throughput: int | None = None, efa: bool = False) -> int:
        """The smallest allowed capacity that holds this much."""
        step = self.step_for(throughput, efa)
        steps = -(-max(capacity_gib, 1) // step) * step
        return min([size for size in self.first if not efa and size >= capacity_gib] + [steps])


@cached
def lustre_rules() -> tuple[LustreRule, ...]:
    tables = shipped_toml("storage.toml")["lustre"]
    return tuple(
        _rule(deployment, storage, row)
        for deployment, by_storage in tables.items()
        for storage, row in by_storage.items()
    )


def find_lustre_rule(deployment: str, storage: str = "SSD") -> LustreRule | None:
    return next((r for r in lustre_rules() if (r.deployment, r.storage) == (deployment, storage)), None)


def lustre_problem(
    deployment: str, capacity_gib: int, throughput: int | None, storage: str = "SSD", efa: bool = False
) -> str | None:
    """Why FSx would refuse this file system, with what it would take instead; None when it would not."""
    rule = find_lustre_rule(deployment, storage)
    if rule is None:
        return f"no FSx for Lustre deployment {deployment} on {storage}"
    allowed = ", ".join(map(str, rule.throughputs))
    if not rule.throughputs and throughput:
        return f"{deployment} takes no throughput per TiB; it always has {rule.baseline} MB/s"
    if rule.throughputs and throughput not in rule.throughputs:
        given = f"{throughput} MB/s per TiB is not offered by" if throughput else "a throughput per TiB is required by"
        return f"{given} {deployment} on {storage}; choose one of {allowed}"
    if efa and not rule.efa_step:
        return f"{deployment} cannot use EFA; only PERSISTENT_2 can"
    if not rule.capacity_fits(capacity_gib, throughput, efa):
        nearest = rule.next_capacity(capacity_gib, throughput, efa)
        below = nearest - rule.step_for(throughput, efa)
        choice = f"{below} or {nearest}" if below > 0 else str(nearest)
        sizes = " or ".join([*(map(str, () if efa else rule.first)), f"a multiple of {rule.step_for(throughput, efa)}"])
        return f"{capacity_gib} GiB is not a size FSx makes ({sizes}); nearest: {choice} GiB"
    return None


def openzfs_throughputs(deployment: str) -> tuple[int, ...]:
    """MB/s that an OpenZFS deployment type offers; empty for an unknown one."""
    return tuple(shipped_toml("storage.toml")["openzfs"]["throughputs"].get(deployment, ()))


def storage_ports(service: str, protocol: str = "tcp") -> tuple[tuple[int, int], ...]:
    """Port ranges (first, last) that `lustre`, `openzfs` or `efs` must let in from the nodes."""
    ranges = shipped_toml("storage.toml")["ports"].get(service, {}).get(protocol, ())
    return tuple((first, last) for first, last in ranges)


def lustre_throughput_mb_s(capacity_gib: int, throughput: int | None, deployment: str = "PERSISTENT_2") -> float:
    """What the whole file system delivers: capacity in TiB times the throughput of one."""
    rule = find_lustre_rule(deployment)
    return capacity_gib / 1024 * (throughput or (rule.baseline if rule else 0))


@dataclass(frozen=True, slots=True)
class UnitPrice:
    """A list price. `exact` is False when the region has no row and the reference region's price stands in."""

    item: str
    usd: float
    unit: str
    region: str
    exact: bool
    confidence: str
    date: str
    source: str


def unit_price(item: str, region: str = REFERENCE_REGION) -> UnitPrice:
    prices = _unit_prices()
    row = prices.get((item, region)) or prices.get((item, REFERENCE_REGION))
    if row is None:
        raise UserError(f"no list price for {item!r} in the catalog")
    return UnitPrice(
        item=item,
        usd=float(row["usd"]),
        unit=row["unit"],
        region=row["region"],
        exact=row["region"] == region,
        confidence=row["confidence"],
        date=shipped_table("storage_prices.csv").notes["date"],
        source=row["source"],
    )


def lustre_monthly_usd(
    capacity_gib: int,
    throughput: int | None,
    region: str = REFERENCE_REGION,
    deployment: str = "PERSISTENT_2",
    storage: str = "SSD",
) -> float:
    return capacity_gib * unit_price(f"lustre/{deployment}/{storage}/{throughput or 0}", region).usd


def openzfs_monthly_usd(
    capacity_gib: int, throughput_mb_s: int, region: str = REFERENCE_REGION, deployment: str = "SINGLE_AZ_2"
) -> float:
    """A file system in one zone, or with a copy in a second one (MULTI_AZ_1)."""
    kind = "openzfs/multi-zone-" if deployment.startswith("MULTI_AZ") else "openzfs/"
    capacity = capacity_gib * unit_price(f"{kind}capacity", region).usd
    return capacity + throughput_mb_s * unit_price(f"{kind}throughput", region).usd


def ebs_monthly_usd(
    capacity_gib: int, iops: int = 3000, throughput_mb_s: int = 125, region: str = REFERENCE_REGION
) -> float:
    """A gp3 volume; 3,000 IOPS and 125 MB/s are included."""
    extra_iops = max(0, iops - 3000) * unit_price("ebs/gp3-iops", region).usd
    extra_rate = max(0, throughput_mb_s - 125) * unit_price("ebs/gp3-throughput", region).usd
    return capacity_gib * unit_price("ebs/gp3", region).usd + extra_iops + extra_rate


def s3_monthly_usd(gib: float, region: str = REFERENCE_REGION) -> float:
    return gib * unit_price("s3/standard", region).usd


def nat_monthly_usd(region: str = REFERENCE_REGION, gib: float = 0.0) -> float:
    """One NAT gateway and the data it carries; its public address is extra."""
    return unit_price("nat/hour", region).usd * HOURS_PER_MONTH + gib * unit_price("nat/data", region).usd


def ipv4_monthly_usd(region: str = REFERENCE_REGION) -> float:
    """One public address, in use or not."""
    return unit_price("ipv4/hour", region).usd * HOURS_PER_MONTH


@cached
def _unit_prices() -> dict[tuple[str, str], dict[str, str]]:
    return {(row["item"], row["region"]): row for row in shipped_table("storage_prices.csv").records()}


def _rule(deployment: str, storage: str, row: dict[str, Any]) -> LustreRule:
    def by_throughput(key: str) -> dict[int, int]:
        return {int(k): v for k, v in row.get(key, {}).items()}

    return LustreRule(
        deployment=deployment,
        storage=storage,
        throughputs=tuple(row["throughputs"]),
        first=tuple(row["first"]),
        step=row.get("step", 0),
        step_by_throughput=by_throughput("step_by_throughput"),
        efa_step=by_throughput("efa_step"),
        baseline=row.get("baseline", 0),
    )
