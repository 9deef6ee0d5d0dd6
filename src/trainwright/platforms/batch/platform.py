"""The `batch` platform: multi-node jobs on AWS Batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from trainwright.aws.batch import BatchApi
from trainwright.platforms.containers import batch_scheduler
from trainwright.platforms.deployed import DeployedPlatform
from trainwright.schedulers.batch import BatchScheduler

if TYPE_CHECKING:
    from trainwright.aws.session import Account
    from trainwright.platforms.apply.base import Say
    from trainwright.platforms.apply.build import Build
    from trainwright.platforms.apply.remove import Removal
    from trainwright.platforms.apply.status import StatusReader
    from trainwright.platforms.plan.tree import ClusterPlan
    from trainwright.spec.job import Job
    from trainwright.spec.model import Spec


class BatchPlatform(DeployedPlatform):
    name = "batch"

    def scheduler(self, spec: Spec, job: Job, host: str = "") -> BatchScheduler:
        self.refuse_host(host)
        return batch_scheduler(spec, job)

    def preview(self, spec: Spec, job: Job, host: str = "") -> BatchScheduler:
        return self.scheduler(spec, job, host)

    def build(self, plan: ClusterPlan, account: Account, force: bool, say: Say) -> Build:
        from trainwright.platforms.batch.apply import BatchBuild

        return BatchBuild(plan, account, force=force)

    def removal(self, cluster: str, account: Account, say: Say) -> Removal:
        from trainwright.platforms.batch.apply import BatchRemoval

        return BatchRemoval(cluster, account)

    def reader(self, cluster: str, account: Account) -> StatusReader:
        from trainwright.platforms.batch.apply import BatchStatus

        return BatchStatus(account, cluster)

    def scheduler_again(self, cluster: str, host: str, at: Mapping[str, str]) -> BatchScheduler:
        return BatchScheduler(at["queue"], "", BatchApi(at["region"] or None), cluster)
