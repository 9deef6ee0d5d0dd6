"""CloudFormation templates -> model: security groups, launch templates, file systems, policies, and the clusters that
Batch, EKS and SageMaker resources describe."""

from __future__ import annotations

import re

from trainwright.check.model import (
    File,
    Interface,
    LaunchTemplate,
    Link,
    Policy,
    PortRule,
    SecurityGroup,
    Storage,
    Value,
)
from trainwright.check.readers.cfn_clusters import read_clusters
from trainwright.check.readers.cfn_template import Resource, Template, intrinsic, maps, target, targets
from trainwright.check.readers.values import value_of
from trainwright.spec.source import Node

_FSX_KINDS = {"LUSTRE": "lustre", "OPENZFS": "openzfs", "ONTAP": "ontap", "WINDOWS": "windows"}
_OTHER_STORAGE = {
    "RDS::DBCluster": "database",
    "RDS::DBInstance": "database",
    "S3::Bucket": "bucket",
    "EFS::FileSystem": "efs",
}


# The word, in ids such as EFASecurityGroup too, and not inside "default" or "DEFAULT".
_EFA_WORD = re.compile(r"(?<![A-Z])EFA|Efa(?![a-z])|(?<![A-Za-z])efa(?![a-z])")


def recognise(root: Node) -> bool:
    resources = root.get("Resources")
    if resources is None or not resources.is_map:
        return False
    types = [node.get("Type") for _, node in resources.items()]
    return root.get("AWSTemplateFormatVersion") is not None or any(
        kind is not None and kind.text.startswith(("AWS::", "Custom::")) for kind in types
    )


def read(file: File) -> None:
    """Fill the file from its first document; a template is one document."""
    file.nodes = [root for root in file.nodes if recognise(root)][:1]
    template = Template(file.nodes[0])
    file.storages = _storages(template)
    file.launch_templates = [_launch_template(template, r) for r in template.of("EC2::LaunchTemplate")]
    read_clusters(file, template)
    file.security_groups = _security_groups(file, template)
    file.policies = _policies(template)


def _storages(template: Template) -> list[Storage]:
    storages = [_fsx(template, resource) for resource in template.of("FSx::FileSystem")]
    by_id = {resource.id: storage for resource, storage in zip(template.of("FSx::FileSystem"), storages, strict=True)}
    for association in template.of("FSx::DataRepositoryAssociation"):
        owner = by_id.get(target(association.get("FileSystemId")) or "")
        if owner is not None:
            exports = association.get("S3", "AutoExportPolicy") is not None
            bucket = template.text(association.get("DataRepositoryPath"))
            owner.links.append(Link(bucket, association.span, exports))
    for kind, ours in _OTHER_STORAGE.items():
        storages += [
            Storage(r.span, ours, Value(r.id, r.span), deletion_policy=_deletion(r))
            for r in template.of(kind)
            if r.get("DBClusterIdentifier") is None  # an Aurora instance holds no data of its own
            and (r.get("BackupPolicy", "Status") or r.node).text != "ENABLED"  # of EFS
        ]
    return storages


def _deletion(resource: Resource) -> Value[str] | None:
    node = resource.node.get("DeletionPolicy")
    return (
        Value(node.text, node.span, node.text, resource.node.keys.get("DeletionPolicy")) if node is not None else None
    )


def _fsx(template: Template, resource: Resource) -> Storage:
    kind = template.text(resource.get("FileSystemType"))
    ours = _FSX_KINDS.get(kind.value, "fsx") if kind is not None else "fsx"
    section = {"lustre": "LustreConfiguration", "openzfs": "OpenZFSConfiguration"}.get(ours, "")
    settings = resource.get(section)

    def setting(name: str) -> Node | None:
        return settings.get(name) if settings is not None else None

    capacity = template.number(resource.get("StorageCapacity"))
    metadata = setting("MetadataConfiguration")
    return Storage(
        span=resource.span,
        kind=ours,
        name=Value(resource.id, resource.span),
        existing=template.text(resource.get("BackupId")),  # restored: its size and kind are the backup's
        capacity_gib=capacity.meaning(float(capacity.value)) if capacity is not None else None,
        deployment=template.text(setting("DeploymentType")),
        throughput=template.number(setting("PerUnitStorageThroughput") or setting("ThroughputCapacity")),
        media=template.text(resource.get("StorageType")),
        drive_cache=template.text(setting("DriveCacheType")),
        kms_key=template.text(resource.get("KmsKeyId")),
        backup_days=template.number(setting("AutomaticBackupRetentionDays")),
        import_path=template.text(setting("ImportPath")),
        export_path=template.text(setting("ExportPath")),
        chunk_size=template.number(setting("ImportedFileChunkSize")),
        auto_import=template.text(setting("AutoImportPolicy")),
        version=template.text(resource.get("FileSystemTypeVersion")),
        metadata=Value(metadata.text, metadata.span) if metadata is not None else None,
        efa=template.truth(setting("EfaEnabled")),
        deletion_policy=_deletion(resource),
        subnets=template.texts(resource.get("SubnetIds")),
    )


