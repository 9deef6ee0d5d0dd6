"""Node groups: from `instance`, `count` and `capacity` of a queue to a node group of eksctl, managed or not."""

from __future__ import annotations

from typing import Any

from trainwright.catalog.instances import InstanceType
from trainwright.platforms.annotated import Why
from trainwright.platforms.setting import Setting, gib
from trainwright.platforms.wiring import Ids
from trainwright.spec.model import Queue

SYSTEM = "system"
SYSTEM_INSTANCE, SYSTEM_NODES = "m5.large", 2
QUEUE_LABEL = "trainwright/queue"
GPU_LABEL = "nvidia.com/gpu.present"  # NVIDIA's device plugin runs on nodes that have it, and on no others
GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}

# What nodeadm reads on Amazon Linux 2023: the node's own disks as one, under containers and their scratch folders.
LOCAL_DISKS = """\
apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  instance:
    localStorage:
      strategy: RAID0
"""


def system_group(ids: Ids, tags: dict[str, str]) -> Any:
    """Small nodes for DNS, controllers and operators, so that none of these waits for a GPU node."""
    group = {
        "name": SYSTEM,
        "instanceType": SYSTEM_INSTANCE,
        "minSize": SYSTEM_NODES,
        "maxSize": SYSTEM_NODES + 1,
        "desiredCapacity": SYSTEM_NODES,
        **_common(ids, 50, tags),
    }
    return Why(group, "controllers and operators run here: they must not wait for, nor keep up, a GPU node")


def labels_of(queue: Queue, machine: InstanceType) -> dict[str, str]:
    """The labels of a queue's nodes."""
    return {QUEUE_LABEL: queue.name, **({GPU_LABEL: "true"} if machine.is_gpu else {})}


def node_group(setting: Setting, queue: Queue, ids: Ids, tags: dict[str, str]) -> dict[str, Any]:
    """One node group per queue."""
    managed = queue.provisioner == "managed"
    machine = setting.queue_instance(queue)
    assert queue.count is not None
    group: dict[str, Any] = {
        "name": queue.name,
        "instanceType": machine.name,
        "minSize": start_size(queue),
        "maxSize": queue.count.max,
        "desiredCapacity": Why(start_size(queue), _why_size(queue)),
        **_common(ids, gib(queue.root_volume), {**tags, "trainwright:queue": queue.name}),
        "labels": labels_of(queue, machine),
    }
    if machine.is_gpu:
        group["taints"] = Why([GPU_TAINT], "only pods that ask for GPUs land here; training jobs tolerate it")
    if queue.efa:
        group["efaEnabled"] = Why(True, _why_efa(machine))
    group |= _capacity(queue) if managed or queue.capacity.kind != "spot" else _spot_instances(machine)
    if isinstance(queue.placement, str):
        group["placement"] = Why({"groupName": queue.placement}, "the group the spec names")
    if machine.nvme_gb > 0 and any(item.nvme is not None for item in setting.spec.storage):
        group["overrideBootstrapCommand"] = Why(
            LOCAL_DISKS, f"{machine.nvme_gb:,} GB of NVMe per node, striped; scratch folders of pods lie on it"
        )
    if managed:
        repaired = "a node whose accelerator or network breaks is replaced, ten minutes after the fault is seen"
        group["nodeRepairConfig"] = Why({"enabled": True}, repaired)
    return group


def _spot_instances(machine: InstanceType) -> dict[str, Any]:
    """Spot instances of a self-managed group, which has no word `spot`."""
    mixed = {
        "instanceTypes": [machine.name],
        "onDemandBaseCapacity": 0,
        "onDemandPercentageAboveBaseCapacity": 0,
        "spotAllocationStrategy": "capacity-optimized",
    }
    return {"instancesDistribution": Why(mixed, "interrupted with two minutes' notice: save checkpoints often")}


def _common(ids: Ids, disk: int, tags: dict[str, str]) -> dict[str, Any]:
    group: dict[str, Any] = {
        "amiFamily": "AmazonLinux2023",
        "privateNetworking": True,
        "subnets": Why([ids.private_subnets[0]], "one zone: EFA, placement and file systems do not cross zones"),
        "volumeSize": disk,
        "volumeType": "gp3",
        "volumeEncrypted": True,
        "disableIMDSv1": True,
        "iam": {"withAddonPolicies": {"cloudWatch": True}},
        "tags": tags,
    }
    if ids.security_group is not None:
        group["securityGroups"] = Why(
            {"attachIDs": [ids.security_group]}, "the file systems let this group in; EFA accepts it"
        )
    return group


def start_size(queue: Queue) -> int:
    """A capacity block that has not begun makes the group fail as long as it wants nodes: it starts with none."""
    assert queue.count is not None
    return 0 if queue.capacity.kind == "block" else queue.count.min


def _why_size(queue: Queue) -> str:
    if queue.capacity.kind == "block":
        return "none until the block begins, or launches fail; from then on `trainwright up` starts the queue's nodes"
    assert queue.count is not None
    if queue.count.min == 0:
        return "none while there is no work: scale it before a job, or leave `provisioner` to Karpenter"
    return "the nodes that are always up"


def _why_efa(machine: InstanceType) -> str:
    cards = "one EFA card" if machine.efa_cards == 1 else f"{machine.efa_cards} EFA cards"
    return f"{cards}; eksctl makes the interfaces, and a placement group unless the capacity is reserved"


def _capacity(queue: Queue) -> dict[str, Any]:
    kind, target = queue.capacity.kind, queue.capacity.id
    if kind == "spot":
        return {"spot": Why(True, "interrupted with two minutes' notice: save checkpoints often")}
    if kind == "group":
        return {"capacityReservation": {"capacityReservationTarget": {"capacityReservationResourceGroupARN": target}}}
    if kind not in ("reservation", "block"):
        return {}
    reserved: dict[str, Any] = {"capacityReservation": {"capacityReservationTarget": {"capacityReservationID": target}}}
    if kind == "block":
        reserved["instanceMarketOptions"] = {"marketType": "capacity-block"}
    return reserved
