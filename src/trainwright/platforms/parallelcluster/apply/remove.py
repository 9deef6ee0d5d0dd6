"""`down` of a ParallelCluster: the cluster through `pcluster`, its files, its key pair; then the stacks around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainwright.aws.cloudformation import Stack
from trainwright.platforms.apply.remove import SlurmRemoval
from trainwright.platforms.apply.steps import Step
from trainwright.platforms.parallelcluster.apply.cluster_steps import ArtifactsDown, ClusterDown, Tool
from trainwright.platforms.parallelcluster.apply.key_pair import KeyPairsDown
from trainwright.platforms.parallelcluster.apply.slurm import jobs_on

CLUSTER = "cluster"


@dataclass
class ParallelClusterRemoval(SlurmRemoval):
    tool: Tool = field(kw_only=True)

    @property
    def logs(self) -> str:
        return f"CloudWatch, /aws/parallelcluster/{self.name}-*"

    def own_stacks(self, stacks: Mapping[str, Stack]) -> dict[str, Stack]:
        return {CLUSTER: stacks[self.name]} if self.name in stacks else {}

    def open_jobs(self, existing: Mapping[str, Stack]) -> list[str] | None:
        return jobs_on(self.name, self.account, existing[CLUSTER], self.say) if CLUSTER in existing else None

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
