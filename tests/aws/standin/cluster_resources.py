"""The resource types of ParallelCluster's own template. What a test looks at is made in moto (instances, interfaces,
launch templates, tables); the rest is remembered with the attributes that others refer to."""

from __future__ import annotations

import json
import uuid
from typing import Any

import yaml

from standin.resources import HANDLERS, Handler, Made, Place, _booleans, _register, _tags, recorded


def _arn(service: str) -> Any:
    return lambda physical, at: f"arn:aws:{service}:{at.region}:{at.account}:{physical}"


recorded("AWS::Lambda::Function", Arn=_arn("lambda"))
recorded("AWS::CloudWatch::Alarm", Arn=_arn("cloudwatch"))
recorded("AWS::CloudWatch::CompositeAlarm", Arn=_arn("cloudwatch"))
recorded("AWS::CloudWatch::Dashboard")
recorded("AWS::Logs::MetricFilter")
recorded("AWS::IAM::Policy")
recorded("AWS::SQS::Queue", Arn=_arn("sqs"), QueueName=lambda physical, at: physical)
recorded("AWS::SQS::QueuePolicy")
recorded("AWS::Events::Rule", Arn=_arn("events"))
recorded("AWS::IAM::ManagedPolicy")
recorded("AWS::IAM::InstanceProfile", seconds=60.0, Arn=_arn("iam"))
recorded("AWS::Route53::HostedZone", seconds=60.0)
recorded("AWS::DynamoDB::Table", seconds=30.0, Arn=_arn("dynamodb"))
recorded("AWS::CloudFormation::WaitConditionHandle")


def _interface(props: dict[str, Any], at: Place) -> Made:
    made = at.client("ec2").create_network_interface(
        SubnetId=props["SubnetId"], Groups=props.get("GroupSet", []), Description=props.get("Description", at.logical),
        **_tags(props, at, "network-interface"),
    )["NetworkInterface"]  # fmt: skip
    return made["NetworkInterfaceId"], {"PrimaryPrivateIpAddress": made["PrivateIpAddress"]}


_register(
    "AWS::EC2::NetworkInterface", _interface,
    lambda physical, props, at: at.client("ec2").delete_network_interface(NetworkInterfaceId=physical),
)  # fmt: skip


def _launch_template(props: dict[str, Any], at: Place) -> Made:
    """Remembered with all it says: moto forgets part of the network interfaces."""
    id = f"lt-{uuid.uuid4().hex[:17]}"
    at.engine.launch_data[id] = _booleans(props["LaunchTemplateData"])
    return id, {"LatestVersionNumber": "1", "LaunchTemplateId": id}


def _drop_launch_template(physical: str, props: dict[str, Any], at: Place) -> None:
    at.engine.launch_data.pop(physical, None)


_register("AWS::EC2::LaunchTemplate", _launch_template, _drop_launch_template)


def launch(
    at: Place, template: str, tags: dict[str, str], count: int = 1, volumes_too: bool = False
) -> list[dict[str, Any]]:
    """Instances from a launch template, in its first interface's subnet. `volumes_too`: they get the tags too."""
    data = at.engine.launch_data[template]
    card = data["NetworkInterfaces"][0]
    subnet, groups = card.get("SubnetId"), card.get("Groups", [])
    if not subnet:
        rows = at.client("ec2").describe_network_interfaces(NetworkInterfaceIds=[card["NetworkInterfaceId"]])
        subnet = rows["NetworkInterfaces"][0]["SubnetId"]
        groups = [group["GroupId"] for group in rows["NetworkInterfaces"][0]["Groups"]]
    tagged = {
        spec["ResourceType"]: {t["Key"]: t["Value"] for t in spec["Tags"]} for spec in data.get("TagSpecifications", [])
    }
    both = {
        "instance": {**tagged.get("instance", {}), **tags},
        "volume": {**tagged.get("volume", {}), **(tags if volumes_too else {})},
    }
    specifications = [
        {"ResourceType": kind, "Tags": [{"Key": key, "Value": value} for key, value in own.items()]}
        for kind, own in both.items()
        if own
    ]
    made: list[dict[str, Any]] = at.client("ec2").run_instances(
        ImageId=data["ImageId"], InstanceType=data["InstanceType"], SubnetId=subnet, SecurityGroupIds=groups,
        MinCount=count, MaxCount=count, TagSpecifications=specifications,
        MetadataOptions=data.get("MetadataOptions", {}), **({"KeyName": data["KeyName"]} if "KeyName" in data else {}),
    )["Instances"]  # fmt: skip
    return made


def _instance(props: dict[str, Any], at: Place) -> Made:
    own = {tag["Key"]: tag["Value"] for tag in props.get("Tags", [])}
    volumes_too = bool(_booleans(props.get("PropagateTagsToVolumeOnCreation", False)))
    template = props["LaunchTemplate"]["LaunchTemplateId"]
    (made,) = launch(at, template, {**at.tags, **own}, volumes_too=volumes_too)
    address, name = made["PrivateIpAddress"], made["PrivateDnsName"]
    if {"Key": "parallelcluster:node-type", "Value": "HeadNode"} in made["Tags"]:
        _start_static_nodes(at)
    return made["InstanceId"], {"PrivateIp": address, "PrivateDnsName": name}


