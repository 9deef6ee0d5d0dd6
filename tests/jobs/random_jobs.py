"""Specs with jobs by chance, for property tests: everything a user may combine, sensible or not. The same seed gives
the same spec."""

from __future__ import annotations

import random
from typing import Any

from judges.random_specs import random_spec

PLATFORMS = (
    "parallelcluster",
    "parallelcluster",
    "parallelcluster",
    "local",
    "eks",
    "hyperpod",
    "hyperpod-eks",
    "batch",
)
MODELS = (
    "llama3-8b",
    "llama3.2-1b",
    "gpt2-124m",
    "llama3-70b",
    "falcon-7b",
    "roberta-large",
    "mixtral-8x7b",
    "llama3-8bb",
)
RECIPES = ("llama3-8b", "llama3.1-70b", "gpt2-124m", "cpu-ddp", "falcon-40b", "llama3-8b-debug", "gpt3-18.4b", "lama3")
ARGS = (
    ["--steps", "7"],
    ["--log-every", "5"],
    ["--parallel", "tp=2"],
    ["--batch", "64"],
    ["--stepz", "3"],
    ["--lr", "1e-5"],
)
NETWORKS: tuple[dict[str, Any], ...] = (
    {"public_subnet": "subnet-0a1b2c3d4e5f67890"},
    {"public_subnet": "subnet-0a1b2c3d4e5f67890", "private_subnet": "subnet-1a1b2c3d4e5f67890"},
    {"vpc": "vpc-0a1b2c3d4e5f67890", "public_subnet": "subnet-0a1b2c3d4e5f67890", "zones": 2},
    {"more_zones": ["use2-az1"]},
    {"zones": 2},
)


def random_training_spec(seed: int) -> dict[str, Any]:
    """One spec with one to three jobs, as plain data."""
    chance = random.Random(seed)
    platform = chance.choice(PLATFORMS)
    spec = _local(chance, seed) if platform == "local" else {**random_spec(seed), "platform": platform}
    if platform != "local":
        _disturb(chance, spec, platform)
    spec["jobs"] = [_job(chance, spec, number) for number in range(chance.choice([1, 1, 2, 3]))]
    return spec


def _local(chance: random.Random, seed: int) -> dict[str, Any]:
    queues = [
        {"name": f"q{n}", "nodes": chance.choice([1, 2, 4]), "cpus": chance.choice([1, 2, 8])}
        for n in range(chance.choice([1, 2]))
    ]
    for queue in queues:
        if chance.random() < 0.2:
            queue["gpus"] = chance.choice([1, 2])
    spec: dict[str, Any] = {"name": f"chance-{seed}", "platform": "local", "queues": queues}
    for key, value in (("region", "us-east-2"), ("storage", [{"mount": "/fsx", "lustre": {}}]), ("tags", {"a": "b"})):
        if chance.random() < 0.05:
            spec[key] = value
    return spec


def _disturb(chance: random.Random, spec: dict[str, Any], platform: str) -> None:
    """Mistakes and rare choices, each seldom enough that many specs stay sound."""
    if platform != "parallelcluster":
        for key in ("head", "accounting", "software", "monitoring"):
            if chance.random() < 0.8:
                spec.pop(key, None)
    if platform.startswith("hyperpod"):  # reservations, placement and volumes are EC2's, which HyperPod does not take
        for queue in spec["queues"]:
            for key in ("capacity", "placement"):
                if chance.random() < 0.9:
                    queue.pop(key, None)
        spec["storage"] = [one for one in spec.get("storage", []) if "ebs" not in one or chance.random() < 0.1]
        if spec["platform"] == "hyperpod":  # without it no job of theirs can start (SPC004)
            spec["storage"] = spec["storage"] or [{"mount": "/fsx", "lustre": {}}]
    if chance.random() < 0.15:
        spec["network"] = chance.choice(NETWORKS)
    if chance.random() < 0.15:
        spec["zone"] = chance.choice(["use2-az3", "us-east-2a", "usw2-az1", "here"])
    if chance.random() < 0.05:
        spec["region"] = "mars-1"
    if chance.random() < 0.05:
        spec["queues"][0]["nodes"] = 2
    if chance.random() < 0.05:
        spec.setdefault("head", {})["ssh_from"] = "not-a-cidr"
    if chance.random() < 0.05:
        spec["software"] = {"os": chance.choice(["alinux2", "rocky9", "rhel9"]), "containers": "docker"}


def _job(chance: random.Random, spec: dict[str, Any], number: int) -> dict[str, Any]:
    job: dict[str, Any] = {"name": f"job{number}"}
    kind = chance.choice(["recipe", "recipe", "model", "script"])
    job[kind] = {"recipe": chance.choice(RECIPES), "model": chance.choice(MODELS), "script": "train.py"}[kind]
    if kind == "script" and spec["platform"] in ("eks", "hyperpod-eks", "batch") and chance.random() < 0.7:
        job["script"] = "/fsx/train.py"
    if spec["platform"] in ("eks", "hyperpod-eks", "batch") and chance.random() < 0.85:
        job["container"] = "example.com/train:1"
    if chance.random() < 0.25:  # a plain job, so that many are sound
        return job
    choices: tuple[tuple[str, float, tuple[Any, ...]], ...] = (
        ("queue", 0.3, ("q0", "q1", "nosuch")),
        ("nodes", 0.5, (1, 2, 4, 9)),
        ("processes", 0.2, (1, 2, 4, 8, 16)),
        (
            "parallel",
            0.4,
            ({"tp": 2}, {"tensor": 8}, {"pp": 2, "vp": 2}, {"shard": 8}, {"cp": 2}, {"ep": 2}, {"tp": 3}),
        ),
        ("batch", 0.4, ({"sequences": 64}, {"tokens": "1M"}, {"sequences": 30, "micro": 4}, {"micro_batch": 2})),
        ("sequence", 0.2, (1024, 2048, 5000, 131072)),
        ("precision", 0.2, ("bf16", "fp8", "float8")),
        ("recompute", 0.2, ("none", "selective", "full")),
        ("steps", 0.3, (5, 1000)),
        ("optimizer", 0.1, ({"warmup": 3}, {"lr": 1e-4})),
        ("checkpoint", 0.2, ({"steps": 5}, {"every": "15min", "to": "/fsx/checkpoints"})),
        ("args", 0.15, ARGS),
        ("workers", 0.05, (2,)),
        ("account", 0.05, ("team",)),
        ("time", 0.1, ("2h",)),
        ("secrets", 0.03, ({"TOKEN": "name/key"},)),
        ("env", 0.1, ({"HF_HOME": "/fsx/hf"}, {"RANK": "0"})),
        ("kind", 0.03, ("jobset",)),
        ("float8", 0.05, ("tensorwise", "rowwise", "blockwise", "mxfp8")),
    )
    for key, share, values in choices:
        if chance.random() < share:
            job[key] = chance.choice(values)
    return job
