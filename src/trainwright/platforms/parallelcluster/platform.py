"""The `parallelcluster` platform: Slurm on EC2 by AWS ParallelCluster."""

from __future__ import annotations

from trainwright.platforms.deployed import DeployedSlurm


class ParallelClusterPlatform(DeployedSlurm):
    name = "parallelcluster"
