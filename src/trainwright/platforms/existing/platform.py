"""The `slurm` and `kubernetes` platforms: clusters that exist already and that somebody else made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwright.platforms.deployed import DeployedSlurm
from trainwright.platforms.eks.platform import EksPlatform

if TYPE_CHECKING:
    from trainwright.schedulers.slurm import SlurmScheduler
    from trainwright.spec.job import Job
    from trainwright.spec.model import Spec


class SlurmPlatform(DeployedSlurm):
    """The spec's `head.host` is where jobs go; --host goes before it."""

    name = "slurm"

    def scheduler(self, spec: Spec, job: Job, host: str = "") -> SlurmScheduler:
        return super().scheduler(spec, job, host or spec.head.host or "")


class KubernetesPlatform(EksPlatform):
    name = "kubernetes"
