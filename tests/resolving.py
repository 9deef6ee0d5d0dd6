"""Jobs for tests: from the few values that a test is about to a resolved job, through the functions a user's takes."""

from __future__ import annotations

from typing import Any

import yaml

from trainwright.catalog.instances import instance as find_instance
from trainwright.jobs.resolve import resolve_job
from trainwright.jobs.resolved import Resolution, ResolvedJob
from trainwright.spec.load import LoadedSpec, load_text


def loaded(spec: dict[str, Any]) -> LoadedSpec:
    """A spec from plain data."""
    return load_text(yaml.safe_dump(spec, sort_keys=False), "spec.yaml")


def cluster(ranks: int, instance: str | None) -> dict[str, Any]:
    """A cluster on which a job has that many ranks."""
    if instance is None:
        return {"name": "t", "platform": "local", "queues": [{"name": "train", "nodes": ranks, "cpus": 1}]}
    nodes = max(1, ranks // find_instance(instance).gpus)
    return {
        "name": "t", "platform": "parallelcluster",
        "queues": [{"name": "train", "instance": instance, "count": nodes}],
    }  # fmt: skip


def resolution(job: dict[str, Any], ranks: int = 1, instance: str | None = None) -> Resolution:
    spec = cluster(ranks, instance)
    if instance is not None and ranks < find_instance(instance).gpus:
        job = {**job, "processes": ranks}
    return resolve_job(loaded({**spec, "jobs": [{"name": "j", **job}]}))


def resolved(job: dict[str, Any], ranks: int = 1, instance: str | None = None) -> ResolvedJob:
    return resolution(job, ranks, instance).require()
