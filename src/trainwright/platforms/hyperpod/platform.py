"""The `hyperpod` platform: Slurm on SageMaker HyperPod."""

from __future__ import annotations

from trainwright.platforms.deployed import DeployedSlurm


class HyperPodPlatform(DeployedSlurm):
    name = "hyperpod"
    hyperpod = True
