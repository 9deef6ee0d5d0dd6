"""How a cluster's resources stand to the world, asked of each one through its own API: tags, who may come in, how
buckets, disks and file systems are kept, which metadata service answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from standin.outside import Server

TAG = "trainwright:cluster"


def tagged(server: Server, region: str) -> Iterator[tuple[str, str, dict[str, str]]]:
    """(kind, id, tags) of every resource in our networks and of all that has no network. What AWS adds by itself
    (main route tables, default groups, interfaces of gateways and file systems) takes no tags of ours."""
    ec2 = server.client("ec2", region)
    vpcs = [row for row in ec2.describe_vpcs()["Vpcs"] if not row["IsDefault"]]
    inside = [{"Name": "vpc-id", "Values": [row["VpcId"] for row in vpcs]}]
    routes = ec2.describe_route_tables(Filters=inside)["RouteTables"]
    groups = ec2.describe_security_groups(Filters=inside)["SecurityGroups"]
    cards = ec2.describe_network_interfaces(Filters=inside)["NetworkInterfaces"]
    attached = [{"Name": "attachment.vpc-id", "Values": [row["VpcId"] for row in vpcs]}]
    kinds: dict[str, tuple[str, list[dict[str, Any]]]] = {
        "vpc": ("VpcId", vpcs),
        "subnet": ("SubnetId", ec2.describe_subnets(Filters=inside)["Subnets"]),
        "internet gateway": ("InternetGatewayId", ec2.describe_internet_gateways(Filters=attached)["InternetGateways"]),
        "route table": (
            "RouteTableId",
            [row for row in routes if not any(a.get("Main") for a in row.get("Associations", []))],
        ),
        "nat gateway": (
            "NatGatewayId",
            [row for row in ec2.describe_nat_gateways()["NatGateways"] if row["State"] == "available"],
        ),
        "address": ("AllocationId", ec2.describe_addresses()["Addresses"]),
        "endpoint": ("VpcEndpointId", ec2.describe_vpc_endpoints(Filters=inside)["VpcEndpoints"]),
        "security group": ("GroupId", [row for row in groups if row["GroupName"] != "default"]),
        "network interface": (
            "NetworkInterfaceId",
            [row for row in cards if "headnode" in row["Description"].lower().replace(" ", "")],
        ),
        "flow log": ("FlowLogId", ec2.describe_flow_logs()["FlowLogs"]),
        "key pair": ("KeyName", ec2.describe_key_pairs()["KeyPairs"]),
        "instance": ("InstanceId", instances(server, region)),
        "volume": ("VolumeId", ec2.describe_volumes()["Volumes"]),
        "placement group": ("GroupName", ec2.describe_placement_groups()["PlacementGroups"]),
    }
    for kind, (id, rows) in kinds.items():
        yield from ((kind, row[id], _tags(row.get("Tags") or row.get("TagSet", []))) for row in rows)
    yield from _outside_ec2(server, region)


def _outside_ec2(server: Server, region: str) -> Iterator[tuple[str, str, dict[str, str]]]:
    names = ("fsx", "logs", "iam", "s3", "secretsmanager", "rds")
    fsx, logs, iam, s3, secrets, rds = (server.client(name, region) for name in names)
    for row in fsx.describe_file_systems()["FileSystems"]:
        yield "file system", row["FileSystemId"], _tags(row["Tags"])
    for row in fsx.describe_data_repository_associations()["Associations"]:
        yield "link", row["AssociationId"], _tags(row["Tags"])
    for row in logs.describe_log_groups()["logGroups"]:
        yield "log group", row["logGroupName"], logs.list_tags_log_group(logGroupName=row["logGroupName"])["tags"]
    for row in iam.list_roles()["Roles"]:
        yield "role", row["RoleName"], _tags(iam.list_role_tags(RoleName=row["RoleName"])["Tags"])
    for bucket in own_buckets(server, region):
        yield "bucket", bucket, _tags(s3.get_bucket_tagging(Bucket=bucket)["TagSet"])
    for row in secrets.list_secrets()["SecretList"]:
        yield "secret", row["ARN"], _tags(row.get("Tags", []))
    for row in rds.describe_db_clusters()["DBClusters"]:
        yield "database", row["DBClusterIdentifier"], _tags(row["TagList"])
    for row in rds.describe_db_instances()["DBInstances"]:
        yield "database instance", row["DBInstanceIdentifier"], _tags(row["TagList"])


def open_rules(server: Server, region: str, named: tuple[str, ...]) -> list[str]:
    """Rules that let anything in but groups of the same network and the addresses that the spec names."""
    ec2 = server.client("ec2", region)
    vpcs = {row["VpcId"] for row in ec2.describe_vpcs()["Vpcs"] if not row["IsDefault"]}
    groups = [row for row in ec2.describe_security_groups()["SecurityGroups"] if row["VpcId"] in vpcs]
    own = {(row["VpcId"], row["GroupId"]) for row in groups}
    open_doors = []
    for group in groups:
        for rule in group["IpPermissions"]:
            sources = [row["CidrIp"] for row in rule.get("IpRanges", [])]
            sources += [row["CidrIpv6"] for row in rule.get("Ipv6Ranges", [])]
            sources += [row["PrefixListId"] for row in rule.get("PrefixListIds", [])]
            sources = [source for source in sources if source not in named]
            pairs = [row["GroupId"] for row in rule.get("UserIdGroupPairs", [])]
            sources += [pair for pair in pairs if (group["VpcId"], pair) not in own]
            open_doors += [f"{group['GroupName']} lets {source} in" for source in sources]
    return open_doors


def weak_buckets(server: Server, region: str) -> list[str]:
    """What a bucket of ours lacks: all public access blocked, encryption, TLS for everyone."""
    s3, weak = server.client("s3", region), []
    for bucket in own_buckets(server, region):
        block = s3.get_public_access_block(Bucket=bucket)["PublicAccessBlockConfiguration"]
        rules = s3.get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]["Rules"]
        statements = json.loads(s3.get_bucket_policy(Bucket=bucket)["Policy"])["Statement"]
        switches = ("BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets")
        if not all(block.get(switch) for switch in switches):
            weak.append(f"{bucket} can be public")
        if not any(rule["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"] for rule in rules):
            weak.append(f"{bucket} is not encrypted")
        if not any(_refuses_plain_text(statement, bucket) for statement in statements):
            weak.append(f"{bucket} answers without TLS")
    return weak


def _refuses_plain_text(statement: dict[str, Any], bucket: str) -> bool:
    everyone = statement["Principal"] in ("*", {"AWS": "*"}) and statement["Effect"] == "Deny"
    places = {f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"} <= set(statement["Resource"])
    secure = statement.get("Condition", {}).get("Bool", {}).get("aws:SecureTransport")
    return everyone and places and statement["Action"] == "s3:*" and str(secure).lower() == "false"


def own_buckets(server: Server, region: str) -> list[str]:
    """The buckets that stacks of ours made."""
    stacks = server.client("cloudformation", region)
    names = [row["StackName"] for row in stacks.describe_stacks()["Stacks"]]
    rows = [row for name in names for row in stacks.describe_stack_resources(StackName=name)["StackResources"]]
    return [row["PhysicalResourceId"] for row in rows if row["ResourceType"] == "AWS::S3::Bucket"]


def instances(server: Server, region: str) -> list[dict[str, Any]]:
    rows = server.client("ec2", region).describe_instances()["Reservations"]
    every = [instance for row in rows for instance in row["Instances"]]
    return [instance for instance in every if instance["State"]["Name"] != "terminated"]


def _tags(rows: list[dict[str, str]]) -> dict[str, str]:
    return {row["Key"]: row["Value"] for row in rows}
