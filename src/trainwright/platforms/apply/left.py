"""What is left of a cluster after `down`, and what it goes on costing."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.aws.cloudformation import Stack
from trainwright.aws.fsx import FileSystemRow, FsxApi
from trainwright.catalog.storage import (
    HOURS_PER_MONTH,
    lustre_monthly_usd,
    nat_monthly_usd,
    openzfs_monthly_usd,
    unit_price,
)
from trainwright.errors import UserError
from trainwright.platforms.apply.remove import Removal, kind_of


def left_over(removal: Removal) -> list[str]:
    """One line for each thing that is still there, then their sum; one line where nothing is."""
    existing = removal.existing()
    if not existing:
        return [f"nothing of {removal.name} is left but its logs ({removal.logs})"]
    lines, total = [], 0.0
    for key, stack in existing.items():
        usd, words = hourly(key, stack, removal.fsx)
        total += usd or 0.0
        cost = f"${usd:,.2f} an hour" if usd is not None else words
        lines.append(f"left: stack {stack.name} ({stack.status}), {cost}")
    names = " ".join(f"--delete-data {key}" for key in removal.holding_data(existing))
    how = f"; `trainwright down {removal.name} --region {removal.account.region} {names}` removes it" if names else ""
    return [*lines, f"what is left costs ${total:,.2f} an hour, ${total * HOURS_PER_MONTH:,.0f} a month{how}"]


def hourly(key: str, stack: Stack, fsx: FsxApi) -> tuple[float | None, str]:
    """(USD per hour, or None; why there is none) of a stack."""
    kind, region = kind_of(key), fsx.account.region
    if kind == "network":
        return nat_monthly_usd(region) / HOURS_PER_MONTH, ""
    if kind == "accounting":
        return unit_price("aurora/acu-hour", region).usd / 2, ""
    if kind in ("lustre", "openzfs") and "FileSystemId" in stack.outputs:
        row = fsx.find(stack.outputs["FileSystemId"])
        return (file_system_usd(row, region) if row else 0.0), ""
    return None, "billed by what is stored" if kind == "bucket" else "no price of its own"


def file_system_usd(row: FileSystemRow, region: str) -> float | None:
    """USD per hour of a file system; None where the price list does not know its kind."""
    try:
        if row.kind == "LUSTRE":
            month = lustre_monthly_usd(row.capacity_gib, row.throughput, region, row.deployment)
        else:
            month = openzfs_monthly_usd(row.capacity_gib, row.throughput or 0, region)
    except (UserError, KeyError):
        return None
    return month / HOURS_PER_MONTH


def costs(stacks: dict[str, Stack], fsx: FsxApi) -> Iterator[tuple[str, float]]:
    """Stack key -> USD per hour, of those that have a price."""
    for key, stack in stacks.items():
        usd, _ = hourly(key, stack, fsx)
        if usd is not None:
            yield key, usd
