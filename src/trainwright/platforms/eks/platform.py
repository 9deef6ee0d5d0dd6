"""The `eks` and `hyperpod-eks` platforms: jobs as custom resources of a Kubernetes cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from trainwright.platforms.containers import kubernetes_scheduler
from trainwright.platforms.deployed import DeployedPlatform
from trainwright.schedulers.kubernetes.pod import PodSettings
from trainwright.schedulers.kubernetes.scheduler import KubernetesScheduler

if TYPE_CHECKING:
    from trainwright.spec.job import Job
    from trainwright.spec.model import Spec


class EksPlatform(DeployedPlatform):
    name = "eks"
    label_prefix = ""

    def scheduler(self, spec: Spec, job: Job, host: str = "") -> KubernetesScheduler:
        self.refuse_host(host)
        return kubernetes_scheduler(spec, job, self.label_prefix)

    def preview(self, spec: Spec, job: Job, host: str = "") -> KubernetesScheduler:
        return self.scheduler(spec, job, host)

    def scheduler_again(self, cluster: str, host: str, at: Mapping[str, str]) -> KubernetesScheduler:
        return KubernetesScheduler(PodSettings(namespace=at["namespace"]), at["kind"], at["context"] or None, cluster)


class HyperPodEksPlatform(EksPlatform):
    name = "hyperpod-eks"
    label_prefix = "ml."  # HyperPod labels its nodes with the service's name of the instance type
