"""What the platforms on AWS have in common so far: jobs run on a cluster that is up; making one is done with the files
that `trainwright plan` writes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from trainwright.errors import UserError
from trainwright.platforms.base import ClusterStatus
from trainwright.schedulers.shell import Shell
from trainwright.schedulers.slurm import SlurmScheduler

if TYPE_CHECKING:
    from trainwright.spec.job import Job
    from trainwright.spec.model import Spec


class DeployedPlatform:
    """A cluster on AWS, deployed by hand."""

    name = ""

    def up(self, spec: Spec, say: Callable[[str], None], force: bool = False) -> ClusterStatus:
        self.refuse("up")

    def down(self, name: str, spec: Spec | None, say: Callable[[str], None], force: bool = False) -> None:
        self.refuse("down")

    def status(self, name: str, spec: Spec | None) -> ClusterStatus:
        self.refuse("status")

    def connect(self, name: str, spec: Spec | None) -> tuple[list[str], dict[str, str]]:
        self.refuse("connect")

    def refuse(self, verb: str) -> NoReturn:
        raise UserError(
            f"`{verb}` does not reach platform {self.name} yet",
            fix="deploy what `trainwright plan` writes (docs/plan.md shows how); `submit`, `jobs` and `logs` reach a "
            "cluster that is up",
        )

    def refuse_host(self, host: str) -> None:
        """A platform without Slurm has no head node to name."""
        if host:
            raise UserError(
                f"--host names a Slurm head node, and platform {self.name} has none", fix="leave --host out"
            )


class DeployedSlurm(DeployedPlatform):
    """A Slurm cluster on AWS: reached over ssh, or from its own head node."""

    hyperpod = False

    def scheduler(self, spec: Spec, job: Job, host: str = "") -> SlurmScheduler:
        if host:
            return SlurmScheduler(Shell(host=host), spec.name, python="python3", hyperpod=self.hyperpod)
        return SlurmScheduler(Shell(), spec.name, hyperpod=self.hyperpod)

    def preview(self, spec: Spec, job: Job, host: str = "") -> SlurmScheduler:
        scheduler = self.scheduler(spec, job, host)
        # Without Slurm this is no head node, and its interpreter is not the nodes'.
        return scheduler if shutil.which("sbatch") else replace(scheduler, python="python3")

    def scheduler_again(self, cluster: str, host: str, at: Mapping[str, str]) -> SlurmScheduler:
        return SlurmScheduler(Shell(host=host), cluster, hyperpod=self.hyperpod)
