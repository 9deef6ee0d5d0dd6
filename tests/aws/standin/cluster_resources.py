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
recorded("AWS::Route53::RecordSet", seconds=60.0)
recorded("AWS::CloudFormation::WaitConditionHandle")


def _table(props: dict[str, Any], at: Place) -> Made:
    keys = ("TableName", "BillingMode", "AttributeDefinitions", "KeySchema", "GlobalSecondaryIndexes")
    wanted = {key: props[key] for key in keys if key in props}
    made = at.client("dynamodb").create_table(**wanted, Tags=at.tag_list)["TableDescription"]
    return made["TableName"], {"Arn": made["TableArn"]}


def _drop_table(physical: str, props: dict[str, Any], at: Place) -> None:
    at.engine.heads.pop(at.stack, None)
    at.client("dynamodb").delete_table(TableName=physical)


_register("AWS::DynamoDB::Table", _table, _drop_table, seconds=30.0)


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
    reservation = _reservation(at, data, subnet, count)
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
    if reservation:
        at.engine.reserved.setdefault(reservation, []).extend(row["InstanceId"] for row in made)
    return made


def _reservation(at: Place, data: dict[str, Any], subnet: str, count: int) -> str:
    """The reservation that a launch template names; what EC2 refuses is refused."""
    target = data.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget", {})
    id = target.get("CapacityReservationId")
    if not id:
        return ""
    ec2 = at.client("ec2")
    (row,) = ec2.describe_capacity_reservations(CapacityReservationIds=[id])["CapacityReservations"]
    zone = ec2.describe_subnets(SubnetIds=[subnet])["Subnets"][0]["AvailabilityZone"]
    for name, wanted in (("InstanceType", data["InstanceType"]), ("AvailabilityZone", zone)):
        if row[name] != wanted:
            raise NoCapacity(f"The {name} {wanted} does not match the Capacity Reservation {id} ({row[name]}).")
    if row["AvailableInstanceCount"] < count:
        raise NoCapacity(f"ReservationCapacityExceeded: {id} has {row['AvailableInstanceCount']} instances left.")
    return str(id)


class NoCapacity(Exception):
    pass


def _instance(props: dict[str, Any], at: Place) -> Made:
    own = {tag["Key"]: tag["Value"] for tag in props.get("Tags", [])}
    volumes_too = bool(_booleans(props.get("PropagateTagsToVolumeOnCreation", False)))
    template = props["LaunchTemplate"]["LaunchTemplateId"]
    (made,) = launch(at, template, {**at.tags, **own}, volumes_too=volumes_too)
    address, name = made["PrivateIpAddress"], made["PrivateDnsName"]
    if {"Key": "parallelcluster:node-type", "Value": "HeadNode"} in made["Tags"]:
        start_fleet(at)
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
        page = s3.list_object_versions(Bucket=bucket, Prefix=props["ArtifactS3RootDirectory"])
        for row in [*page.get("Versions", []), *page.get("DeleteMarkers", [])]:
            s3.delete_object(Bucket=bucket, Key=row["Key"], VersionId=row["VersionId"])
    if props.get("Action") == "TERMINATE_EC2_INSTANCES":
        _terminate_nodes(at, props["StackName"])
        at.engine.heads.pop(props["StackName"], None)


_register("AWS::CloudFormation::CustomResource", _custom, _cleanup)


def _nested_body(props: dict[str, Any], at: Place) -> str:
    bucket, _, key = props["TemplateURL"].split("/", 3)[3].partition("/")
    body: bytes = at.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    return body.decode()


def _update_nested(physical: str, props: dict[str, Any], at: Place) -> None:
    given = {key: str(value) for key, value in props.get("Parameters", {}).items()}
    at.engine.update_nested(physical, _nested_body(props, at), given, at.tags)


def _nested(props: dict[str, Any], at: Place) -> Made:
    """A stack in a stack, made at once: its parent waits for it anyway."""
    body = _nested_body(props, at)
    name = f"{at.stack}-{at.logical}-{uuid.uuid4().hex[:12].upper()}"
    stack = at.engine.nested(
        name, body, {key: str(value) for key, value in props.get("Parameters", {}).items()}, at.tags
    )
    if stack.status != "CREATE_COMPLETE":
        failed = next(event for event in reversed(stack.events) if event["ResourceStatus"] == "CREATE_FAILED")
        raise ValueError(f"Embedded stack {stack.id} was not successfully created: {failed['ResourceStatusReason']}")
    return stack.id, {f"Outputs.{row['OutputKey']}": row["OutputValue"] for row in stack.outputs}