def _launch_template(template: Template, resource: Resource) -> LaunchTemplate:
    data = resource.get("LaunchTemplateData") or resource.node

    def at(*path: str) -> Node | None:
        return data.get(*path)

    interfaces = at("NetworkInterfaces")
    reservation = ("CapacityReservationSpecification", "CapacityReservationTarget")
    return LaunchTemplate(
        span=resource.span,
        name=resource.id,
        instance=template.text(at("InstanceType")),
        interfaces=[_interface(template, one) for node in maps(interfaces) for one in _branches(node)],
        conditional=any(intrinsic(node) is not None for node in maps(interfaces)),
        interfaces_span=data.key_span("NetworkInterfaces") if interfaces is not None else None,
        tokens=tokens_of(
            template.text(at("MetadataOptions", "HttpEndpoint")), template.text(at("MetadataOptions", "HttpTokens"))
        ),
        hop_limit=template.number(at("MetadataOptions", "HttpPutResponseHopLimit")),
        placement=template.text(at("Placement", "GroupName")) or template.text(at("Placement", "GroupId")),
        market=template.text(at("InstanceMarketOptions", "MarketType")),
        reservation=template.text(at(*reservation, "CapacityReservationId")),
        reservation_group=template.text(at(*reservation, "CapacityReservationResourceGroupArn")),
    )


def tokens_of(endpoint: Value[str] | None, tokens: Value[str] | None) -> Value[str] | None:
    """Whether the metadata service requires tokens; one that is turned off answers nobody."""
    return endpoint if endpoint is not None and endpoint.value == "disabled" else tokens


def _branches(node: Node) -> list[Node]:
    """An interface, or those that `Fn::If` chooses from."""
    call = intrinsic(node)
    if call is None:
        return [node]
    return [branch for branch in call[1][1:] if branch.is_map and intrinsic(branch) is None] if call[0] == "If" else []


def _interface(template: Template, node: Node) -> Interface:
    return Interface(
        node.span,
        template.number(node.get("NetworkCardIndex")),
        template.number(node.get("DeviceIndex")),
        template.text(node.get("InterfaceType")),
        template.truth(node.get("AssociatePublicIpAddress")),
    )


def _security_groups(file: File, template: Template) -> list[SecurityGroup]:
    groups = {r.id: SecurityGroup(r.span, r.id) for r in template.of("EC2::SecurityGroup")}
    for resource in template.of("EC2::SecurityGroup"):
        group = groups[resource.id]
        group.ingress = [_port_rule(template, node, resource.id) for node in _rules(resource, "SecurityGroupIngress")]
        group.egress = [_port_rule(template, node, resource.id) for node in _rules(resource, "SecurityGroupEgress")]
        group.egress_stated = resource.get("SecurityGroupEgress") is not None
        described = f"{resource.id} {(resource.get('GroupDescription') or resource.node).text}"
        if _EFA_WORD.search(described):
            group.uses.add("efa")
    for kind in ("Ingress", "Egress"):
        for resource in template.of(f"EC2::SecurityGroup{kind}"):
            for name in sorted(targets(resource.get("GroupId")) & set(groups)):
                rules = groups[name].ingress if kind == "Ingress" else groups[name].egress
                rules.append(_port_rule(template, resource.properties or resource.node, name))
    _attach(file, template, groups)
    return list(groups.values())


def _rules(resource: Resource, key: str) -> list[Node]:
    listed = resource.get(key)
    return ([listed] if listed.is_map else maps(listed)) if listed is not None else []


def _port_rule(template: Template, node: Node, owner: str) -> PortRule:
    peers = ("SourceSecurityGroupId", "DestinationSecurityGroupId", "CidrIp", "CidrIpv6", "SourceSecurityGroupName")
    peer = next((node.get(key) for key in peers if node.get(key) is not None), None)
    return PortRule(
        node.span,
        template.text(node.get("IpProtocol")),
        template.number(node.get("FromPort")),
        template.number(node.get("ToPort")),
        template.text(peer),
        itself=owner in targets(peer),
    )


