"""`down` of a ParallelCluster: the cluster through `pcluster`, its files, its key pair; then the stacks around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainwright.aws.cloudformation import Stack
from trainwright.errors import UserError
from trainwright.platforms.apply.base import Say
from trainwright.platforms.apply.remove import JobsOnCluster, Removal
from trainwright.platforms.apply.steps import Step
from trainwright.platforms.parallelcluster.apply.cluster_steps import ArtifactsDown, ClusterDown, Tool
from trainwright.platforms.parallelcluster.apply.key_pair import KeyPairsDown
from trainwright.platforms.parallelcluster.apply.slurm import jobs_on

CLUSTER = "cluster"


@dataclass
class ParallelClusterRemoval(Removal):
    tool: Tool
    say: Say = lambda words: None

    @property
    def logs(self) -> str:
        return f"CloudWatch, /aws/parallelcluster/{self.name}-*"

    def own_stacks(self, stacks: Mapping[str, Stack]) -> dict[str, Stack]:
        return {CLUSTER: stacks[self.name]} if self.name in stacks else {}

    def require_idle(self, existing: Mapping[str, Stack], force: bool) -> None:
        """Jobs are refused unless `force`. A head node that cannot be asked must not keep a cluster alive: it is said,
        and the question that follows is the user's."""
        if CLUSTER not in existing or force:
            return
        try:
            jobs = jobs_on(self.name, self.account, existing[CLUSTER], self.say)
        except UserError as error:
            self.say(f"jobs on {self.name}: unknown ({error.what}); those that run are ended with it")
            return
        if jobs:
            raise JobsOnCluster(self.name, jobs)
        self.say(f"jobs on {self.name}: none")

    def own_steps(self, existing: Mapping[str, Stack]) -> list[Step]:
        steps: list[Step] = []
        if CLUSTER in existing:
            title = f"cluster {self.name}"
            steps.append(ClusterDown(CLUSTER, title, api=self.stacks, tool=self.tool, name=self.name))
        after = tuple(step.key for step in steps)
        files = ArtifactsDown(
            "files", "files of pcluster", after, account=self.account, buckets=self.buckets, name=self.name
        )
        return [*steps, files, KeyPairsDown("key", "key pair", after, account=self.account, cluster=self.name)]
