"""SageMaker HyperPod: a cluster and its nodes. They run in SageMaker's account, so EC2 does not list them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trainwright.aws.session import Account, AwsRefused, aws_errors

MISSING = ("ResourceNotFound", "ResourceNotFoundException", "ValidationException")


@dataclass(frozen=True)
class HyperPodNode:
    group: str
    id: str
    type: str  # without its prefix: p5.48xlarge
    status: str  # Running, Pending, Failure, ShuttingDown, SystemUpdating, DeepHealthCheckInProgress
    message: str
    launched: datetime


@dataclass(frozen=True)
class HyperPodCluster:
    name: str
    arn: str
    status: str  # Creating, InService, Failed, RollingBack, SystemUpdating, Updating, Deleting
    failure: str
    groups: dict[str, tuple[str, int]]  # instance group -> type without its prefix, nodes it should have

    @property
    def id(self) -> str:
        """The last part of the ARN, which Session Manager and the logs name the cluster by."""
        return self.arn.rpartition("/")[2]

    @property
    def logs(self) -> str:
        """The log group of its nodes' scripts."""
        return f"/aws/sagemaker/Clusters/{self.name}/{self.id}"

    def target(self, node: HyperPodNode) -> str:
        """What Session Manager calls a node; its plain instance id is unknown there."""
        return f"sagemaker-cluster:{self.id}_{node.group}-{node.id}"


@dataclass(frozen=True)
class HyperPodApi:
    """The calls of SageMaker that `up`, `status` and `connect` need."""

    account: Account

    def cluster(self, name: str) -> HyperPodCluster | None:
        try:
            with aws_errors(f"HyperPod cluster {name}"):
                row = self._client.describe_cluster(ClusterName=name)
        except AwsRefused as error:
            if error.code in MISSING:
                return None
            raise
        return _cluster(row)

    def nodes(self, name: str) -> list[HyperPodNode]:
        """The nodes; none where the cluster is not there."""
        try:
            with aws_errors(f"nodes of HyperPod cluster {name}"):
                pages = self._client.get_paginator("list_cluster_nodes").paginate(ClusterName=name)
                return [_node(row) for page in pages for row in page["ClusterNodeSummaries"]]
        except AwsRefused as error:
            if error.code in MISSING:
                return []
            raise

    def tags(self, arn: str) -> dict[str, str]:
        with aws_errors(f"tags of {arn}"):
            return {row["Key"]: row["Value"] for row in self._client.list_tags(ResourceArn=arn)["Tags"]}

    @property
    def _client(self) -> Any:
        return self.account.client("sagemaker")


def _cluster(row: dict[str, Any]) -> HyperPodCluster:
    groups = {
        group["InstanceGroupName"]: (
            str(group.get("InstanceType", "")).removeprefix("ml."),
            int(group.get("TargetCount", group.get("CurrentCount", 0))),
        )
        for group in row.get("InstanceGroups", ())
    }
    return HyperPodCluster(
        row["ClusterName"], row["ClusterArn"], row["ClusterStatus"], row.get("FailureMessage") or "", groups
    )


def _node(row: dict[str, Any]) -> HyperPodNode:
    status = row["InstanceStatus"]
    return HyperPodNode(
        row["InstanceGroupName"],
        row["InstanceId"],
        str(row["InstanceType"]).removeprefix("ml."),
        status["Status"],
        status.get("Message") or "",
        row["LaunchTime"],
    )