def _attach(file: File, template: Template, groups: dict[str, SecurityGroup]) -> None:
    """Record what each group is used for, from the resources that use it."""
    for resource in template.of("FSx::FileSystem"):
        kind = template.text(resource.get("FileSystemType"))
        _use(groups, resource.get("SecurityGroupIds"), _FSX_KINDS.get(kind.value, "fsx") if kind else "fsx")
    for resource in template.of("RDS::DBCluster", "RDS::DBInstance"):
        _use(groups, resource.get("VpcSecurityGroupIds"), "database")
    for resource in template.of("EC2::LaunchTemplate"):
        for node in maps(resource.get("LaunchTemplateData", "NetworkInterfaces")):
            kind = template.text(node.get("InterfaceType"))
            named = list((node.get("Groups") or node).elements())
            if kind is not None and kind.value.startswith("efa") and len(named) == 1:  # another one may have the rules
                _use(groups, node.get("Groups"), "efa")
    for resource in template.of("EC2::NetworkInterface"):
        kind, listed = template.text(resource.get("InterfaceType")), resource.get("GroupSet")
        if kind is not None and kind.value == "efa" and listed is not None and len(list(listed.elements())) == 1:
            _use(groups, listed, "efa")
    for cluster in file.clusters:
        for queue in cluster.queues:
            if queue.efa is not None and queue.efa.value:
                for value in queue.security_groups:
                    if value.value in groups and not value.known:
                        groups[value.value].uses.add("efa")


def _use(groups: dict[str, SecurityGroup], node: Node | None, use: str) -> None:
    elements = list(node.elements()) if node is not None else []
    for element in elements:
        group = groups.get(target(element) or "")
        if group is not None:
            group.uses.add(use)
            group.shared |= len(elements) > 1


def _policies(template: Template) -> list[Policy]:
    policies, owners = [], set()
    for resource in template.of("IAM::Role"):
        if not _assumed_by_nodes(resource.get("AssumeRolePolicyDocument")):
            continue
        owners |= {resource.id} | targets(resource.get("ManagedPolicyArns"))
        policies += [Policy(value) for value in _policy_texts(template, resource.get("ManagedPolicyArns"))]
        for policy in maps(resource.get("Policies")):
            policies += [Policy(value, "inline") for value in _open_statements(policy.get("PolicyDocument"))]
    for resource in template.of("IAM::ManagedPolicy", "IAM::Policy"):
        if owners & ({resource.id} | targets(resource.get("Roles"))):
            policies += [Policy(value, "inline") for value in _open_statements(resource.get("PolicyDocument"))]
    for resource in template.of("EC2::VPCEndpoint"):
        policies += [Policy(value, "endpoint") for value in _open_statements(resource.get("PolicyDocument"))]
    return policies


_NODES = re.compile(r"^(ec2|ecs-tasks|sagemaker)\.")


def _assumed_by_nodes(policy: Node | None) -> bool:
    """Whether nodes or jobs may assume a role; people, build services and functions may need all of it."""
    statements = [node for node in policy.walk() if node.is_map] if policy is not None else []
    services = [one for node in statements if (one := node.get("Principal", "Service")) is not None]
    return any(_NODES.match(name.text) for service in services for name in service.walk() if name.is_scalar)


def _policy_texts(template: Template, node: Node | None) -> list[Value[str]]:
    """Managed policies; `!Sub arn:${AWS::Partition}:…` still identifies the policy."""
    return [Value(v.text, v.span, v.text) for v in template.texts(node) if v.text]


def _open_statements(document: Node | None) -> list[Value[str]]:
    """Statements of an endpoint policy that allow every action on every resource."""
    statements = document.get("Statement") if document is not None else None
    if statements is None:
        return []
    everything = []
    for statement in [statements] if statements.is_map else maps(statements):
        action, resource, effect = (statement.get(key) for key in ("Action", "Resource", "Effect"))
        narrowed = statement.get("Condition") is not None
        if effect is not None and effect.text == "Allow" and _is_star(action) and _is_star(resource) and not narrowed:
            assert action is not None
            everything.append(Value("*", action.span, "*"))
    return everything


def _is_star(node: Node | None) -> bool:
    if node is None:
        return False
    elements = list(node.elements()) if node.is_list else [node]
    return any(element.is_scalar and value_of(element).known and element.text == "*" for element in elements)
