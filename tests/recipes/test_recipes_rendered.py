"""Every recipe, ours and other frameworks', on every starter cluster it fits: what would be handed to the scheduler is
made, and our own rules find nothing in it. The fast suite takes one starter per recipe, the slow suite all of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainwright.catalog.capabilities import scheduler_of
from trainwright.catalog.instances import find_instance
from trainwright.check.engine import check
from trainwright.jobs.resolve import resolve_job
from trainwright.jobs.resolved import ResolvedJob
from trainwright.platforms.base import platform_named
from trainwright.recipes.load import all_names, foreign_names, recipe
from trainwright.schedulers.launch import Place, launch_of
from trainwright.schedulers.slurm import SlurmScheduler
from trainwright.spec.load import load_text
from trainwright.spec.starters import starters

# What says that a recipe was not written for a cluster: its plan, batch, memory or arithmetic needs other machines.
MISFITS = ("JOB002", "JOB003", "has no fp8 units")
ONE_PER_SCHEDULER = ("p5-reservation", "eks-p5-block", "batch-p5-block", "trn1-custom-image", "local")
NAMES = [*all_names(), *(f"{name}-debug" for name in foreign_names())]


@cache
def starter_specs() -> dict[str, dict[str, Any]]:
    return {one.name: yaml.safe_load(one.text) for one in starters()}


def fitted(name: str, starter: str) -> ResolvedJob | None:
    """The recipe's job on a starter whose first queue is as large as the recipe asks; None where it does not fit."""
    spec = dict(starter_specs()[starter])
    queue = dict(spec["queues"][0])
    number = re.match(r"(\d+) ", recipe(name).hardware)
    nodes = int(number[1]) if number else 1
    instance = find_instance(queue.get("instance", ""))
    if instance is not None and instance.is_neuron != wants_neuron(name):
        return None
    if instance is None and not name.endswith("-debug") and name != "cpu-ddp":
        return None  # the machine at hand takes debug sizes
    if instance is not None:
        queue["count"] = max(nodes, 1)
        queue.pop("nodes", None)
    job = {"name": "train", "recipe": name, "nodes": nodes if instance is not None else 1, "queue": queue["name"]}
    if scheduler_of(spec["platform"]).name != "slurm":
        job["container"] = "example.com/train:1.0"
    made = {**spec, "queues": [queue, *spec["queues"][1:]], "jobs": [job]}
    resolution = resolve_job(load_text(yaml.safe_dump(made, sort_keys=False), f"{starter}.yaml"), "train")
    if resolution.problems:
        strange = [
            p for p in resolution.problems if p.code not in MISFITS and not any(word in p.what for word in MISFITS)
        ]
        assert not strange, (name, starter, strange)
        return None
    resolved = resolution.require()
    split = resolved.training is not None and resolved.training.plan.tp > resolved.placement.processes
    return None if split else resolved  # a layer that waits for the network: other machines were meant


def wants_neuron(name: str) -> bool:
    return "trn" in recipe(name.removesuffix("-debug")).hardware


def write(job: ResolvedJob, folder: Path) -> None:
    """What would be handed to the scheduler, and the files that go with it."""
    slurm = scheduler_of(job.spec.platform).name == "slurm"
    scheduler = SlurmScheduler(cluster=job.spec.name, python="python3") if slurm else None
    launch = launch_of(job, Place(Path("/fsx/runs/r-1"), "python3"))
    script = (scheduler or platform_named(job.spec.platform).preview(job.spec, job.job)).render(launch)
    folder.mkdir(parents=True)
    (folder / script.filename).write_text(script.text)
    for path, text in launch.files:
        (folder / Path(path).name).write_text(text)


def findings_of(jobs: Iterable[tuple[str, str]], folder: Path) -> tuple[Counter[str], list[str]]:
    """How many starters each recipe was made for, and what the rules say about it."""
    made: Counter[str] = Counter()
    for name, starter in jobs:
        job = fitted(name, starter)
        if job is not None:
            write(job, folder / starter / name)
            made[name] += 1
    result = check([str(folder)])
    assert result.unread == []
    readable = [path for path in folder.rglob("job.*") if path.suffix != ".json"]  # definitions of Batch are not read
    assert result.files >= len(readable) > 0
    return made, [f"{finding.file}: {finding.code} {finding.message}" for finding in result.findings]


def test_each_recipe_on_one_starter(tmp_path: Path) -> None:
    clusters = sorted(starter_specs())
    jobs = []
    for index, name in enumerate(NAMES):
        order = clusters[index % len(clusters) :] + clusters[: index % len(clusters)]
        fitting = next((starter for starter in order if fitted(name, starter) is not None), None)
        assert fitting is not None, f"{name} fits no starter"
        jobs.append((name, fitting))
    made, found = findings_of(jobs, tmp_path)
    assert found == []
    assert set(made) == set(NAMES)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_recipe_on_every_starter(tmp_path: Path) -> None:
    jobs = [(name, starter) for name in all_names() for starter in starter_specs()]
    # A debug size differs from its recipe, not from one cluster to the next: one starter per scheduler.
    jobs += [(f"{name}-debug", starter) for name in foreign_names() for starter in ONE_PER_SCHEDULER]
    made, found = findings_of(jobs, tmp_path)
    assert found == []
    assert min(made.values()) >= 1
    assert made.total() > 1000
