"""What a plan's stacks would have made, made in the extended moto through the ordinary AWS calls: subnets, security
groups, file systems, reservations, images, secrets. ParallelCluster's validators then look at real ids. A plan may be
built more than once; two tests share one server."""

from __future__ import annotations

import contextlib
import functools
import uuid
from collections.abc import Mapping
from typing import Any

import boto3

from judges.pcluster import processes
from trainwright.platforms.plan.tree import ClusterPlan
from trainwright.platforms.wiring import StackPlan
from trainwright.spec.model import Queue


class World:
    """One region of the extended moto, filled in for one plan."""

    def __init__(self, endpoint: str, plan: ClusterPlan) -> None:
        self.plan = plan
        self.region = plan.spec.region or "us-east-1"
        self.endpoint = endpoint
        self.made: dict[str, dict[str, str]] = {}

    @functools.cache  # noqa: B019  # a world lives as long as one test
    def client(self, service: str) -> Any:
        return boto3.client(
            service,
            region_name=self.region,
            endpoint_url=self.endpoint,
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
        )

    @property
    def platform(self) -> str:
        """What EC2 calls the operating system a reservation is for."""
        return "Red Hat Enterprise Linux" if str(self.plan.spec.software.os).startswith("rhel") else "Linux/UNIX"

    def build(self) -> Mapping[str, Mapping[str, str]]:
        """Make everything; the outputs of each stack, by its key."""
        makers = {
            "network": self.network,
            "bucket": self.bucket,
            "lustre": self.lustre,
            "openzfs": self.openzfs,
            "accounting": self.accounting,
            "directory": self.directory,
        }
        for stack in self.plan.stacks:
            self.made[stack.key] = makers[stack.template](stack)
        self.key_pair()
        self.image()
        self.linked_buckets()
        for queue in self.plan.spec.queues:
            self.reservation(queue)
        processes().fresh = True
        return self.made

    def network(self, stack: StackPlan) -> dict[str, str]:
        ec2 = self.client("ec2")
        vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        for flag in ("EnableDnsSupport", "EnableDnsHostnames"):
            ec2.modify_vpc_attribute(VpcId=vpc, **{flag: {"Value": True}})
        for block in ("10.1.0.0/16", "10.2.0.0/16"):
            ec2.associate_vpc_cidr_block(VpcId=vpc, CidrBlock=block)
        zones = [z["ZoneName"] for z in ec2.describe_availability_zones()["AvailabilityZones"]]
        self.zone = zones[0]
        public = self._subnet(vpc, "10.0.0.0/20", zones[0])
        ec2.modify_subnet_attribute(SubnetId=public, MapPublicIpOnLaunch={"Value": True})
        ranges = ("10.1.0.0/17", "10.1.128.0/17", "10.2.0.0/17")
        privates = [self._subnet(vpc, cidr, zone) for cidr, zone in zip(ranges, zones, strict=False)]
        self._routes(vpc, public, privates)
        group = self._group(vpc, "nodes")
        peer = [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}]
        ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=peer)
        ec2.authorize_security_group_egress(GroupId=group, IpPermissions=peer)
        return {
            "Vpc": vpc,
            "PublicSubnet": public,
            "PrivateSubnet": privates[0],
            "PrivateSubnets": ",".join(privates),
            **{f"PrivateSubnet{number}": subnet for number, subnet in enumerate(privates, 1)},
            "SecurityGroup": group,
        }

    def _subnet(self, vpc: str, cidr: str, zone: str) -> str:
        made = self.client("ec2").create_subnet(VpcId=vpc, CidrBlock=cidr, AvailabilityZone=zone)
        subnet: str = made["Subnet"]["SubnetId"]
        return subnet

    def _routes(self, vpc: str, public: str, privates: list[str]) -> None:
        ec2 = self.client("ec2")
        internet = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
        ec2.attach_internet_gateway(InternetGatewayId=internet, VpcId=vpc)
        address = ec2.allocate_address(Domain="vpc")["AllocationId"]
        nat = ec2.create_nat_gateway(SubnetId=public, AllocationId=address)["NatGateway"]["NatGatewayId"]
        for subnets, target in (([public], {"GatewayId": internet}), (privates, {"NatGatewayId": nat})):
            table = ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
            ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", **target)
            for subnet in subnets:
                ec2.associate_route_table(RouteTableId=table, SubnetId=subnet)

    def _group(self, vpc: str, name: str) -> str:
        made = self.client("ec2").create_security_group(
            GroupName=f"{self.plan.spec.name}-{name}", Description=name, VpcId=vpc
        )
        group: str = made["GroupId"]
        return group

    def bucket(self, stack: StackPlan) -> dict[str, str]:
        name = f"{self.plan.spec.name}-{uuid.uuid4().hex[:12]}"
        self._bucket(name)
        for file, key in self.plan.scripts.items():
            self.client("s3").put_object(Bucket=name, Key=key, Body=self.plan.content(file))
        return {"BucketName": name}

    def _bucket(self, name: str) -> None:
        place = {} if self.region == "us-east-1" else {"LocationConstraint": self.region}
        extra = {"CreateBucketConfiguration": place} if place else {}
        with contextlib.suppress(self.client("s3").exceptions.BucketAlreadyOwnedByYou):
            self.client("s3").create_bucket(Bucket=name, **extra)

    def lustre(self, stack: StackPlan) -> dict[str, str]:
        configuration = {"DeploymentType": stack.parameters["DeploymentType"]}
        made = self._file_system(stack, "LUSTRE", {"LustreConfiguration": configuration}, [("tcp", 988), ("tcp", 1018)])
        return {"FileSystemId": made["FileSystemId"]}

    def openzfs(self, stack: StackPlan) -> dict[str, str]:
        configuration = {
            "DeploymentType": stack.parameters["DeploymentType"],
            "ThroughputCapacity": int(stack.parameters["Throughput"]),
        }
        ports = [(protocol, port) for protocol in ("tcp", "udp") for port in (111, 2049, 20001, 20002, 20003)]
        made = self._file_system(stack, "OPENZFS", {"OpenZFSConfiguration": configuration}, ports)
        return {"RootVolumeId": made["OpenZFSConfiguration"]["RootVolumeId"]}

    def _file_system(
        self, stack: StackPlan, kind: str, configuration: dict[str, Any], ports: list[tuple[str, int]]
    ) -> dict[str, Any]:
        network = self.made["network"]
        group = self._group(network["Vpc"], stack.key)
        rules = [
            {
                "IpProtocol": protocol,
                "FromPort": port,
                "ToPort": port,
                "UserIdGroupPairs": [{"GroupId": peer}],
            }
            for protocol, port in ports
            for peer in (network["SecurityGroup"], group)
        ]
        self.client("ec2").authorize_security_group_ingress(GroupId=group, IpPermissions=rules)
        made = self.client("fsx").create_file_system(
            FileSystemType=kind,
            StorageCapacity=int(stack.parameters["Capacity"]),
            SubnetIds=[network["PrivateSubnet"]],
            SecurityGroupIds=[group],
            **configuration,
        )
        system: dict[str, Any] = made["FileSystem"]
        return system

    def accounting(self, stack: StackPlan) -> dict[str, str]:
        name = f"{self.plan.spec.name}-{uuid.uuid4().hex[:12]}"
        secret = self.client("secretsmanager").create_secret(Name=name, SecretString="x" * 40)
        group = self._group(self.made["network"]["Vpc"], "accounting-client")
        return {
            "Uri": "slurm.cluster-abc.rds.amazonaws.com:3306",
            "UserName": "slurm",
            "PasswordSecretArn": secret["ARN"],
            "ClientSecurityGroup": group,
        }

    def directory(self, stack: StackPlan) -> dict[str, str]:
        name = f"{self.plan.spec.name}-{uuid.uuid4().hex[:12]}"
        secret = self.client("secretsmanager").create_secret(Name=name, SecretString="x" * 40)
        return {
            "Uri": "ldaps://directory.a.internal",
            "Base": "dc=cluster,dc=internal",
            "Reader": "cn=reader,dc=cluster,dc=internal",
            "PasswordSecretArn": secret["ARN"],
            "Certificate": "s3://a-bucket/trainwright/a/directory/ca.pem",
        }

    def key_pair(self) -> None:
        key = self.plan.spec.head.key
        known = [k["KeyName"] for k in self.client("ec2").describe_key_pairs()["KeyPairs"]]
        for name, kind in ((key, "ed25519"), ("an-rsa-key", "rsa")):
            if name is not None and name not in known:
                self.client("ec2").create_key_pair(KeyName=name, KeyType=kind)

    def image(self) -> None:
        image = self.plan.spec.software.image
        if image.startswith("ami-"):
            tags = {"version": "3.16.1", "build_status": "available", "os": self.plan.spec.software.os}
            named = [{"Key": f"parallelcluster:{key}", "Value": value} for key, value in tags.items()]
            self.client("ec2").create_tags(Resources=[image], Tags=named)

    def linked_buckets(self) -> None:
        for item in self.plan.spec.storage:
            if item.bucket is not None:
                self._bucket(item.bucket.removeprefix("s3://").split("/")[0])
        for script in [s for q in self.plan.spec.queues for s in q.scripts] + list(self.plan.spec.head.scripts):
            bucket, _, key = script.source.removeprefix("s3://").partition("/")
            self._bucket(bucket)
            self.client("s3").put_object(Bucket=bucket, Key=key, Body=b"#!/bin/bash\n")

    def reservation(self, queue: Queue) -> None:
        kind, target = queue.capacity.kind, queue.capacity.id
        if kind not in ("reservation", "block", "group") or target is None or queue.count is None:
            return
        group = target.rpartition("/")[2]
        tokens = {
            "reservation": [f"{target}/default/"],
            "block": [f"{target}/capacity-block/"],
            "group": [f"cr-{n:017x}/default/{group}" for n in (1, 2)],
        }
        for token in tokens[kind]:
            self.client("ec2").create_capacity_reservation(
                ClientToken=token,
                InstanceType=queue.instance,
                InstancePlatform=self.platform,
                AvailabilityZone=self.zone,
                InstanceCount=queue.count.max // len(tokens[kind]),
                InstanceMatchCriteria="targeted",
            )
        if kind == "group":
            self.client("resource-groups").create_group(
                Name=group,
                Configuration=[
                    {"Type": "AWS::EC2::CapacityReservationPool"},
                    {
                        "Type": "AWS::ResourceGroups::Generic",
                        "Parameters": [{"Name": "allowed-resource-types", "Values": ["AWS::EC2::CapacityReservation"]}],
                    },
                ],
            )
