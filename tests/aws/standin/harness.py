"""One cluster in the stand-in of this process: built, removed, counted, as often as a test wants."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from standin.census import census
from standin.programs import StandInPrograms
from standin.tool import StandInTool
from standin.world import World
from trainwright.aws.session import Account
from trainwright.platforms.apply.base import AwsPlatform, aws_platform
from trainwright.platforms.apply.build import Build
from trainwright.platforms.apply.remove import Removal
from trainwright.platforms.apply.steps import Step, run
from trainwright.platforms.eks.apply.build import EksBuild
from trainwright.platforms.eks.apply.remove import EksRemoval
from trainwright.platforms.hyperpod.eks_apply import HyperPodEksBuild, HyperPodEksRemoval
from trainwright.platforms.parallelcluster.apply.build import ParallelClusterBuild
from trainwright.platforms.parallelcluster.apply.remove import ParallelClusterRemoval
from trainwright.platforms.plan.tree import ClusterPlan, make_plan
from trainwright.spec.load import load

REGION = "us-east-2"
SPEC = """
name: cut
platform: parallelcluster
region: us-east-2
zone: use2-az3
queues:
  - {name: train, instance: p5.48xlarge, count: 2, capacity: {reservation: cr-0a1b2c3d4e5f67890}}
storage:
  - {mount: /fsx, lustre: {capacity: 1.2TiB, throughput: 250}, bucket: "s3://the-data"}
head: {instance: m5.8xlarge, key: my-key}
software: {os: ubuntu2204, containers: enroot}
"""


BATCH = """
name: cut
platform: batch
region: us-east-2
zone: use2-az3
queues:
  - {name: train, instance: p5.48xlarge, count: {min: 1, max: 2}, capacity: {reservation: cr-0a1b2c3d4e5f67890}}
  - {name: small, instance: g5.8xlarge, count: {min: 0, max: 4}}
storage:
  - {mount: /fsx, lustre: {capacity: 1.2TiB, throughput: 250}, bucket: "s3://the-data"}
"""

HYPERPOD = """
name: cut
platform: hyperpod
region: us-east-2
zone: use2-az3
queues:
  - {name: train, instance: p5.48xlarge, count: 2}
storage:
  - {mount: /fsx, lustre: {capacity: 1.2TiB, throughput: 250}, bucket: "s3://the-data"}
head: {instance: m5.8xlarge, key: my-key}
software: {containers: enroot}
"""

EKS = """
name: cut
platform: eks
region: us-east-2
zone: use2-az3
queues:
  - {name: train, instance: p5.48xlarge, count: {min: 1, max: 2}, capacity: {reservation: cr-0a1b2c3d4e5f67890}}
storage:
  - {mount: /fsx, lustre: {capacity: 1.2TiB, throughput: 250}, bucket: "s3://the-data"}
kubernetes: {namespace: train}
"""

HYPERPOD_EKS = """
name: cut
platform: hyperpod-eks
region: us-east-2
zone: use2-az3
queues:
  - {name: train, instance: p5.48xlarge, count: 2}
storage:
  - {mount: /fsx, lustre: {capacity: 1.2TiB, throughput: 250}, bucket: "s3://the-data"}
hyperpod: {health_checks: [stress]}
kubernetes: {namespace: kubeflow}
"""

ACCOUNT = Account(REGION)  # its clients serve all tests of a process


class Cut(BaseException):
    """The process ends here, as by kill -9: nothing of ours may catch it."""


def _publish_image() -> None:
    """ParallelCluster's own image in the region, which moto does not have."""
    from moto.ec2.models import ec2_backends
    from moto.ec2.models.amis import Ami

    from judges.moto_extended import _image

    backend = ec2_backends["123456789012"][REGION]
    name = "aws-parallelcluster-3.16.1-ubuntu-2204-lts-hvm-x86_64-202606010000"
    row = _image("ami-0aa00000000000000", name, "x86_64", "247102896272")
    moment = {"creation_date": datetime(2026, 6, 1, tzinfo=UTC)}
    backend.amis[row["ami_id"]] = Ami(backend, **{**row, **moment}, owner_alias="amazon")


class Cloud:
    """One cluster of a platform. `tool` is the stand-in of pcluster, where that is the platform."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.account = ACCOUNT
        self.plan: ClusterPlan | None = None
        self.programs = StandInPrograms(world, REGION)
        self.more_data: tuple[str, ...] = ()
        s3 = world.client("s3", REGION)
        s3.create_bucket(Bucket="the-data", CreateBucketConfiguration={"LocationConstraint": REGION})
        world.reserve("cr-0a1b2c3d4e5f67890", "p5.48xlarge", "use2-az3", 2, REGION)
        _publish_image()

    def planned(self, folder: Path, text: str = SPEC) -> ClusterPlan:
        path = folder / "cut.yaml"
        path.write_text(text)
        self.plan = make_plan(load(path))
        return self.plan

    def build(self, plan: ClusterPlan, **more: Any) -> Build:
        if plan.spec.platform == "parallelcluster":
            return ParallelClusterBuild(plan, self.account, StandInTool(self.account), **more)
        if plan.spec.platform in ("eks", "hyperpod-eks"):
            kind = EksBuild if plan.spec.platform == "eks" else HyperPodEksBuild
            return kind(plan, self.account, programs=self.programs, **more)
        return self._platform(plan).build(plan, self.account, more.get("force", False), print)

    def removal(self, plan: ClusterPlan) -> Removal:
        if plan.spec.platform == "parallelcluster":
            return ParallelClusterRemoval("cut", self.account, tool=StandInTool(self.account))
        if plan.spec.platform in ("eks", "hyperpod-eks"):
            kind = EksRemoval if plan.spec.platform == "eks" else HyperPodEksRemoval
            return kind("cut", self.account, programs=self.programs)
        return self._platform(plan).removal("cut", self.account, print)

    def _platform(self, plan: ClusterPlan) -> AwsPlatform:
        platform = aws_platform(plan.spec.platform)
        assert platform is not None
        return platform

    def up(self, plan: ClusterPlan | None = None, **more: Any) -> list[Step]:
        wanted = plan or self.plan
        assert wanted is not None
        steps = self.build(wanted, **more).steps()
        run(steps, lambda steps, step: None, self.world.clock)
        return steps

    def down(self, data: bool = True, force: bool = False) -> list[str]:
        assert self.plan is not None
        removal = self.removal(self.plan)
        existing = removal.existing()
        # Nothing runs on the head node of this stand-in: ssh would wait for it. test_whole_story.py asks a real Slurm.
        removal.require_idle(existing, force or self.plan.spec.platform == "parallelcluster")
        steps, kept = removal.steps(existing, ["bucket", "lustre-fsx", *self.more_data] if data else [])
        run(steps, lambda steps, step: None, self.world.clock)
        return kept

    def census(self) -> dict[str, list[str]]:
        self.world.tick()
        return census(self.world, REGION)

    def calls(self) -> int:
        return len(self.world.faults.calls)
