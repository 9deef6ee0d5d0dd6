"""eksctl ClusterConfig -> model. One `Queue` is one node group, managed or not."""

from __future__ import annotations

from trainwright.check.model import BootScript, Cluster, File, Queue, Value
from trainwright.check.readers.values import bool_at, int_at, text_at, texts_at, value_at
from trainwright.spec.source import Node


def recognise(root: Node) -> bool:
    version, kind = root.get("apiVersion"), root.get("kind")
    return (
        version is not None
        and version.text.startswith("eksctl.io/")
        and kind is not None
        and kind.text == "ClusterConfig"
    )


def read(file: File) -> None:
    """Fill the file's clusters from its documents."""
    file.clusters = [_cluster(root) for root in file.nodes if recognise(root)]


def _cluster(root: Node) -> Cluster:
    return Cluster(
        span=root.span,
        platform="eks",
        name=text_at(root, "metadata", "name"),
        region=text_at(root, "metadata", "region"),
        version=text_at(root, "metadata", "version"),
        zones=texts_at(root, "availabilityZones"),
        queues=[
            _group(node, kind)
            for kind in ("managedNodeGroups", "nodeGroups")
            for node in (root.get(kind) or Node([], root.span)).elements()
            if node.is_map
        ],
    )


def _group(node: Node, kind: str) -> Queue:
    target = ("capacityReservation", "capacityReservationTarget")
    placement = text_at(node, "placement", "groupName")
    market = text_at(node, "instanceMarketOptions", "marketType")
    private = bool_at(node, "privateNetworking")
    return Queue(
        span=node.span,
        name=text_at(node, "name"),
        instances=_instances(node),
        min_count=int_at(node, "minSize"),
        max_count=int_at(node, "maxSize"),
        capacity=_capacity(node, market),
        reservation=text_at(node, *target, "capacityReservationID"),
        reservation_group=text_at(node, *target, "capacityReservationResourceGroupARN"),
        placement=Value(True, placement.span, placement.text, placement.key) if placement is not None else None,
        placement_name=placement,
        efa=bool_at(node, "efaEnabled"),
        subnets=texts_at(node, "subnets"),
        zones=texts_at(node, "availabilityZones"),
        public_ip=private.meaning(not private.value) if private else None,
        security_groups=texts_at(node, "securityGroups", "attachIDs"),
        scripts=[BootScript(command) for command in texts_at(node, "preBootstrapCommands")],
        policies=texts_at(node, "iam", "attachPolicyARNs"),
        root_volume_gib=int_at(node, "volumeSize"),
        extra={
            key: value
            for key, value in (
                ("market_type", market),
                ("open_ssh", _open_ssh(node)),
                ("ami_type", text_at(node, "amiFamily")),
                ("own_image", text_at(node, "ami")),
                ("desired", int_at(node, "desiredCapacity")),
                ("launch_template", value_at(node, "launchTemplate")),
                ("imds_v1_disabled", bool_at(node, "disableIMDSv1")),
                ("managed", Value(kind == "managedNodeGroups", node.span)),
                ("cluster_taints", text_at(node, "taints", 0, "key")),
            )
            if value is not None
        },
    )


def _open_ssh(node: Node) -> Value[bool] | None:
    """`ssh: {allow: true}` opens port 22 to every address, unless groups are named that may connect."""
    allowed = bool_at(node, "ssh", "allow")
    narrow = node.get("ssh", "sourceSecurityGroupIds") or node.get("ssh", "enableSsm")
    return allowed if allowed is not None and allowed.value and narrow is None else None


def _instances(node: Node) -> list[Value[str]]:
    one = text_at(node, "instanceType")
    several = texts_at(node, "instanceTypes") + texts_at(node, "instancesDistribution", "instanceTypes")
    return [one] if one is not None and one.value != "mixed" else several


def _capacity(node: Node, market: Value[str] | None) -> Value[str] | None:
    if market is not None:
        kinds = {"capacity-block": "block", "spot": "spot"}
        return market.meaning(kinds.get(market.value, market.value))
    spot = bool_at(node, "spot")
    return spot.meaning("spot" if spot.value else "on-demand") if spot else None
