"""`up` of a ParallelCluster: after the stacks, the files that nodes fetch, the key pair, and the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainwright.aws.cloudformation import Stack
from trainwright.aws.fleet import FleetApi
from trainwright.errors import UserError
from trainwright.platforms.apply.build import Build, Files, without_header
from trainwright.platforms.apply.preflight import Question
from trainwright.platforms.apply.stack_steps import failed
from trainwright.platforms.apply.steps import BuildFailed, Step
from trainwright.platforms.apply.uploads import Uploads
from trainwright.platforms.parallelcluster.apply.cluster_steps import ClusterUp, Tool, ToolUp, deployed_config
from trainwright.platforms.parallelcluster.apply.image import images
from trainwright.platforms.parallelcluster.apply.key_pair import KeyPair
from trainwright.platforms.parallelcluster.apply.pcluster import ability
from trainwright.stacks.references import fill

CLUSTER = "cluster"


@dataclass
class ParallelClusterBuild(Build):
    """One plan of ParallelCluster on its way to AWS."""

    tool: Tool

    def names(self) -> dict[str, str]:
        return {**super().names(), CLUSTER: self.name}

    def questions(self) -> list[Question]:
        return [("image", lambda: images(self.account, self.plan.spec)), ("pcluster", ability)]

    def steps(self, stop_nodes: bool = False) -> list[Step]:
        tool = ToolUp("pcluster", "pcluster", api=self.stacks, tool=self.tool, name=self.name)
        steps = [tool, *self.stack_steps()]
        if self.plan.scripts:
            steps.append(self._uploads())
        if self.plan.spec.head.key is not None:
            key = self.plan.spec.head.key
            steps.append(KeyPair("key", f"key pair {key}", account=self.account, name=key, tags=self.tags))
        needs = tuple(step.key for step in steps)
        steps.append(
            ClusterUp(
                CLUSTER,
                f"cluster {self.name}",
                needs,
                api=self.stacks,
                buckets=self.buckets,
                fleet=FleetApi(self.account),
                tool=self.tool,
                name=self.name,
                config=self.config,
                stop_fleet=stop_nodes,
                explain=self._cause,
            )
        )
        return steps

    def _uploads(self) -> Uploads:
        files = {key: self.plan.content(file) for file, key in self.plan.scripts.items()}
        return Uploads(
            "scripts",
            f"{len(files)} files that nodes fetch",
            ("bucket",),
            buckets=self.buckets,
            bucket=lambda: self.outputs["bucket"]["BucketName"],
            prefix=f"trainwright/{self.name}/",
            files=files,
        )

    def config(self) -> str:
        """The cluster file with the ids of what the stacks made."""
        return fill(without_header(self.plan.files["cluster.yaml"]), self.outputs)

    def _cause(self, stack: Stack) -> BuildFailed:
        """Why the cluster failed: from its events and its nodes' logs where they show a known cause."""
        from trainwright.aws.cluster_logs import stack_texts
        from trainwright.platforms.diagnosis.explain import explain

        plain = failed(self.stacks, stack, self.name)
        explanation = explain(stack_texts(stack.name, self.account.region))
        if explanation is None:
            return plain
        return BuildFailed(f"{plain.what.rstrip('.')}. {explanation.paragraph}", where=self.name, fix=plain.fix)

    def files_of(self, key: str) -> tuple[str, ...]:
        return ("cluster.yaml",) if key == CLUSTER else super().files_of(key)

    def cluster_files(
        self, existing: Mapping[str, Stack], outputs: Mapping[str, dict[str, str]]
    ) -> tuple[Files, Files]:
        cluster = existing.get(CLUSTER)
        deployed = deployed_config(cluster, self.buckets) if cluster is not None and cluster.usable else None
        if deployed is None:
            return {}, {}
        try:
            planned = fill(without_header(self.plan.files["cluster.yaml"]), outputs)
        except UserError:  # a stack that it refers to is not there
            return {}, {}
        return {"cluster.yaml": deployed}, {"cluster.yaml": planned}