_register(
    "AWS::CloudFormation::Stack", _nested, lambda physical, props, at: at.engine.remove_nested(physical),
    seconds=120.0, update=_update_nested, mutable=frozenset({"Tags", "TemplateURL", "Parameters"}),
)  # fmt: skip


def _wait(props: dict[str, Any], at: Place) -> Made:
    """The head node is up and has signalled."""
    return at.unique, {"Data": json.dumps({"head": "configured"})}


def start_fleet(at: Place) -> None:
    """What the head node does when it is up: its nodes start, and its table says so."""
    set_fleet(at, "RUNNING")
    at.engine.heads[at.stack] = at
    reconcile(at)


def set_fleet(at: Place, status: str) -> None:
    item = {"Id": {"S": "COMPUTE_FLEET"}, "Data": {"M": {"status": {"S": status}}}}
    at.client("dynamodb").put_item(TableName=f"parallelcluster-{at.stack}", Item=item)


def fleet(at: Place) -> str:
    key = {"Id": {"S": "COMPUTE_FLEET"}}
    row = at.client("dynamodb").get_item(TableName=f"parallelcluster-{at.stack}", Key=key)
    return str(row["Item"]["Data"]["M"]["status"]["S"])


def manage_fleet(at: Place) -> None:
    """What clustermgtd does once a minute: stop or start the nodes as it was asked to."""
    status = fleet(at)
    if status == "STOP_REQUESTED":
        _terminate_nodes(at, at.stack)
        set_fleet(at, "STOPPED")
    elif status == "START_REQUESTED":
        set_fleet(at, "RUNNING")
        reconcile(at)


def reconcile(at: Place) -> None:
    """Start the nodes that are always up and not there; end those that the configuration no longer has."""
    stack = at.engine.named(at.stack)
    if "ResourcesS3Bucket" not in stack.values:
        return
    key = f"{stack.values['ArtifactS3RootDirectory']}/configs/cluster-config.yaml"
    text = at.client("s3").get_object(Bucket=stack.values["ResourcesS3Bucket"], Key=key)["Body"].read()
    wanted = {
        (queue["Name"], resource["Name"]): resource.get("MinCount", 0)
        for queue in yaml.safe_load(text)["Scheduling"]["SlurmQueues"]
        for resource in queue["ComputeResources"]
    }
    there = _nodes(at, at.stack)
    for place, ids in there.items():
        if extra := ids[wanted.get(place, 0) :]:
            terminate(at, extra)
    for (queue, name), count in wanted.items():
        missing = count - len(there.get((queue, name), []))
        templates = (id for id, data in at.engine.launch_data.items() if _is_for(data, at.stack, queue, name))
        if missing > 0 and (template := next(templates, None)):
            try:
                launch(at, template, {}, missing)  # no stack makes them, so none tags them
            except NoCapacity as error:
                _log(at, f"ERROR - Encountered exception when launching instances for nodes: {error}")


def _nodes(at: Place, cluster: str) -> dict[tuple[str, str], list[str]]:
    """(queue, compute resource) -> instances that are there."""
    filters = [
        {"Name": "tag:parallelcluster:cluster-name", "Values": [cluster]},
        {"Name": "tag:parallelcluster:node-type", "Values": ["Compute"]},
        {"Name": "instance-state-name", "Values": ["pending", "running"]},
    ]
    nodes: dict[tuple[str, str], list[str]] = {}
    for row in at.client("ec2").describe_instances(Filters=filters)["Reservations"]:
        for one in row["Instances"]:
            tags = {tag["Key"]: tag["Value"] for tag in one["Tags"]}
            place = (tags["parallelcluster:queue-name"], tags["parallelcluster:compute-resource-name"])
            nodes.setdefault(place, []).append(one["InstanceId"])
    return nodes


def _terminate_nodes(at: Place, cluster: str) -> None:
    if ids := [id for group in _nodes(at, cluster).values() for id in group]:
        terminate(at, ids)


def _log(at: Place, line: str) -> None:
    """A line in the log of the daemon that starts nodes, as the head node sends it to CloudWatch."""
    logs, stream = at.client("logs"), "ip-10-0-0-1.i-00000000000000001.clustermgtd"
    groups = logs.describe_log_groups(logGroupNamePrefix=f"/aws/parallelcluster/{at.stack}-")["logGroups"]
    group = groups[0]["logGroupName"] if groups else f"/aws/parallelcluster/{at.stack}-standin"
    if not groups:
        logs.create_log_group(logGroupName=group, tags=at.tags)
    logs.create_log_stream(logGroupName=group, logStreamName=stream)
    moment = int(at.engine.clock.now() * 1000)
    logs.put_log_events(logGroupName=group, logStreamName=stream, logEvents=[{"timestamp": moment, "message": line}])


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
