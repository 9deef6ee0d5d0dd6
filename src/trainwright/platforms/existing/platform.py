"""The `slurm` and `kubernetes` platforms: clusters that exist already and that somebody else made."""

from __future__ import annotations

from trainwright.platforms.deployed import DeployedSlurm
from trainwright.platforms.eks.platform import EksPlatform


class SlurmPlatform(DeployedSlurm):
    name = "slurm"


class KubernetesPlatform(EksPlatform):
    name = "kubernetes"
