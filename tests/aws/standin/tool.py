"""A `pcluster` for tests in one process: it makes a small stack with the life cycle of the real one (head node, wait
condition, clean-up of its files), by the same kinds of calls. The slow tests use the real pcluster."""

from __future__ import annotations

import json
from typing import Any

from trainwright.aws.session import Account
from trainwright.platforms.apply.steps import BuildFailed
from trainwright.platforms.parallelcluster.apply.cluster_steps import pcluster_bucket

LAUNCH = {
    "ImageId": "ami-12c6146b",
    "InstanceType": "m5.8xlarge",
    "MetadataOptions": {"HttpTokens": "required"},
    "NetworkInterfaces": [{"NetworkInterfaceId": {"Ref": "HeadNodeENI"}}],
}


def template(config: dict[str, Any]) -> dict[str, Any]:
    head = config["HeadNode"]
    networking = head["Networking"]
    card = {"SubnetId": networking["SubnetId"], "GroupSet": networking.get("AdditionalSecurityGroups", [])}
    tags = [{"Key": "parallelcluster:node-type", "Value": "HeadNode"}]
    cleanup = {
        "Action": "DELETE_S3_ARTIFACTS",
        "ResourcesS3Bucket": {"Ref": "ResourcesS3Bucket"},
        "ArtifactS3RootDirectory": {"Ref": "ArtifactS3RootDirectory"},
    }
    return {
        "Parameters": {
            n: {"Type": "String"} for n in ("ResourcesS3Bucket", "ArtifactS3RootDirectory", "ConfigVersion")
        },
        "Resources": {
            "Cleanup": {"Type": "AWS::CloudFormation::CustomResource", "Properties": cleanup},
            "HeadNodeENI": {"Type": "AWS::EC2::NetworkInterface", "Properties": card},
            "HeadNodeLaunchTemplate": {
                "Type": "AWS::EC2::LaunchTemplate",
                "Properties": {"LaunchTemplateData": {**LAUNCH, "InstanceType": head["InstanceType"]}},
            },
            "HeadNode": {
                "Type": "AWS::EC2::Instance",
                "Properties": {
                    "LaunchTemplate": {"LaunchTemplateId": {"Ref": "HeadNodeLaunchTemplate"}},
                    "Tags": tags,
                },
            },
            "HeadNodeWaitConditionHandle": {"Type": "AWS::CloudFormation::WaitConditionHandle"},
            "HeadNodeWaitCondition": {
                "Type": "AWS::CloudFormation::WaitCondition",
                "DependsOn": ["HeadNode"],
                "Properties": {"Count": 1, "Timeout": "2100", "Version": {"Ref": "ConfigVersion"}},
            },
        },
    }


class StandInTool:
    """Creates, updates and deletes the stack of a cluster as pcluster does, without its validators."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.stopped = False

    def create(self, name: str, config: str) -> None:
        client = self.account.client("cloudformation")
        parameters = self._upload(name, config)
        tags = [{"Key": "trainwright:cluster", "Value": name}, {"Key": "parallelcluster:version", "Value": "3.16.1"}]
        try:
            client.create_stack(StackName=name, TemplateBody=_body(config), Parameters=parameters, Tags=tags)
        except client.exceptions.AlreadyExistsException as error:
            raise BuildFailed(f"cluster {name} already exists") from error

    def update(self, name: str, config: str) -> None:
        parameters = self._upload(name, config)
        self.account.client("cloudformation").update_stack(
            StackName=name, TemplateBody=_body(config), Parameters=parameters
        )

    def delete(self, name: str) -> None:
        self.account.client("cloudformation").delete_stack(StackName=name)

    def fleet(self, name: str, status: str) -> None:
        self.stopped = status == "STOP_REQUESTED"

    def fleet_status(self, name: str) -> str:
        return "STOPPED" if self.stopped else "RUNNING"

    def _upload(self, name: str, config: str) -> list[dict[str, str]]:
        import hashlib

        s3, folder = self.account.client("s3"), f"parallelcluster/3.16.1/clusters/{name}-0123456789abcdef"
        bucket = pcluster_bucket("123456789012", self.account.region)
        if bucket not in [row["Name"] for row in s3.list_buckets()["Buckets"]]:
            place = {"CreateBucketConfiguration": {"LocationConstraint": self.account.region}}
            s3.create_bucket(Bucket=bucket, **(place if self.account.region != "us-east-1" else {}))
        s3.put_object(Bucket=bucket, Key=f"{folder}/configs/cluster-config.yaml", Body=config.encode())
        version = hashlib.sha256(config.encode()).hexdigest()[:16]
        values = {"ResourcesS3Bucket": bucket, "ArtifactS3RootDirectory": folder, "ConfigVersion": version}
        return [{"ParameterKey": key, "ParameterValue": value} for key, value in values.items()]


def _body(config: str) -> str:
    import yaml

    return json.dumps(template(yaml.safe_load(config)))
