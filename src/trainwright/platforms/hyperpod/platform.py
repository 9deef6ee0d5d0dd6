"""The `hyperpod` platform: Slurm on SageMaker HyperPod. Its controller is reached through Session Manager, by a name
that only SageMaker's nodes have: sagemaker-cluster:CLUSTER_GROUP-INSTANCE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.platforms.deployed import DeployedSlurm
from trainwright.platforms.parallelcluster.platform import is_node_of, with_path
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

KEY_TAG = "trainwright:key"
CONFIGURATION = Path("/etc/trainwright/node")  # our lifecycle scripts write it on every node


class HyperPodPlatform(DeployedSlurm):
    name = "hyperpod"
    hyperpod = True

    def scheduler(self, spec: Spec, job: Job, host: str = "") -> SlurmScheduler:
        if not host and not is_node(spec.name):
            way = way_to(spec.name, spec.region)
            way.keep()
            host = way.alias
        return with_path(super().scheduler(spec, job, host))

    def preview(self, spec: Spec, job: Job, host: str = "") -> SlurmScheduler:
        scheduler = super().scheduler(spec, job, host)
        return scheduler if is_node(spec.name) else replace(scheduler, python="python3")

    def scheduler_again(self, cluster: str, host: str, at: Mapping[str, str]) -> SlurmScheduler:
        if not host and not is_node(cluster):
            from trainwright.platforms.parallelcluster.reach import alias_of

            host = alias_of(cluster) if own_config(alias_of(cluster)).is_file() else ""
        return with_path(super().scheduler_again(cluster, host, at))

    def build(self, plan: ClusterPlan, account: Account, force: bool, say: Say) -> Build:
        from trainwright.platforms.hyperpod.apply import HyperPodBuild

        return HyperPodBuild(plan, account, force=force)

    def removal(self, cluster: str, account: Account, say: Say) -> Removal:
        from trainwright.platforms.hyperpod.apply import HyperPodRemoval

        return HyperPodRemoval(cluster, account, say)

    def reader(self, cluster: str, account: Account) -> StatusReader:
        from trainwright.platforms.hyperpod.apply import HyperPodStatus

        return HyperPodStatus(account, cluster)

    def connect(self, name: str, spec: Spec | None) -> tuple[list[str], dict[str, str]]:
        from trainwright.platforms.parallelcluster.reach import shell_command

        return shell_command(way_to(name, spec.region if spec is not None else None), (), terminal=True), {}


def is_node(cluster: str) -> bool:
    """Whether this machine is a node of that cluster, which has its Slurm at hand."""
    return is_node_of(cluster, CONFIGURATION)


def slurm_on_controller(cluster: str, region: str) -> SlurmScheduler:
    """The Slurm of a cluster that is up: on this machine where it is a node of it, else over ssh."""
    if is_node(cluster):
        return SlurmScheduler(Shell(), cluster, hyperpod=True)
    way = way_to(cluster, region)
    way.keep()
    return with_path(SlurmScheduler(Shell(host=way.alias), cluster, python="python3", hyperpod=True))


def way_to(name: str, region: str | None) -> Way:
    """How the cluster's controller is reached: ssh through Session Manager, or Session Manager alone without a key."""
    from trainwright.aws.head_node import HeadNode
    from trainwright.aws.hyperpod import HyperPodApi
    from trainwright.aws.session import Account
    from trainwright.errors import UserError
    from trainwright.platforms.hyperpod.cluster_file import CONTROLLER
    from trainwright.platforms.parallelcluster.apply.key_pair import key_file
    from trainwright.platforms.parallelcluster.reach import Way

    account = Account(region or "")
    api = HyperPodApi(account)
    cluster = api.cluster(name)
    nodes = [node for node in api.nodes(name) if node.group == CONTROLLER] if cluster is not None else []
    running = [node for node in nodes if node.status == "Running"]
    if cluster is None or not running:
        state = f": it is {nodes[0].status}" if nodes else ""
        raise UserError(
            f"HyperPod cluster {name} has no running controller" + state,
            fix="`trainwright up SPEC` makes one; another region: --region",
        )
    key = api.tags(cluster.arn).get(KEY_TAG, "")
    place = region or cluster.arn.split(":")[3]
    head = HeadNode(name, place, cluster.target(running[0]), "ubuntu2204", key=key)
    identity = key_file(key, place)
    return Way(head, False, str(identity) if key and identity.is_file() else "")