def terminate(at: Place, ids: list[str]) -> None:
    """moto leaves the interfaces of terminated instances; AWS takes them away."""
    ec2 = at.client("ec2")
    rows = ec2.describe_instances(InstanceIds=ids)["Reservations"]
    cards = [card for row in rows for one in row["Instances"] for card in one.get("NetworkInterfaces", [])]
    ec2.terminate_instances(InstanceIds=ids)
    for card in cards:
        there = ec2.describe_network_interfaces(
            Filters=[{"Name": "network-interface-id", "Values": [card["NetworkInterfaceId"]]}]
        )["NetworkInterfaces"]
        if there:
            ec2.delete_network_interface(NetworkInterfaceId=card["NetworkInterfaceId"])


recorded("AWS::SSM::Association", seconds=120.0)
_register("AWS::EC2::Instance", _instance, lambda physical, props, at: terminate(at, [physical]), seconds=60.0)


def _custom(props: dict[str, Any], at: Place) -> Made:
    return at.unique, {}


def _cleanup(physical: str, props: dict[str, Any], at: Place) -> None:
    """What ParallelCluster's own Lambda function does when a cluster is deleted."""
    if props.get("Action") == "DELETE_S3_ARTIFACTS":
        s3, bucket = at.client("s3"), props["ResourcesS3Bucket"]
        found = s3.list_object_versions(Bucket=bucket, Prefix=props["ArtifactS3RootDirectory"])
        for row in [*found.get("Versions", []), *found.get("DeleteMarkers", [])]:
            s3.delete_object(Bucket=bucket, Key=row["Key"], VersionId=row["VersionId"])
    if props.get("Action") == "TERMINATE_EC2_INSTANCES":
        filters = [
            {"Name": "tag:parallelcluster:cluster-name", "Values": [props["StackName"]]},
            {"Name": "tag:parallelcluster:node-type", "Values": ["Compute"]},
        ]
        rows = at.client("ec2").describe_instances(Filters=filters)["Reservations"]
        ids = [instance["InstanceId"] for row in rows for instance in row["Instances"]]
        if ids:
            terminate(at, ids)


_register("AWS::CloudFormation::CustomResource", _custom, _cleanup)


def _nested(props: dict[str, Any], at: Place) -> Made:
    """A stack in a stack, made at once: its parent waits for it anyway."""
    bucket, _, key = props["TemplateURL"].split("/", 3)[3].partition("/")
    body = at.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read().decode()
    name = f"{at.stack}-{at.logical}-{uuid.uuid4().hex[:12].upper()}"
    stack = at.engine.nested(
        name, body, {key: str(value) for key, value in props.get("Parameters", {}).items()}, at.tags
    )
    if stack.status != "CREATE_COMPLETE":
        failed = next(event for event in reversed(stack.events) if event["ResourceStatus"] == "CREATE_FAILED")
        raise ValueError(f"Embedded stack {stack.id} was not successfully created: {failed['ResourceStatusReason']}")
    return stack.id, {f"Outputs.{row['OutputKey']}": row["OutputValue"] for row in stack.outputs}


_register(
    "AWS::CloudFormation::Stack", _nested, lambda physical, props, at: at.engine.remove_nested(physical), seconds=120.0
)


def _wait(props: dict[str, Any], at: Place) -> Made:
    """The head node is up and has signalled."""
    return at.unique, {"Data": json.dumps({"head": "configured"})}


def _start_static_nodes(at: Place) -> None:
    """The head node starts the nodes that are always up."""
    stack = at.engine.named(at.stack)
    if "ResourcesS3Bucket" not in stack.values:
        return
    key = f"{stack.values['ArtifactS3RootDirectory']}/configs/cluster-config.yaml"
    text = at.client("s3").get_object(Bucket=stack.values["ResourcesS3Bucket"], Key=key)["Body"].read()
    for queue in yaml.safe_load(text)["Scheduling"]["SlurmQueues"]:
        for resource in queue["ComputeResources"]:
            template = next(
                (
                    id
                    for id, data in at.engine.launch_data.items()
                    if _is_for(data, at.stack, queue["Name"], resource["Name"])
                ),
                None,
            )
            if template and resource.get("MinCount", 0):
                launch(at, template, {}, resource["MinCount"])  # no stack makes them, so none tags them


def _is_for(data: dict[str, Any], cluster: str, queue: str, resource: str) -> bool:
    specs = data.get("TagSpecifications", [])
    tags = {tag["Key"]: tag["Value"] for spec in specs for tag in spec.get("Tags", [])}
    wanted = {
        "parallelcluster:cluster-name": cluster,
        "parallelcluster:queue-name": queue,
        "parallelcluster:compute-resource-name": resource,
    }
    return wanted.items() <= tags.items()


HANDLERS["AWS::CloudFormation::WaitCondition"] = Handler(_wait, lambda physical, props, at: None, 420.0)


def _placement_group(props: dict[str, Any], at: Place) -> Made:
    name = at.unique
    at.client("ec2").create_placement_group(GroupName=name, Strategy=props.get("Strategy", "cluster"))
    return name, {"GroupName": name}


_register(
    "AWS::EC2::PlacementGroup", _placement_group,
    lambda physical, props, at: at.client("ec2").delete_placement_group(GroupName=physical),
)  # fmt: skip


def _volume(props: dict[str, Any], at: Place) -> Made:
    made = at.client("ec2").create_volume(
        AvailabilityZone=props["AvailabilityZone"], Size=int(props["Size"]), Encrypted=bool(props.get("Encrypted")),
        **_tags(props, at, "volume"),
    )  # fmt: skip
    return made["VolumeId"], {}


_register("AWS::EC2::Volume", _volume, lambda physical, props, at: at.client("ec2").delete_volume(VolumeId=physical))
recorded("AWS::EFS::FileSystem", seconds=60.0, Arn=_arn("elasticfilesystem"))
recorded("AWS::EFS::MountTarget", seconds=90.0)
