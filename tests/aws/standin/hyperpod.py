"""SageMaker HyperPod of the stand-in: a cluster takes what CreateCluster takes, its nodes run the scripts that lie in
the bucket (as far as their files tell), and their network interfaces stand in the user's own subnet until it goes."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from standin.resources import Made, Place, _register

FIXED = ("InstanceType", "ExecutionRole", "InstanceStorageConfigs", "OverrideVpcConfig", "CapacityRequirements")


class HyperPodError(Exception):
    pass


@dataclass
class PodNode:
    id: str
    group: str
    type: str
    launched: float
    interface: str
    status: str = "Running"


@dataclass
class PodCluster:
    name: str
    arn: str
    props: dict[str, Any]
    nodes: list[PodNode] = field(default_factory=list)

    @property
    def groups(self) -> dict[str, dict[str, Any]]:
        return {group["InstanceGroupName"]: group for group in self.props["InstanceGroups"]}


@cache
def _shape() -> Any:
    import botocore.session

    return botocore.session.get_session().get_service_model("sagemaker").operation_model("CreateCluster").input_shape


def _require(props: dict[str, Any], at: Place) -> None:
    """What SageMaker refuses, or the lifecycle scripts of the first node trip over."""
    from botocore.validate import ParamValidator

    report = ParamValidator().validate(props, _shape())
    if report.has_errors():
        raise ValueError(report.generate_report())
    for group in props["InstanceGroups"]:
        role = at.client("iam").get_role(RoleName=group["ExecutionRole"].rpartition("/")[2])["Role"]
        if "sagemaker.amazonaws.com" not in json.dumps(role["AssumeRolePolicyDocument"]):
            raise ValueError("SageMaker cannot assume the execution role")
        _require_scripts(group.get("LifeCycleConfig"), props, at)
    cluster = props.get("Orchestrator", {}).get("Eks", {}).get("ClusterArn")
    if cluster is not None:
        eks = at.engine.eks.find(cluster.rpartition("/")[2])
        if eks.releases.get("hyperpod-dependencies", {}).get("status") != "deployed":
            raise ValueError("HyperPod's chart is not installed on the EKS cluster: its nodes would not be watched")


def _require_scripts(config: dict[str, Any] | None, props: dict[str, Any], at: Place) -> None:
    if config is None:
        return
    bucket, _, prefix = config["SourceS3Uri"].removeprefix("s3://").partition("/")
    s3 = at.client("s3")
    rows = s3.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])
    files = {row["Key"].removeprefix(prefix): row["Key"] for row in rows}
    if config["OnCreate"] not in files:
        raise ValueError(f"LifeCycleConfig: {config['SourceS3Uri']} has no {config['OnCreate']}")
    for key in files.values():
        if b"stack-output:" in s3.get_object(Bucket=bucket, Key=key)["Body"].read():
            raise ValueError(f"LifeCycleConfig: {key} failed on the first node: a value was not filled in")
    if "provisioning_parameters.json" in files:
        text = s3.get_object(Bucket=bucket, Key=files["provisioning_parameters.json"])["Body"].read()
        parameters = json.loads(text)
        named = {parameters["controller_group"], *(row["instance_group_name"] for row in parameters["worker_groups"])}
        if named != {group["InstanceGroupName"] for group in props["InstanceGroups"]}:
            raise ValueError("LifeCycleConfig: provisioning_parameters.json names other groups")


def _resize(cluster: PodCluster, props: dict[str, Any], at: Place) -> None:
    """Add nodes and interfaces, or take them away, until every group has its count."""
    ec2, wanted = at.client("ec2"), {g["InstanceGroupName"]: g for g in props["InstanceGroups"]}
    for name in {*wanted, *(node.group for node in cluster.nodes)}:
        have = [node for node in cluster.nodes if node.group == name]
        group = wanted.get(name)
        count = int(group["InstanceCount"]) if group else 0
        for node in have[count:]:
            ec2.delete_network_interface(NetworkInterfaceId=node.interface)
            cluster.nodes.remove(node)
        for _ in range(count - len(have)):
            assert group is not None
            network = group.get("OverrideVpcConfig") or props["VpcConfig"]
            made = ec2.create_network_interface(
                SubnetId=network["Subnets"][0], Groups=network["SecurityGroupIds"], Description="SageMaker HyperPod"
            )["NetworkInterface"]["NetworkInterfaceId"]
            id, kind = f"i-{uuid.uuid4().hex[:17]}", group["InstanceType"]
            cluster.nodes.append(PodNode(id, name, kind, at.engine.clock.now(), made))
    cluster.props = props


def _create(props: dict[str, Any], at: Place) -> Made:
    clusters: dict[str, PodCluster] = at.engine.hyperpod
    if props["ClusterName"] in clusters:
        raise ValueError(f"ClusterName {props['ClusterName']} is in use")
    _require(props, at)
    arn = f"arn:aws:sagemaker:{at.region}:{at.account}:cluster/{uuid.uuid4().hex[:12]}"
    cluster = clusters[props["ClusterName"]] = PodCluster(props["ClusterName"], arn, props)
    _resize(cluster, props, at)
    return arn, {"ClusterArn": arn, "ClusterStatus": "InService"}


def _update(physical: str, props: dict[str, Any], at: Place) -> None:
    cluster = next(one for one in at.engine.hyperpod.values() if one.arn == physical)
    _require(props, at)
    for name, group in {g["InstanceGroupName"]: g for g in props["InstanceGroups"]}.items():
        changed = [key for key in FIXED if name in cluster.groups and group.get(key) != cluster.groups[name].get(key)]
        if changed:
            raise ValueError(f"{changed[0]} of instance group {name} cannot be changed")
    _resize(cluster, props, at)


def _delete(physical: str, props: dict[str, Any], at: Place) -> None:
    for name, cluster in list(at.engine.hyperpod.items()):
        if cluster.arn == physical:
            for node in cluster.nodes:
                at.client("ec2").delete_network_interface(NetworkInterfaceId=node.interface)
            del at.engine.hyperpod[name]


_register(
    "AWS::SageMaker::Cluster", _create, _delete, seconds=900.0, deletion=300.0, update=_update,
    mutable=frozenset({"Tags", "InstanceGroups", "NodeRecovery"}),
)  # fmt: skip


def install(patched: Callable[[Any, str, Callable[[Any], Any]], None], world: Callable[[], Any]) -> None:
    """Put these clusters in the place of moto's, which knows no CloudFormation for them."""
    from moto.sagemaker.exceptions import ResourceNotFound
    from moto.sagemaker.responses import SageMakerResponse

    def found(self: Any, name: str) -> PodCluster:
        clusters = world().region(self.region).hyperpod
        for cluster in clusters.values():
            if name in (cluster.name, cluster.arn):
                return cluster
        raise ResourceNotFound(message=f"Cluster '{name}' not found.")

    def describe(self: Any) -> str:
        cluster = found(self, self._get_param("ClusterName"))
        groups = [
            {
                "InstanceGroupName": name, "InstanceType": group["InstanceType"],
                "TargetCount": int(group["InstanceCount"]),
                "CurrentCount": sum(node.group == name for node in cluster.nodes),
            }
            for name, group in cluster.groups.items()
        ]  # fmt: skip
        row = {"ClusterName": cluster.name, "ClusterArn": cluster.arn, "ClusterStatus": "InService"}
        return json.dumps({**row, "InstanceGroups": groups})

    def nodes(self: Any) -> str:
        cluster = found(self, self._get_param("ClusterName"))
        rows = [
            {
                "InstanceGroupName": node.group, "InstanceId": node.id, "InstanceType": node.type,
                "LaunchTime": world().clock.when(node.launched).timestamp(), "InstanceStatus": {"Status": node.status},
            }
            for node in cluster.nodes
        ]  # fmt: skip
        return json.dumps({"ClusterNodeSummaries": rows})

    def tags(self: Any) -> str:
        return json.dumps({"Tags": found(self, self._get_param("ResourceArn")).props.get("Tags", [])})

    for name, function in {"describe_cluster": describe, "list_cluster_nodes": nodes, "list_tags": tags}.items():
        patched(SageMakerResponse, name, function)
