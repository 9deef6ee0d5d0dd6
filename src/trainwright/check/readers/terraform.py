"""Terraform -> model: Lustre file systems, security groups, launch templates, EKS node groups (of the resource and of
the community module) and HyperPod clusters."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check.model import (
    Cluster,
    File,
    Interface,
    LaunchTemplate,
    PortRule,
    Queue,
    SecurityGroup,
    Storage,
    Value,
)
from trainwright.check.readers.cloudformation import tokens_of
from trainwright.check.readers.hcl_source import Block, Dynamic
from trainwright.check.readers.terraform_groups import (
    blocks_at,
    inner,
    module,
    node_group,
    optional,
    root_disk,
    unless_empty,
)
from trainwright.check.readers.terraform_policies import node_policies
from trainwright.check.readers.terraform_roles import Roles
from trainwright.check.readers.terraform_statements import open_policies
from trainwright.check.readers.terraform_variables import NamedValues, filled, is_written_beside, resources_beside
from trainwright.check.readers.values import bool_at, int_at, text_at, texts_at
from trainwright.spec.source import Node

_OWNER = re.compile(r"\$\{aws_security_group\.([\w-]+)(?:\[[^\]]*\])?\.id\}$")
_PEERS = (
    "cidr_blocks", "ipv6_cidr_blocks", "cidr_ipv4", "cidr_ipv6", "security_groups", "source_security_group_id",
    "referenced_security_group_id",
)  # fmt: skip
_INTERFACES = re.compile(r"\"efa|aws_network_interface_sg_attachment")
_FILE_SYSTEMS = {"aws_fsx_lustre_file_system": "lustre", "aws_fsx_openzfs_file_system": "openzfs"}
_CLUSTER = "aws_eks_cluster"
_OF_CLUSTER = re.compile(r"\baws_eks_cluster\.([\w-]+)")


def read(file: File) -> None:
    """Fill the file from its blocks."""
    blocks = filled(file.text, file.path)
    file.nodes = [block.body for block in blocks]
    resources = [block for block in blocks if block.kind == "resource" and len(block.labels) == 2]
    file.storages = [_lustre(b) for b in resources if b.labels[0] == "aws_fsx_lustre_file_system"]
    file.launch_templates = [_launch_template(b) for b in resources if b.labels[0] == "aws_launch_template"]
    named = NamedValues(blocks, file.path)
    file.security_groups = _security_groups(resources, file.path, named)
    file.clusters += _eks_resources(resources)
    file.clusters += [cluster for block in blocks for cluster in module(block)]
    roles = Roles(blocks, file.path)
    file.policies = [*node_policies(resources, roles, named, file.lines), *open_policies(blocks, roles)]
    file.clusters += [_hyperpod(b) for b in resources if b.labels[0].endswith("sagemaker_cluster")]


def _eks_resources(resources: list[Block]) -> Iterator[Cluster]:
    """The clusters of a file with their node groups; without a reference, those of its one cluster, or of one that
    another file makes."""
    clusters = {
        b.labels[1]: Cluster(b.span, "eks", version=text_at(b.body, "version"))
        for b in resources
        if b.labels[0] == _CLUSTER
    }
    others: list[Queue] = []
    for block in (b for b in resources if b.labels[0] == "aws_eks_node_group"):
        group = node_group(block.body, block.labels[1], Value("aws_eks_node_group", block.span))
        named = text_at(block.body, "cluster_name")
        match = _OF_CLUSTER.search(named.text) if named is not None else None
        owner = next(iter(clusters.values())) if len(clusters) == 1 else clusters.get(match[1] if match else "")
        (owner.queues if owner is not None else others).append(group)
    yield from clusters.values()
    if others:
        yield Cluster(others[0].span, "eks", queues=others)


def _lustre(block: Block) -> Storage:
    body = block.body
    capacity, metadata = int_at(body, "storage_capacity"), body.get("metadata_configuration")
    return Storage(
        span=block.span,
        kind="lustre",
        name=Value(block.name, block.span),
        existing=text_at(body, "backup_id"),  # restored: its size and kind are the backup's
        capacity_gib=capacity.meaning(float(capacity.value)) if capacity is not None else None,
        deployment=text_at(body, "deployment_type"),
        throughput=optional(int_at(body, "per_unit_storage_throughput")),
        media=text_at(body, "storage_type"),
        drive_cache=optional(text_at(body, "drive_cache_type")),
        kms_key=optional(text_at(body, "kms_key_id")),
        backup_days=int_at(body, "automatic_backup_retention_days"),
        import_path=optional(text_at(body, "import_path")),
        export_path=optional(text_at(body, "export_path")),
        chunk_size=optional(int_at(body, "imported_file_chunk_size")),
        auto_import=optional(text_at(body, "auto_import_policy")),
        version=text_at(body, "file_system_type_version"),
        metadata=Value(metadata.text, metadata.span) if metadata is not None else None,
        efa=bool_at(body, "efa_enabled"),
        subnets=texts_at(body, "subnet_ids"),
    )


def _launch_template(block: Block) -> LaunchTemplate:
    body = block.body
    listed = body.get("network_interfaces")
    interfaces = [one for one in listed.value if one.is_map] if listed is not None and listed.is_list else []
    metadata, placement = inner(body, "metadata_options"), inner(body, "placement")
    market, target = inner(body, "instance_market_options"), inner(body, "capacity_reservation_specification")
    target = inner(target, "capacity_reservation_target") if target is not None else None
    return LaunchTemplate(
        span=block.span,
        name=block.name,
        instance=text_at(body, "instance_type"),
        interfaces=[_interface(one) for one in interfaces],
        interfaces_span=body.key_span("network_interfaces") if listed is not None else None,
        conditional=listed is not None and (not listed.is_list or len(interfaces) < len(listed.value)),
        tokens=tokens_of(text_at(metadata, "http_endpoint"), text_at(metadata, "http_tokens")),
        hop_limit=int_at(metadata, "http_put_response_hop_limit"),
        placement=text_at(placement, "group_name"),
        market=text_at(market, "market_type"),
        reservation=text_at(target, "capacity_reservation_id"),
        reservation_group=text_at(target, "capacity_reservation_resource_group_arn"),
        user_data=text_at(body, "user_data"),
        image=unless_empty(text_at(body, "image_id")),
        disk=root_disk(body),
    )


def _interface(node: Node) -> Interface:
    return Interface(
        node.span,
        int_at(node, "network_card_index"),
        int_at(node, "device_index"),
        text_at(node, "interface_type"),
        bool_at(node, "associate_public_ip_address"),
    )


def _security_groups(resources: list[Block], path: str, named: NamedValues) -> list[SecurityGroup]:
    """Groups with their own rules and those that other resources of the file add to them."""
    groups: dict[str, SecurityGroup] = {}
    for block in resources:
        if block.labels[0] == "aws_security_group":
            group = groups.setdefault(block.name, SecurityGroup(block.span, block.name))
            for key, rules in (("ingress", group.ingress), ("egress", group.egress)):
                rules += [rule for node in blocks_at(block.body, key) for rule in _port_rules(node, block.name)]
                listed = block.body.get(key)
                group.open_ended |= listed is not None and any(not node.is_map for node in listed.elements())
                group.open_ended |= listed is not None and listed.is_scalar
    for block in resources:
        way = _way(block)
        if way:
            owner = text_at(block.body, "security_group_id")
            match = _OWNER.match(owner.text) if owner is not None else None
            name = match[1] if match is not None else (owner.text if owner is not None else block.name)
            # Of a group that another file makes, this one does not hold all rules.
            group = groups.setdefault(name, SecurityGroup(block.span, block.name, open_ended=True))
            rules = group.ingress if way == "ingress" else group.egress
            rules += _port_rules(block.body, name)
    _attach(resources, groups)
    _attach_efa(resources, groups, path, named)
    return list(groups.values())


def _way(block: Block) -> str:
    """Whether a resource is a rule for what enters a group or for what leaves it."""
    kind = text_at(block.body, "type")
    if block.labels[0] == "aws_security_group_rule":
        return kind.value if kind is not None else ""
    match = re.fullmatch(r"aws_vpc_security_group_(ingress|egress)_rule", block.labels[0])
    return match[1] if match is not None else ""


def _attach_efa(resources: list[Block], groups: dict[str, SecurityGroup], path: str, named: NamedValues) -> None:
    """Record the groups of EFA interfaces that have no other group, and all of whose rules are known."""
    rules = [rule for group in groups.values() for rule in [*group.ingress, *group.egress]]
    if any("$" in name for name in groups) or any(r.protocol is not None and not r.protocol.known for r in rules):
        return
    elsewhere = resources_beside(path, _INTERFACES) if groups else []
    for kind, owners in _interfaces([*resources, *elsewhere], named):
        match = _OWNER.match(owners[0].text) if len(owners) == 1 else None
        group = groups.get(match[1]) if match is not None else None
        if group is None or group.open_ended or kind is None or not kind.value.startswith("efa"):
            continue
        if not is_written_beside(path, rules_elsewhere(group.name)):
            group.uses.add("efa")


def _interfaces(resources: list[Block], named: NamedValues) -> Iterator[tuple[Value[str] | None, list[Value[str]]]]:
    """The type and the groups of each network interface, of a launch template or of its own."""
    attached = any(block.labels[0] == "aws_network_interface_sg_attachment" for block in resources)
    for block in resources:
        listed = block.body.get("network_interfaces") if block.labels[0] == "aws_launch_template" else None
        written = list(listed.elements()) if listed is not None else []
        repeated = [one.repeated(named) for one in written if isinstance(one, Dynamic)]
        nodes = [one for one in (*written, *repeated) if one is not None and one.is_map]
        nodes += [block.body] if block.labels[0] == "aws_network_interface" and not attached else []
        for node in nodes:
            yield text_at(node, "interface_type"), texts_at(node, "security_groups")


def rules_elsewhere(name: str) -> re.Pattern[str]:
    """A resource of another file that adds a rule to a group."""
    return re.compile(rf"\bsecurity_group_id\s*=\s*\"?(\$\{{)?aws_security_group\.{re.escape(name)}\b")


def _attach(resources: list[Block], groups: dict[str, SecurityGroup]) -> None:
    """Record which file systems a group belongs to."""
    for block in resources:
        use = _FILE_SYSTEMS.get(block.labels[0])
        listed = block.body.get("security_group_ids") if use is not None else None
        if use is None or listed is None:
            continue
        elements = list(listed.elements()) if listed.is_list else [listed]
        for match in (_OWNER.match(one.text) for one in elements if one.is_scalar):
            group = groups.get(match[1]) if match is not None else None
            if group is not None:
                group.uses.add(use)
                group.shared |= len(elements) > 1 or not listed.is_list


def _port_rules(node: Node, owner: str) -> list[PortRule]:
    protocol = text_at(node, "protocol") or text_at(node, "ip_protocol")
    if protocol is not None and protocol.value == "all":
        protocol = protocol.meaning("-1")
    ports = int_at(node, "from_port"), int_at(node, "to_port")
    peers = [peer for key in _PEERS for peer in texts_at(node, key)]
    itself = bool_at(node, "self")
    rules = [PortRule(node.span, protocol, *ports, peer, _names(peer, owner)) for peer in peers]
    if (itself is not None and itself.value) or not peers:
        rules.append(PortRule(node.span, protocol, *ports, itself=bool(itself is not None and itself.value)))
    return rules


def _names(peer: Value[str], owner: str) -> bool:
    match = _OWNER.match(peer.text)
    return match is not None and match[1] == owner


def _hyperpod(block: Block) -> Cluster:
    groups = block.body.get("instance_groups") or block.body.get("instance_group") or Node([], block.span)
    queues = []
    for group in (one for one in groups.elements() if one.is_map):
        instance, count = text_at(group, "instance_type"), int_at(group, "instance_count")
        queues.append(
            Queue(
                group.span,
                text_at(group, "instance_group_name"),
                instances=[instance] if instance is not None else [],
                max_count=count,
            )
        )
    return Cluster(block.span, "hyperpod", text_at(block.body, "cluster_name"), queues=queues)
