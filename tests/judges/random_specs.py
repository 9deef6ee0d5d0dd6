"""Specs by chance, for property tests: everything a user may combine on ParallelCluster, sensible or not. The same seed
gives the same spec."""

from __future__ import annotations

import random
from typing import Any

from trainwright.catalog.instances import InstanceType, instances

SYSTEMS = ("ubuntu2204", "ubuntu2404", "alinux2023", "rhel8", "rhel9")
LUSTRES: tuple[dict[str, Any], ...] = (
    {},
    {"capacity": "4.8TiB", "throughput": 500},
    {"managed": True},
    {"deployment": "scratch-2"},
    {"deployment": "scratch-2", "managed": True},
    {"deployment": "persistent-1", "throughput": 100, "managed": True},
    {"deployment": "scratch-1", "capacity": "3.6TiB"},
    {"capacity": "19.2TiB", "throughput": 250, "efa": True},
    {"compression": False, "managed": True},
)


def random_spec(seed: int) -> dict[str, Any]:
    """One spec, as plain data."""
    chance = random.Random(seed)
    spec: dict[str, Any] = {
        "name": f"chance-{seed}",
        "platform": "parallelcluster",
        "region": chance.choice(["us-east-1", "us-east-2", "us-west-2"]),
        "queues": [_queue(chance, seed, number) for number in range(chance.choice([1, 1, 2, 3]))],
    }
    storage = _storage(chance, seed)
    if storage:
        spec["storage"] = storage
    if chance.random() < 0.6:
        spec["head"] = {"key": "my-key"} | ({"instance": "c5n.9xlarge"} if chance.random() < 0.4 else {})
    if chance.random() < 0.6:
        spec["software"] = {
            "os": chance.choice(SYSTEMS),
            "containers": chance.choice(["none", "docker", "enroot", "docker+enroot"]),
        }
    for key, value, share in (("monitoring", True, 0.2), ("accounting", True, 0.2), ("network", {"zones": 3}, 0.2)):
        if chance.random() < share:
            spec[key] = value
    return spec


def _sold(machine: InstanceType) -> bool:
    return not machine.bare_metal and machine.hypervisor == "nitro"


def _queue(chance: random.Random, seed: int, number: int) -> dict[str, Any]:
    wanted = chance.random() < 0.8
    machines = [m for m in instances() if _sold(m) and (m.accelerator_count > 0 or not wanted)]
    least = chance.choice([0, 1, 4])
    most = max(1, least + chance.choice([0, 1, 8]))
    queue: dict[str, Any] = {"name": f"q{number}", "instance": chance.choice(machines).name}
    queue["count"] = chance.choice([most, {"min": least, "max": most}])
    identity = f"cr-{seed * 10 + number:017x}"
    kind = chance.choice(["on-demand", "on-demand", "spot", {"reservation": identity}, {"block": identity}])
    if kind != "on-demand":
        queue["capacity"] = kind
    for key, values in (("efa", [True, False]), ("placement", [True, False]), ("root_volume", ["100GiB", "1TiB"])):
        if chance.random() < 0.2:
            queue[key] = chance.choice(values)
    return queue


def _storage(chance: random.Random, seed: int) -> list[dict[str, Any]]:
    storage: list[dict[str, Any]] = []
    if chance.random() < 0.6:
        storage.append({"mount": "/fsx", "lustre": dict(chance.choice(LUSTRES))})
        if chance.random() < 0.4:
            storage[0]["bucket"] = f"s3://bucket-{seed}/data"
    others: tuple[dict[str, Any], ...] = (
        {"mount": "/home", "openzfs": {}},
        {"mount": "/efs", "efs": {}},
        {"mount": "/apps", "ebs": {"capacity": "100GiB"}},
        {"mount": "/scratch", "nvme": "raid0"},
    )
    return storage + [other for other in others if chance.random() < 0.25]
