"""A `pcluster` for tests in one process: it makes a small stack with the life cycle of the real one (head node, wait
condition, clean-up of its files), by the same kinds of calls. The slow tests use the real pcluster."""

from __future__ import annotations

import json
from typing import Any

import yaml

from trainwright.aws.session import Account
from trainwright.platforms.apply.steps import BuildFailed
from trainwright.platforms.parallelcluster.apply.cluster_steps import pcluster_bucket

IMAGE = "ami-12c6146b"
IMDS = {"HttpTokens": "required"}


def template(name: str, config: dict[str, Any]) -> dict[str, Any]:
    head = config["HeadNode"]
    networking = head["Networking"]
    groups = networking.get("AdditionalSecurityGroups", [])
    card = {"SubnetId": networking["SubnetId"], "GroupSet": groups}
    system = f"{config['Image']['Os']}, slurm, 3.16.1, x86_64"
    artifacts = {n: {"Ref": n} for n in ("ResourcesS3Bucket", "ArtifactS3RootDirectory")}
    resources = {
        "Cleanup": _custom(Action="DELETE_S3_ARTIFACTS", **artifacts),
        "ComputeTable": {
            "Type": "AWS::DynamoDB::Table",
            "Properties": {
                "TableName": f"parallelcluster-{name}", "BillingMode": "PAY_PER_REQUEST",
                "AttributeDefinitions": [{"AttributeName": "Id", "AttributeType": "S"}],
                "KeySchema": [{"AttributeName": "Id", "KeyType": "HASH"}],
            },
        },
        "HeadNodeENI": {"Type": "AWS::EC2::NetworkInterface", "Properties": card},
        "HeadNodeLaunchTemplate": _launch_template(
            {"NetworkInterfaceId": {"Ref": "HeadNodeENI"}}, head["InstanceType"],
            _tags(name, config, "HeadNode", **{"parallelcluster:attributes": system}),
            head.get("Ssh", {}).get("KeyName"),
        ),
        **_compute(name, config, groups),
        "HeadNode": {
            "Type": "AWS::EC2::Instance",
            "Properties": {"LaunchTemplate": {"LaunchTemplateId": {"Ref": "HeadNodeLaunchTemplate"}}},
        },
        "HeadNodeWaitConditionHandle": {"Type": "AWS::CloudFormation::WaitConditionHandle"},
        "HeadNodeWaitCondition": {
            "Type": "AWS::CloudFormation::WaitCondition",
            "DependsOn": ["HeadNode"],
            "Properties": {"Count": 1, "Timeout": "2100", "Version": {"Ref": "ConfigVersion"}},
        },
    }  # fmt: skip
    resources["HeadNode"]["DependsOn"] = [logical for logical in resources if logical.startswith("Compute")]
    parameters = ("ResourcesS3Bucket", "ArtifactS3RootDirectory", "ConfigVersion")
    return {"Parameters": {one: {"Type": "String"} for one in parameters}, "Resources": resources}


def _compute(name: str, config: dict[str, Any], groups: list[str]) -> dict[str, Any]:
    """A launch template for each kind of node, and what ends the nodes when the cluster is deleted."""
    made = {"ComputeFleet": _custom(Action="TERMINATE_EC2_INSTANCES", StackName=name)}
    for number, queue in enumerate(config["Scheduling"]["SlurmQueues"]):
        card = {"SubnetId": queue["Networking"]["SubnetIds"][0], "Groups": groups}
        for place, part in enumerate(queue["ComputeResources"]):
            names = {"parallelcluster:queue-name": queue["Name"], "parallelcluster:compute-resource-name": part["Name"]}
            instance = part.get("InstanceType") or part["Instances"][0]["InstanceType"]
            template = _launch_template(card, instance, _tags(name, config, "Compute", **names))
            if target := part.get("CapacityReservationTarget"):
                reserved = {"CapacityReservationTarget": target}
                template["Properties"]["LaunchTemplateData"]["CapacityReservationSpecification"] = reserved
            made[f"ComputeTemplate{number}x{place}"] = template
    return made


def _custom(**properties: Any) -> dict[str, Any]:
    return {"Type": "AWS::CloudFormation::CustomResource", "Properties": properties}


def _launch_template(
    card: dict[str, Any], instance: str, tags: list[dict[str, str]], key: str | None = None
) -> dict[str, Any]:
    specifications = [{"ResourceType": kind, "Tags": tags} for kind in ("instance", "volume")]
    data = {
        "ImageId": IMAGE, "InstanceType": instance, "MetadataOptions": IMDS, "NetworkInterfaces": [card],
        "TagSpecifications": specifications, **({"KeyName": key} if key else {}),
    }  # fmt: skip
    return {"Type": "AWS::EC2::LaunchTemplate", "Properties": {"LaunchTemplateData": data}}


def _tags(cluster: str, config: dict[str, Any], kind: str, **more: str) -> list[dict[str, str]]:
    own = {"parallelcluster:cluster-name": cluster, "parallelcluster:node-type": kind, "Name": kind, **more}
    return [*config["Tags"], *({"Key": key, "Value": value} for key, value in own.items())]


class StandInTool:
    """Creates, updates and deletes the stack of a cluster as pcluster does, without its validators."""

    def __init__(self, account: Account) -> None:
        self.account = account

    def ready(self) -> None:
        pass

    def create(self, name: str, config: str) -> None:
        client = self.account.client("cloudformation")
        parameters = self._upload(name, config)
        own = {"parallelcluster:version": "3.16.1", "parallelcluster:cluster-name": name}
        tags = [*yaml.safe_load(config)["Tags"], *({"Key": key, "Value": value} for key, value in own.items())]
        try:
            client.create_stack(StackName=name, TemplateBody=_body(name, config), Parameters=parameters, Tags=tags)
        except client.exceptions.AlreadyExistsException as error:
            raise BuildFailed(f"cluster {name} already exists") from error

    def update(self, name: str, config: str) -> None:
        parameters = self._upload(name, config)
        self.account.client("cloudformation").update_stack(
            StackName=name, TemplateBody=_body(name, config), Parameters=parameters
        )

    def delete(self, name: str) -> None:
        self.account.client("cloudformation").delete_stack(StackName=name)

    def fleet(self, name: str, status: str) -> None:
        self.account.client("dynamodb").update_item(
            TableName=f"parallelcluster-{name}", Key={"Id": {"S": "COMPUTE_FLEET"}},
            UpdateExpression="set #data.#status = :status",
            ExpressionAttributeNames={"#data": "Data", "#status": "status"},
            ExpressionAttributeValues={":status": {"S": status}},
        )  # fmt: skip

    def _upload(self, name: str, config: str) -> list[dict[str, str]]:
        s3, folder = self.account.client("s3"), f"parallelcluster/3.16.1/clusters/{name}-0123456789abcdef"
        bucket = pcluster_bucket("123456789012", self.account.region)
        if bucket not in [row["Name"] for row in s3.list_buckets()["Buckets"]]:
            place = {"CreateBucketConfiguration": {"LocationConstraint": self.account.region}}
            s3.create_bucket(Bucket=bucket, **(place if self.account.region != "us-east-1" else {}))
            s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
        key = f"{folder}/configs/cluster-config.yaml"
        version = s3.put_object(Bucket=bucket, Key=key, Body=config.encode())["VersionId"]
        values = {"ResourcesS3Bucket": bucket, "ArtifactS3RootDirectory": folder, "ConfigVersion": version}
        return [{"ParameterKey": key, "ParameterValue": value} for key, value in values.items()]


def _body(name: str, config: str) -> str:
    return json.dumps(template(name, yaml.safe_load(config)))
