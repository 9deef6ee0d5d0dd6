"""Monitoring of a HyperPod cluster with Slurm: a script that its lifecycle scripts run last on every node."""

from __future__ import annotations

from trainwright.platforms.parallelcluster.boot import pins, render
from trainwright.platforms.parallelcluster.monitoring import monitoring_values
from trainwright.spec.model import Spec


def monitoring_script(spec: Spec) -> str:
    """The same as on ParallelCluster; the head is the node that runs Slurm's controller."""
    return render("monitoring.sh.j2", **monitoring_values(spec, pins()["monitoring"]))
