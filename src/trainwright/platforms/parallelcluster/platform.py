"""The `parallelcluster` platform: Slurm on EC2 by AWS ParallelCluster. Jobs go over ssh to the head node, through
Session Manager where no port is open, or stay on it; `apply/` makes and removes clusters."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.platforms.deployed import DeployedSlurm
from trainwright.schedulers.shell import Shell, own_config
from trainwright.schedulers.slurm import SlurmScheduler

if TYPE_CHECKING:
    from trainwright.aws.session import Account
    from trainwright.platforms.apply.base import Say
    from trainwright.platforms.apply.build import Build
    from trainwright.platforms.apply.remove import Removal
    from trainwright.platforms.apply.status import StatusReader
    from trainwright.platforms.parallelcluster.reach import Way
    from trainwright.platforms.plan.tree import ClusterPlan
    from trainwright.spec.job import Job
    from trainwright.spec.model import Spec

# A command that ssh runs has no login shell, and only that would have Slurm on its path.
PATH = "/opt/slurm/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

CONFIGURATION = Path("/etc/parallelcluster/cfnconfig")  # ParallelCluster writes it on every node


class ParallelClusterPlatform(DeployedSlurm):
    name = "parallelcluster"

    def scheduler(self, spec: Spec, job: Job, host: str = "") -> SlurmScheduler:
        if not host and not is_node_of(spec.name):
            way = way_to(spec.name, spec)
            way.keep()
            host = way.alias
        return with_path(super().scheduler(spec, job, host))

    def preview(self, spec: Spec, job: Job, host: str = "") -> SlurmScheduler:
        scheduler = super().scheduler(spec, job, host)
        return scheduler if is_node_of(spec.name) else replace(scheduler, python="python3")

    def scheduler_again(self, cluster: str, host: str, at: Mapping[str, str]) -> SlurmScheduler:
        if not host and not is_node_of(cluster):
            from trainwright.platforms.parallelcluster.reach import alias_of

            host = alias_of(cluster) if own_config(alias_of(cluster)).is_file() else ""
        return with_path(super().scheduler_again(cluster, host, at))

    def build(self, plan: ClusterPlan, account: Account, force: bool, say: Say) -> Build:
        from trainwright.platforms.parallelcluster.apply.build import ParallelClusterBuild
        from trainwright.platforms.parallelcluster.apply.pcluster import Pcluster

        return ParallelClusterBuild(plan, account, Pcluster(account.region, say), force=force)

    def removal(self, cluster: str, account: Account, say: Say) -> Removal:
        from trainwright.platforms.parallelcluster.apply.pcluster import Pcluster
        from trainwright.platforms.parallelcluster.apply.remove import ParallelClusterRemoval

        return ParallelClusterRemoval(cluster, account, say, tool=Pcluster(account.region, say))

    def reader(self, cluster: str, account: Account) -> StatusReader:
        from trainwright.platforms.parallelcluster.apply.status import ParallelClusterStatus

        return ParallelClusterStatus(account, cluster)

    def connect(self, name: str, spec: Spec | None) -> tuple[list[str], dict[str, str]]:
        from trainwright.platforms.parallelcluster.reach import shell_command

        return shell_command(way_to(name, spec), (), terminal=True), {}


def is_node_of(cluster: str, configuration: Path | None = None) -> bool:
    """Whether this machine is a node of that cluster, which has its Slurm at hand. Another machine may have a Slurm
    too, of its own. `configuration`: the file that says so on a node; ParallelCluster's where none is given."""
    file = configuration or CONFIGURATION
    if not shutil.which("sbatch") or not file.is_file():
        return False
    named = re.search(r"^stack_name=(\S+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
    return named is None or named[1] == cluster


def slurm_on_head(cluster: str, region: str, opened: bool) -> SlurmScheduler:
    """The Slurm of a cluster that is known by its name and region. `opened`: the ssh port of its head node is open."""
    if is_node_of(cluster):
        return SlurmScheduler(Shell(), cluster)
    way = way_to(cluster, None, region, opened or None)
    way.keep()
    return with_path(SlurmScheduler(Shell(host=way.alias), cluster, python="python3"))


def way_to(name: str, spec: Spec | None, region: str | None = None, direct: bool | None = None) -> Way:
    """How the cluster's head node is reached: straight where the spec opens its port (or the caller says so)."""
    from trainwright.aws.head_node import find_head
    from trainwright.platforms.parallelcluster.apply.key_pair import key_file
    from trainwright.platforms.parallelcluster.reach import CLOSED, SSM_PROGRAMS, Way
    from trainwright.spec.defaults import resolve

    full = resolve(spec)[0] if spec is not None else None
    head = find_head(name, region or (full.region if full is not None else None))
    if direct is None:
        opened = full is not None and full.head.ssh_from not in (None, CLOSED)
        unknown = full is None and not all(map(shutil.which, SSM_PROGRAMS))
        direct = opened or unknown
    direct = direct and bool(head.public)
    identity = key_file(head.key, head.region)
    return Way(head, direct, str(identity) if head.key and identity.is_file() else "")


def with_path(scheduler: SlurmScheduler) -> SlurmScheduler:
    """The scheduler with Slurm on its path, where it is reached over ssh."""
    if not scheduler.shell.remote:
        return scheduler
    return replace(scheduler, shell=replace(scheduler.shell, env=(("PATH", PATH),)))
