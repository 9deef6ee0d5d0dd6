"""The jobs of a spec of ours -> model."""

from __future__ import annotations

from trainwright.check.model import Cluster, Job
from trainwright.spec.load import LoadedSpec


def jobs_of(loaded: LoadedSpec, cluster: Cluster) -> list[Job]:
    """The jobs of one spec; `cluster` is what the reader made of the rest, for the queues they run on."""
    return []
