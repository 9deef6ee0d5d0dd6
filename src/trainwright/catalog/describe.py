"""Turns one entry of EC2's DescribeInstanceTypes into a row of instances.csv. Pure, so that the shipped table, `catalog
update` and the cross-check test share one code path."""

from __future__ import annotations

import re
from typing import Any

from trainwright.catalog.accelerators import key_of_ec2_name

COLUMNS = (
    "name",
    "arch",
    "vcpus",
    "cores",
    "threads_per_core",
    "memory_mib",
    "accelerator",
    "accelerator_count",
    "accelerator_memory_mib",
    "accelerator_share",
    "network_gbps",
    "network_cards",
    "efa_cards",
    "max_enis",
    "peak_gbps_per_card",
    "nvme_gb",
    "nvme_disks",
    "capacity",
    "placement",
    "hypervisor",
    "bare_metal",
    "source",
)


def instance_row(entry: dict[str, Any], source: str) -> tuple[str, ...]:
    """The row for one entry, in the order of COLUMNS."""
    values = {
        "name": entry["InstanceType"],
        "arch": next(a for a in reversed(entry["ProcessorInfo"]["SupportedArchitectures"])),
        "vcpus": entry["VCpuInfo"]["DefaultVCpus"],
        "cores": entry["VCpuInfo"]["DefaultCores"],
        "threads_per_core": entry["VCpuInfo"]["DefaultThreadsPerCore"],
        "memory_mib": entry["MemoryInfo"]["SizeInMiB"],
        "capacity": "|".join(entry.get("SupportedUsageClasses", [])),
        "placement": "|".join(entry.get("PlacementGroupInfo", {}).get("SupportedStrategies", [])),
        "hypervisor": entry.get("Hypervisor", ""),
        "bare_metal": "yes" if entry.get("BareMetal") else "",
        "source": source,
        **_accelerator(entry),
        **_network(entry["NetworkInfo"]),
        **_nvme(entry.get("InstanceStorageInfo", {})),
    }
    return tuple(_text(values[column]) for column in COLUMNS)


def _accelerator(entry: dict[str, Any]) -> dict[str, Any]:
    chips = entry.get("GpuInfo", {}).get("Gpus", []) + entry.get("NeuronInfo", {}).get("NeuronDevices", [])
    if not chips:
        return dict.fromkeys(("accelerator", "accelerator_share"), "") | {
            "accelerator_count": 0,
            "accelerator_memory_mib": 0,
        }
    chip = chips[0]
    memory = chip["MemoryInfo"]["SizeInMiB"]
    share = chip.get("GpuPartitionSize", 1.0)
    return {
        "accelerator": key_of_ec2_name(chip["Name"], memory) or chip["Name"].lower().replace(" ", "-"),
        # A slice of a GPU is counted 0 by the API, though the node sees one device.
        "accelerator_count": chip.get("LogicalGpuCount", chip["Count"]),
        "accelerator_memory_mib": memory,
        "accelerator_share": "" if share == 1.0 else share,
    }


def _network(info: dict[str, Any]) -> dict[str, Any]:
    cards = info["NetworkCards"]
    total = network_gbps(info["NetworkPerformance"]) or max(c.get("PeakBandwidthInGbps", 0.0) for c in cards)
    efa_cards = info.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0) if info.get("EfaSupported") else 0
    # The API's per-card figure is the IP rate on some types (p6-b200) and the whole node's on others (g6e), so what a
    # card carries is taken from the total instead.
    share = efa_cards if efa_cards > 1 else len(cards)
    return {
        "network_gbps": total,
        "network_cards": len(cards),
        "efa_cards": efa_cards,
        "max_enis": info["MaximumNetworkInterfaces"],
        "peak_gbps_per_card": round(total / share, 3),
    }


def network_gbps(text: str) -> float | None:
    """`4x 100 Gigabit` is 400; `Up to 25 Gigabit` is 25; `Moderate` is None."""
    match = re.fullmatch(r"(?:Up to )?(?:(\d+)x )?([\d.]+) Gigabit", text)
    return int(match[1] or 1) * float(match[2]) if match else None


def _nvme(info: dict[str, Any]) -> dict[str, Any]:
    return {
        "nvme_gb": info.get("TotalSizeInGB", 0),
        "nvme_disks": sum(disk["Count"] for disk in info.get("Disks", [])),
    }


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
