"""Node groups of EKS in Terraform -> model: those of the resource and of the community module, which gives what it
calls defaults to all groups of a kind."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from trainwright.check.model import Cluster, Queue, T, Value
from trainwright.check.readers.hcl_source import Block
from trainwright.check.readers.values import bool_at, int_at, text_at, texts_at, value_at
from trainwright.spec.source import Node

_COMMUNITY = re.compile(r"\"?terraform-aws-modules/eks/aws\"?$")
_GROUPS = {
    "eks_managed_node_groups": "eks_managed_node_group_defaults",
    "self_managed_node_groups": "self_managed_node_group_defaults",
}
GROUPS_UNTIL_17 = ("worker_groups", "worker_groups_launch_template", "node_groups")  # of the module's releases
_DEVICES, _ROOT = "block_device_mappings", ("/dev/xvda", "/dev/sda1")
# Scripts that a node of the module runs at its start.
_USER_DATA = ("pre_bootstrap_user_data", "post_bootstrap_user_data", "cloudinit_pre_nodeadm", "cloudinit_post_nodeadm")
_MAY_BE_NULL = re.compile(r"\$\{(?!\").*(\?|\b(var|local|each|module)\.|\b(try|lookup|one|element|null)\b)", re.DOTALL)


def inner(node: Node, key: str) -> Node | None:
    """The one nested block of a name, written as a block or as a map."""
    child = node.get(key)
    if child is not None and child.is_list:
        return next((one for one in child.value if one.is_map), None)
    return child if child is not None and child.is_map else None


def blocks_at(body: Node, key: str) -> list[Node]:
    listed = body.get(key)
    return [one for one in listed.value if one.is_map] if listed is not None and listed.is_list else []


def optional(value: Value[T] | None) -> Value[T] | None:
    """An expression that may be null, by which Terraform leaves an argument out, reads as an empty text."""
    if value is None or value.known or not _MAY_BE_NULL.match(value.text):
        return value
    return replace(value, text="")


def root_disk(body: Node) -> Value[int] | None:
    """The size of the root volume in a launch template or a group of the module; other devices are other volumes."""
    listed = body.get(_DEVICES)
    devices = [one for _, one in listed.items()] if listed is not None and listed.is_map else blocks_at(body, _DEVICES)
    for device in (one for one in devices if one.is_map):
        name, volume = text_at(device, "device_name"), inner(device, "ebs")
        if volume is not None and (name is None or name.value in _ROOT):
            return int_at(volume, "volume_size")
    return None


def module(block: Block) -> Iterator[Cluster]:
    """Node groups of the community module for EKS."""
    if block.kind != "module":
        return
    queues = []
    for key, shared in _GROUPS.items():
        groups, defaults = block.body.get(key), block.body.get(shared)
        for name, node in groups.items() if groups is not None else ():
            if node.is_map:
                queues.append(node_group(_with_defaults(node, defaults), name))
                queues[-1].extra |= {"self_managed": Value(True, node.span)} if key.startswith("self") else {}
    version = text_at(block.body, "cluster_version") or text_at(block.body, "kubernetes_version")
    source = text_at(block.body, "source")
    if queues or (version is not None and source is not None and _COMMUNITY.match(source.text)):
        stated = {"source": source, "module_version": text_at(block.body, "version")}
        stated |= {key: source for key in GROUPS_UNTIL_17 if block.body.get(key) is not None}
        extra = {key: value for key, value in stated.items() if value is not None}
        yield Cluster(block.span, "eks", queues=queues, version=version, extra=extra)


def _with_defaults(node: Node, defaults: Node | None) -> Node:
    """A group with what the module gives to all of them, which keeps its place (trainwright.check.shared_values)."""
    if defaults is None or not defaults.is_map:
        return node
    return replace(node, value={**defaults.value, **node.value}, keys={**defaults.keys, **node.keys})


def node_group(node: Node, name: str, resource: Value[str] | None = None) -> Queue:
    sizes = inner(node, "scaling_config") or node
    capacity = text_at(node, "capacity_type")
    extra = {
        "ami_type": text_at(node, "ami_type"),
        "launch_template": value_at(node, "launch_template") or value_at(node, "launch_template_id"),
        "template_block": _block_at(node, "launch_template"),
        "remote_access": _block_at(node, "remote_access"),
        "market": value_at(node, "instance_market_options"),
        "own_image": unless_empty(text_at(node, "ami_id")),
        "desired": int_at(sizes, "desired_size"),
        "user_data": next((value for key in _USER_DATA if (value := _stated(node, key)) is not None), None),
        "version": text_at(node, "version") if resource is not None else _version_in_module(node),
        "resource": resource,  # of the provider itself, which has other arguments than the module
    }
    one = text_at(node, "instance_type")
    specified = inner(node, "capacity_reservation_specification")
    target = inner(specified, "capacity_reservation_target") if specified is not None else None
    elsewhere = Value("", node.span, known=False) if extra.get("launch_template") else None
    return Queue(
        span=node.span,
        name=Value(name, node.span, name),
        instances=texts_at(node, "instance_types") or ([one] if one is not None else []),
        min_count=int_at(sizes, "min_size"),
        max_count=int_at(sizes, "max_size"),
        capacity=capacity.meaning(_CAPACITY.get(capacity.value, capacity.value)) if capacity is not None else None,
        reservation=optional(text_at(target, "capacity_reservation_id")) or elsewhere,
        reservation_group=optional(text_at(target, "capacity_reservation_resource_group_arn")),
        efa=bool_at(node, "enable_efa_support"),
        root_volume_gib=int_at(node, "disk_size") or root_disk(node),
        policies=_additional_policies(node),
        extra={key: value for key, value in extra.items() if value is not None},
    )


def _additional_policies(node: Node) -> list[Value[str]]:
    """The managed policies that a group of the module adds to the role of its nodes: a map, once a list."""
    listed = node.get("iam_role_additional_policies")
    texts = [one for one in listed.walk() if one.is_scalar and "?" not in one.text] if listed is not None else []
    return [Value(one.text.rstrip('"}'), one.span, one.text) for one in texts]


def _version_in_module(node: Node) -> Value[str] | None:
    return optional(text_at(node, "cluster_version") or text_at(node, "kubernetes_version"))


def _stated(node: Node, key: str) -> Value[Any] | None:
    value = value_at(node, key)
    return value if value is not None and value.value not in (None, "", [], False) else None


def _block_at(node: Node, key: str) -> Value[bool] | None:
    """That a block is written, and not made by `dynamic`."""
    return Value(True, node.key_span(key)) if inner(node, key) is not None else None


def unless_empty(value: Value[str] | None) -> Value[str] | None:
    return value if value is not None and value.value else None


_CAPACITY = {"ON_DEMAND": "on-demand", "SPOT": "spot", "CAPACITY_BLOCK": "block"}
