"""How each resource type of CloudFormation is made and deleted, in moto and in our FSx. A type without a handler here
fails its stack: nothing is skipped in silence."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from standin.fsx import Fsx, FsxError


@dataclass(frozen=True)
class Place:
    """Where a resource is made: the region's services, the stack and the resource's name in it."""

    region: str
    account: str
    client: Callable[[str], Any]
    fsx: Fsx
    stack: str
    logical: str
    tags: dict[str, str]
    engine: Any = None

    @property
    def tag_list(self) -> list[dict[str, str]]:
        return [{"Key": key, "Value": value} for key, value in self.tags.items()]

    @property
    def unique(self) -> str:
        return f"{self.stack}-{self.logical}-{uuid.uuid4().hex[:12]}"


Made = tuple[str, dict[str, Any]]
Creator = Callable[[dict[str, Any], Place], Made]
Deleter = Callable[[str, dict[str, Any], Place], None]


@dataclass(frozen=True)
class Handler:
    create: Creator
    delete: Deleter
    seconds: float = 10.0
    # Properties that change in place; a change of any other one replaces the resource.
    mutable: frozenset[str] = frozenset({"Tags"})
    deletion: float = 0.0  # seconds until it is gone
    update: Callable[[str, dict[str, Any], Place], None] | None = None


HANDLERS: dict[str, Handler] = {}


def _nothing(physical: str, props: dict[str, Any], at: Place) -> None:
    pass


def _register(kind: str, create: Creator, delete: Deleter = _nothing, seconds: float = 10.0, **more: Any) -> None:
    HANDLERS[kind] = Handler(create, delete, seconds, **more)


def _booleans(value: Any) -> Any:
    """CloudFormation takes "true" where an API wants a boolean."""
    if isinstance(value, dict):
        return {key: _booleans(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_booleans(inner) for inner in value]
    return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value


def _tags(props: dict[str, Any], at: Place, kind: str) -> dict[str, Any]:
    own = {tag["Key"]: tag["Value"] for tag in props.get("Tags", [])}
    merged = [{"Key": key, "Value": value} for key, value in {**at.tags, **own}.items()]
    return {"TagSpecifications": [{"ResourceType": kind, "Tags": merged}]} if merged else {}


def _ec2(
    kind: str, call: str, answer: str, id_field: str, delete: str, tag: str, keys: tuple[str, ...], **more: Any
) -> None:
    """A plain EC2 resource: one call makes it, one deletes it."""

    def make(props: dict[str, Any], at: Place) -> Made:
        wanted = {key: _booleans(props[key]) for key in keys if key in props}
        made = getattr(at.client("ec2"), call)(**wanted, **(_tags(props, at, tag) if tag else {}))[answer]
        return made[id_field], made

    def remove(physical: str, props: dict[str, Any], at: Place) -> None:
        getattr(at.client("ec2"), delete)(**{id_field: physical})

    _register(kind, make, remove, **more)


def _vpc(props: dict[str, Any], at: Place) -> Made:
    ec2 = at.client("ec2")
    vpc = ec2.create_vpc(CidrBlock=props["CidrBlock"], **_tags(props, at, "vpc"))["Vpc"]["VpcId"]
    for flag in ("EnableDnsSupport", "EnableDnsHostnames"):
        ec2.modify_vpc_attribute(VpcId=vpc, **{flag: {"Value": bool(props.get(flag, True))}})
    _open_default_group(ec2, vpc)
    return vpc, {"VpcId": vpc}


def _open_default_group(ec2: Any, vpc: str) -> None:
    """As AWS makes it: its members reach each other. moto leaves that rule out."""
    only = [{"Name": "vpc-id", "Values": [vpc]}, {"Name": "group-name", "Values": ["default"]}]
    [group] = ec2.describe_security_groups(Filters=only)["SecurityGroups"]
    itself = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group["GroupId"]}]}
    ec2.authorize_security_group_ingress(GroupId=group["GroupId"], IpPermissions=[itself])


def _delete_vpc(physical: str, props: dict[str, Any], at: Place) -> None:
    ec2 = at.client("ec2")
    inside = [{"Name": "vpc-id", "Values": [physical]}]
    groups = [g for g in ec2.describe_security_groups(Filters=inside)["SecurityGroups"] if g["GroupName"] != "default"]
    if groups or ec2.describe_subnets(Filters=inside)["Subnets"]:
        raise ValueError(f"The vpc '{physical}' has dependencies and cannot be deleted. (DependencyViolation)")
    ec2.delete_vpc(VpcId=physical)


_register("AWS::EC2::VPC", _vpc, _delete_vpc)


def _cidr(props: dict[str, Any], at: Place) -> Made:
    made = at.client("ec2").associate_vpc_cidr_block(VpcId=props["VpcId"], CidrBlock=props["CidrBlock"])
    return made["CidrBlockAssociation"]["AssociationId"], {}


_register(
    "AWS::EC2::VPCCidrBlock", _cidr,
    lambda physical, props, at: at.client("ec2").disassociate_vpc_cidr_block(AssociationId=physical),
)  # fmt: skip


def _subnet(props: dict[str, Any], at: Place) -> Made:
    ec2 = at.client("ec2")
    keys = ("VpcId", "CidrBlock", "AvailabilityZone", "AvailabilityZoneId")
    wanted = {key: props[key] for key in keys if key in props}
    zones = ec2.describe_availability_zones()["AvailabilityZones"]
    known = {zone["ZoneName"] for zone in zones} | {zone["ZoneId"] for zone in zones}
    for key in ("AvailabilityZone", "AvailabilityZoneId"):
        if key in wanted and wanted[key] not in known:
            raise ValueError(
                f"Value ({wanted[key]}) for parameter availabilityZone is invalid. (InvalidParameterValue)"
            )
    made = ec2.create_subnet(**wanted, **_tags(props, at, "subnet"))["Subnet"]
    public = bool(props.get("MapPublicIpOnLaunch", False))
    ec2.modify_subnet_attribute(SubnetId=made["SubnetId"], MapPublicIpOnLaunch={"Value": public})
    return made["SubnetId"], made


def _delete_subnet(physical: str, props: dict[str, Any], at: Place) -> None:
    ec2 = at.client("ec2")
    users = ec2.describe_network_interfaces(Filters=[{"Name": "subnet-id", "Values": [physical]}])["NetworkInterfaces"]
    if users:
        raise ValueError(f"The subnet '{physical}' has dependencies and cannot be deleted. (DependencyViolation)")
    ec2.delete_subnet(SubnetId=physical)


_register("AWS::EC2::Subnet", _subnet, _delete_subnet)
_ec2(
    "AWS::EC2::InternetGateway", "create_internet_gateway", "InternetGateway", "InternetGatewayId",
    "delete_internet_gateway", "internet-gateway", (),
)  # fmt: skip
_ec2("AWS::EC2::RouteTable", "create_route_table", "RouteTable", "RouteTableId", "delete_route_table", "route-table",
     ("VpcId",))  # fmt: skip


def _attach(props: dict[str, Any], at: Place) -> Made:
    at.client("ec2").attach_internet_gateway(VpcId=props["VpcId"], InternetGatewayId=props["InternetGatewayId"])
    return f"IGW|{props['VpcId']}", {}


_register(
    "AWS::EC2::VPCGatewayAttachment", _attach,
    lambda physical, props, at: at.client("ec2").detach_internet_gateway(
        VpcId=props["VpcId"], InternetGatewayId=props["InternetGatewayId"]
    ),
)  # fmt: skip


def _route(props: dict[str, Any], at: Place) -> Made:
    at.client("ec2").create_route(**props)
    return f"{props['RouteTableId']}|{props['DestinationCidrBlock']}", {}


_register(
    "AWS::EC2::Route", _route,
    lambda physical, props, at: at.client("ec2").delete_route(
        RouteTableId=props["RouteTableId"], DestinationCidrBlock=props["DestinationCidrBlock"]
    ),
)  # fmt: skip


def _associate(props: dict[str, Any], at: Place) -> Made:
    return at.client("ec2").associate_route_table(**props)["AssociationId"], {}


_register(
    "AWS::EC2::SubnetRouteTableAssociation", _associate,
    lambda physical, props, at: at.client("ec2").disassociate_route_table(AssociationId=physical),
)  # fmt: skip


def _address(props: dict[str, Any], at: Place) -> Made:
    made = at.client("ec2").allocate_address(Domain="vpc", **_tags(props, at, "elastic-ip"))
    return made["PublicIp"], {"AllocationId": made["AllocationId"], "PublicIp": made["PublicIp"]}


def _release(physical: str, props: dict[str, Any], at: Place) -> None:
    (row,) = at.client("ec2").describe_addresses(PublicIps=[physical])["Addresses"]
    at.client("ec2").release_address(AllocationId=row["AllocationId"])


_register("AWS::EC2::EIP", _address, _release)


def _nat(props: dict[str, Any], at: Place) -> Made:
    wanted = {key: props[key] for key in ("AllocationId", "SubnetId")}
    made = at.client("ec2").create_nat_gateway(**wanted, **_tags(props, at, "natgateway"))["NatGateway"]
    from moto.ec2.models import ec2_backends

    for address in made["NatGatewayAddresses"]:  # moto gives the interface neither type nor description
        interface = ec2_backends[at.account][at.region].get_network_interface(address["NetworkInterfaceId"])
        interface.interface_type = "nat_gateway"
        interface.description = f"Interface for NAT Gateway {made['NatGatewayId']}"
    return made["NatGatewayId"], made


def _delete_nat(physical: str, props: dict[str, Any], at: Place) -> None:
    """moto leaves the gateway's network interface; AWS takes it away."""
    ec2 = at.client("ec2")
    (row,) = ec2.describe_nat_gateways(NatGatewayIds=[physical])["NatGateways"]
    ec2.delete_nat_gateway(NatGatewayId=physical)
    for address in row["NatGatewayAddresses"]:
        interface = address["NetworkInterfaceId"]
        rows = ec2.describe_network_interfaces(Filters=[{"Name": "network-interface-id", "Values": [interface]}])
        if rows["NetworkInterfaces"]:
            ec2.delete_network_interface(NetworkInterfaceId=interface)


