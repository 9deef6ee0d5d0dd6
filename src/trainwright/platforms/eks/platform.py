"""The `eks` and `hyperpod-eks` platforms: jobs as custom resources of a Kubernetes cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.errors import UserError
from trainwright.platforms.containers import kubernetes_scheduler
from trainwright.platforms.deployed import DeployedPlatform
from trainwright.schedulers.kubernetes.own_config import known_context
from trainwright.schedulers.kubernetes.pod import PodSettings
from trainwright.schedulers.kubernetes.scheduler import KubernetesScheduler

if TYPE_CHECKING:
    from trainwright.aws.session import Account
    from trainwright.platforms.apply.base import Say
    from trainwright.platforms.apply.build import Build
    from trainwright.platforms.apply.remove import Removal
    from trainwright.platforms.apply.status import StatusReader
    from trainwright.platforms.plan.tree import ClusterPlan
    from trainwright.spec.job import Job
    from trainwright.spec.model import Spec


class KubernetesOnAws(DeployedPlatform):
    label_prefix = ""

    def scheduler(self, spec: Spec, job: Job, host: str = "") -> KubernetesScheduler:
        self.refuse_host(host)
        scheduler = kubernetes_scheduler(spec, job, self.label_prefix)
        return replace(scheduler, context=scheduler.context or known_context(spec.name))

    def preview(self, spec: Spec, job: Job, host: str = "") -> KubernetesScheduler:
        return self.scheduler(spec, job, host)

    def scheduler_again(self, cluster: str, host: str, at: Mapping[str, str]) -> KubernetesScheduler:
        return KubernetesScheduler(PodSettings(namespace=at["namespace"]), at["kind"], at["context"] or None, cluster)


class EksPlatform(KubernetesOnAws):
    name = "eks"

    def build(self, plan: ClusterPlan, account: Account, force: bool, say: Say) -> Build:
        from trainwright.platforms.eks.apply.build import EksBuild

        return EksBuild(plan, account, force=force)

    def removal(self, cluster: str, account: Account, say: Say) -> Removal:
        from trainwright.platforms.eks.apply.remove import EksRemoval

        return EksRemoval(cluster, account)

    def connect(self, name: str, spec: Spec | None) -> tuple[list[str], dict[str, str]]:
        return [os.environ.get("SHELL", "/bin/bash")], {"KUBECONFIG": str(reach(name, spec, None))}

    def reader(self, cluster: str, account: Account) -> StatusReader:
        from trainwright.platforms.eks.apply.status import EksStatus

        return EksStatus(account, cluster)


def reach(name: str, spec: Spec | None, region: str | None, also: Path | None = None) -> Path:
    """Write the kubeconfig of a cluster that is up, for our commands and into `also`; its path."""
    from trainwright.aws.eks import EksApi
    from trainwright.aws.session import Account
    from trainwright.platforms.eks.kubeconfig import keep, merge

    place = region or (spec.region if spec is not None else None) or ""
    cluster = EksApi(Account(place)).cluster(name)
    if cluster is None or not cluster.endpoint:
        state = "does not exist" if cluster is None else f"is {cluster.status}"
        raise UserError(f"EKS cluster {name} {state} in {place}", fix="`trainwright up` makes it; `status` shows it")
    if also is not None:
        merge(cluster, place, also)
    return keep(cluster, place)


class HyperPodEksPlatform(EksPlatform):
    name = "hyperpod-eks"
    label_prefix = "ml."  # HyperPod labels its nodes with the service's name of the instance type

    def build(self, plan: ClusterPlan, account: Account, force: bool, say: Say) -> Build:
        from trainwright.platforms.hyperpod.eks_apply import HyperPodEksBuild

        return HyperPodEksBuild(plan, account, force=force)

    def removal(self, cluster: str, account: Account, say: Say) -> Removal:
        from trainwright.platforms.hyperpod.eks_apply import HyperPodEksRemoval

        return HyperPodEksRemoval(cluster, account)

    def reader(self, cluster: str, account: Account) -> StatusReader:
        from trainwright.platforms.hyperpod.eks_apply import HyperPodEksStatus

        return HyperPodEksStatus(account, cluster)