_register("AWS::EC2::NatGateway", _nat, _delete_nat, seconds=100.0)


def _endpoint(props: dict[str, Any], at: Place) -> Made:
    wanted = {key: props[key] for key in ("VpcId", "VpcEndpointType", "ServiceName", "RouteTableIds")}
    policy = json.dumps(props["PolicyDocument"])
    made = at.client("ec2").create_vpc_endpoint(**wanted, PolicyDocument=policy, **_tags(props, at, "vpc-endpoint"))
    return made["VpcEndpoint"]["VpcEndpointId"], {}


_register(
    "AWS::EC2::VPCEndpoint", _endpoint,
    lambda physical, props, at: at.client("ec2").delete_vpc_endpoints(VpcEndpointIds=[physical]),
)  # fmt: skip


def _permission(rule: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {"IpProtocol": str(rule["IpProtocol"])}
    for port in ("FromPort", "ToPort"):
        if port in rule:
            row[port] = int(rule[port])
    text = {"Description": rule["Description"]} if "Description" in rule else {}
    group = rule.get("SourceSecurityGroupId") or rule.get("DestinationSecurityGroupId")
    if group:
        row["UserIdGroupPairs"] = [{"GroupId": group, **text}]
    elif "CidrIp" in rule:
        row["IpRanges"] = [{"CidrIp": rule["CidrIp"], **text}]
    return row


def _group(props: dict[str, Any], at: Place) -> Made:
    ec2 = at.client("ec2")
    made = ec2.create_security_group(
        GroupName=props.get("GroupName", at.unique), Description=props["GroupDescription"], VpcId=props["VpcId"],
        **_tags(props, at, "security-group"),
    )["GroupId"]  # fmt: skip
    if props.get("SecurityGroupEgress"):
        everything = [{"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]
        ec2.revoke_security_group_egress(GroupId=made, IpPermissions=everything)
    for way, key in (("ingress", "SecurityGroupIngress"), ("egress", "SecurityGroupEgress")):
        rules = [_permission(rule) for rule in props.get(key, [])]
        if rules:
            getattr(ec2, f"authorize_security_group_{way}")(GroupId=made, IpPermissions=rules)
    return made, {"GroupId": made, "VpcId": props["VpcId"]}


def _delete_group(physical: str, props: dict[str, Any], at: Place) -> None:
    ec2 = at.client("ec2")
    users = ec2.describe_network_interfaces(Filters=[{"Name": "group-id", "Values": [physical]}])["NetworkInterfaces"]
    if users:
        raise ValueError(f"resource {physical} has a dependent object (DependencyViolation)")
    ec2.delete_security_group(GroupId=physical)


_register("AWS::EC2::SecurityGroup", _group, _delete_group)


def _rule_handler(way: str) -> None:
    def make(props: dict[str, Any], at: Place) -> Made:
        call = getattr(at.client("ec2"), f"authorize_security_group_{way}")
        try:
            made = call(GroupId=props["GroupId"], IpPermissions=[_permission(props)])
        except at.client("ec2").exceptions.ClientError as error:
            # A new group lets everything out; CloudFormation takes that rule away for the first one of its own.
            if way == "ingress" or "InvalidPermission.Duplicate" not in str(error):
                raise
            return f"{props['GroupId']}|{at.logical}", {}
        return made["SecurityGroupRules"][0]["SecurityGroupRuleId"], {}

    def remove(physical: str, props: dict[str, Any], at: Place) -> None:
        call = getattr(at.client("ec2"), f"revoke_security_group_{way}")
        call(GroupId=props["GroupId"], IpPermissions=[_permission(props)])

    _register(f"AWS::EC2::SecurityGroup{way.title()}", make, remove)


_rule_handler("ingress")
_rule_handler("egress")


def _flow_log(props: dict[str, Any], at: Place) -> Made:
    made = at.client("ec2").create_flow_logs(
        ResourceIds=[props["ResourceId"]], ResourceType=props["ResourceType"], TrafficType=props["TrafficType"],
        LogDestinationType=props["LogDestinationType"], LogGroupName=props["LogGroupName"],
        DeliverLogsPermissionArn=props["DeliverLogsPermissionArn"], **_tags(props, at, "vpc-flow-log"),
    )  # fmt: skip
    if made.get("Unsuccessful"):
        raise ValueError(made["Unsuccessful"][0]["Error"]["Message"])
    return made["FlowLogIds"][0], {}


_register(
    "AWS::EC2::FlowLog", _flow_log,
    lambda physical, props, at: at.client("ec2").delete_flow_logs(FlowLogIds=[physical]),
)  # fmt: skip


def _log_group(props: dict[str, Any], at: Place) -> Made:
    name = props.get("LogGroupName", at.unique)
    at.client("logs").create_log_group(logGroupName=name, tags=at.tags)
    if props.get("RetentionInDays"):
        at.client("logs").put_retention_policy(logGroupName=name, retentionInDays=int(props["RetentionInDays"]))
    return name, {"Arn": f"arn:aws:logs:{at.region}:{at.account}:log-group:{name}:*"}


_register(
    "AWS::Logs::LogGroup", _log_group,
    lambda physical, props, at: at.client("logs").delete_log_group(logGroupName=physical),
    mutable=frozenset({"Tags", "RetentionInDays"}),
)  # fmt: skip


def _role(props: dict[str, Any], at: Place) -> Made:
    iam = at.client("iam")
    name = props.get("RoleName", f"{f'{at.stack}-{at.logical}'[:51]}-{uuid.uuid4().hex[:12]}")
    made = iam.create_role(
        RoleName=name, AssumeRolePolicyDocument=json.dumps(props["AssumeRolePolicyDocument"]), Tags=at.tag_list,
        Path=props.get("Path", "/"),
    )["Role"]  # fmt: skip
    for policy in props.get("Policies", []):
        iam.put_role_policy(
            RoleName=name, PolicyName=policy["PolicyName"], PolicyDocument=json.dumps(policy["PolicyDocument"])
        )
    return name, {"Arn": made["Arn"], "RoleId": made["RoleId"]}


def _delete_role(physical: str, props: dict[str, Any], at: Place) -> None:
    iam = at.client("iam")
    for policy in iam.list_role_policies(RoleName=physical)["PolicyNames"]:
        iam.delete_role_policy(RoleName=physical, PolicyName=policy)
    iam.delete_role(RoleName=physical)


_register("AWS::IAM::Role", _role, _delete_role, seconds=20.0)


def _bucket(props: dict[str, Any], at: Place) -> Made:
    s3 = at.client("s3")
    name = props.get("BucketName") or f"{at.stack}-{at.logical}-{uuid.uuid4().hex[:12]}".lower()
    place = {} if at.region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": at.region}}
    s3.create_bucket(Bucket=name, **place)
    s3.put_bucket_encryption(
        Bucket=name,
        ServerSideEncryptionConfiguration={
            "Rules": [
                {"ApplyServerSideEncryptionByDefault": rule["ServerSideEncryptionByDefault"]}
                for rule in props["BucketEncryption"]["ServerSideEncryptionConfiguration"]
            ]
        },
    )
    s3.put_public_access_block(Bucket=name, PublicAccessBlockConfiguration=props["PublicAccessBlockConfiguration"])
    s3.put_bucket_versioning(Bucket=name, VersioningConfiguration=props["VersioningConfiguration"])
    if at.tags:
        s3.put_bucket_tagging(Bucket=name, Tagging={"TagSet": at.tag_list})
    return name, {"Arn": f"arn:aws:s3:::{name}", "DomainName": f"{name}.s3.amazonaws.com"}


_BUCKET_MUTABLE = {"Tags", "LifecycleConfiguration", "VersioningConfiguration", "BucketEncryption"}
_register(
    "AWS::S3::Bucket", _bucket, lambda physical, props, at: at.client("s3").delete_bucket(Bucket=physical),
    mutable=frozenset(_BUCKET_MUTABLE),
)  # fmt: skip


def _bucket_policy(props: dict[str, Any], at: Place) -> Made:
    at.client("s3").put_bucket_policy(Bucket=props["Bucket"], Policy=json.dumps(props["PolicyDocument"]))
    return f"{props['Bucket']}-policy", {}


def _delete_bucket_policy(physical: str, props: dict[str, Any], at: Place) -> None:
    s3 = at.client("s3")
    if props["Bucket"] in [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]]:
        s3.delete_bucket_policy(Bucket=props["Bucket"])


_register("AWS::S3::BucketPolicy", _bucket_policy, _delete_bucket_policy)


def _file_system(props: dict[str, Any], at: Place) -> Made:
    own = {tag["Key"]: tag["Value"] for tag in props.get("Tags", [])}
    tags = [{"Key": key, "Value": value} for key, value in {**at.tags, **own}.items()]
    system = at.fsx.create({**_booleans(props), "Tags": tags})
    fields = at.fsx.describe(system)
    attributes = {"DNSName": fields["DNSName"], "ResourceARN": fields["ResourceARN"]}
    if system.kind == "LUSTRE":
        attributes["LustreMountName"] = fields["LustreConfiguration"]["MountName"]
    else:
        attributes["RootVolumeId"] = system.fields["RootVolumeId"]
    return system.id, attributes


def _delete_file_system(physical: str, props: dict[str, Any], at: Place) -> None:
    _unless_gone(lambda: at.fsx.delete(physical))


def _unless_gone(delete: Callable[[], Any]) -> None:
    try:
        delete()
    except FsxError as error:
        if "NotFound" not in error.code:
            raise


def _grow(physical: str, props: dict[str, Any], at: Place) -> None:
    system = at.fsx.find(physical)
    if int(props["StorageCapacity"]) < int(system.fields["StorageCapacity"]):
        raise ValueError("Storage capacity cannot be reduced. (BadRequest)")
    system.fields |= _booleans(props)


_register(
    "AWS::FSx::FileSystem", _file_system, _delete_file_system, seconds=910.0, deletion=310.0, update=_grow,
    mutable=frozenset({
        "Tags", "StorageCapacity", "LustreConfiguration.PerUnitStorageThroughput",
        "LustreConfiguration.DataCompressionType", "OpenZFSConfiguration.ThroughputCapacity",
    }),
)  # fmt: skip


def _association(props: dict[str, Any], at: Place) -> Made:
    made = at.fsx.link({**_booleans(props), "Tags": at.tag_list})
    return made.id, {"AssociationId": made.id}


_register(
    "AWS::FSx::DataRepositoryAssociation", _association,
    lambda physical, props, at: _unless_gone(lambda: at.fsx.unlink(physical)), seconds=130.0,
)  # fmt: skip


def _secret(props: dict[str, Any], at: Place) -> Made:
    manager = at.client("secretsmanager")
    length = int(props.get("GenerateSecretString", {}).get("PasswordLength", 32))
    made = manager.create_secret(Name=at.unique, SecretString=uuid.uuid4().hex * 2, Tags=at.tag_list)
    assert length <= 64
    return made["ARN"], {"Id": made["ARN"]}


_register(
    "AWS::SecretsManager::Secret", _secret,
    lambda physical, props, at: at.client("secretsmanager").delete_secret(SecretId=physical),
)  # fmt: skip


def _reservation_group(props: dict[str, Any], at: Place) -> Made:
    groups = at.client("resource-groups")
    made = groups.create_group(Name=props["Name"], Configuration=props["Configuration"], Tags=at.tags)["Group"]
    groups.group_resources(Group=props["Name"], ResourceArns=props.get("Resources", []))
    return props["Name"], {"Arn": made["GroupArn"]}


_register(
    "AWS::ResourceGroups::Group", _reservation_group,
    lambda physical, props, at: at.client("resource-groups").delete_group(Group=physical),
    mutable=frozenset({"Tags", "Resources", "Configuration"}),
)  # fmt: skip


def recorded(kind: str, seconds: float = 10.0, **attributes: Callable[[str, Place], Any]) -> None:
    """A type that is only remembered with its properties: an id, a life cycle, and the attributes others refer to."""

    def make(props: dict[str, Any], at: Place) -> Made:
        name = next(
            (props[key] for key in ("Name", "FunctionName", "AlarmName", "DashboardName") if key in props), None
        )
        physical = str(name or at.unique)
        return physical, {key: value(physical, at) for key, value in attributes.items()}

    _register(kind, make, _nothing, seconds)
