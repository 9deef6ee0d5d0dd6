"""Queues: from `instance`, `count` and `capacity` to Slurm queues with their network, disks and reservation."""

from __future__ import annotations

from typing import Any

from trainwright.catalog.instances import InstanceType
from trainwright.platforms.annotated import Why
from trainwright.platforms.parallelcluster.access import node_iam
from trainwright.platforms.parallelcluster.boot import BootScript, actions, queue_scripts
from trainwright.platforms.setting import Setting, gib
from trainwright.platforms.wiring import Ids, capacity_key
from trainwright.spec.defaults import placement_rule
from trainwright.spec.model import Queue
from trainwright.stacks.references import reference


def queue(setting: Setting, item: Queue, scripts: tuple[BootScript, ...], ids: Ids) -> dict[str, Any]:
    """One entry of SlurmQueues."""
    machine = setting.queue_instance(item)
    ours = queue_scripts(scripts, item)
    custom = actions(ours, item.scripts, setting.spec.name, ids.bucket)
    return {
        "Name": item.name,
        "CapacityType": _capacity_type(item),
        "JobExclusiveAllocation": Why(item.exclusive, _why_exclusive(item)),
        "Networking": _networking(setting, item, ids),
        "ComputeSettings": {"LocalStorage": _disks(setting, item, machine)},
        "ComputeResources": [_resource(item, machine, several_zones=len(subnets_of(item, ids)) > 1)],
        "Iam": node_iam(setting, ids.bucket if ours else None, item.scripts),
        **({"CustomActions": custom} if custom else {}),
    }


def _capacity_type(item: Queue) -> Any:
    if item.capacity.kind == "spot":
        return Why("SPOT", "interrupted with two minutes' notice: save checkpoints often")
    if item.capacity.kind == "block":
        return Why("CAPACITY_BLOCK", "nodes start when the block starts and end with it")
    return "ONDEMAND"


def _why_exclusive(item: Queue) -> str:
    if item.exclusive:
        return "jobs get whole nodes: ranks of two jobs on one node would share its network cards"
    return "jobs may share a node"


def _networking(setting: Setting, item: Queue, ids: Ids) -> dict[str, Any]:
    subnets: Any = subnets_of(item, ids)
    if len(subnets) > 1:
        subnets = Why(subnets, "any zone, so that capacity is easier to get")
    elif len(ids.private_subnets) > 1:
        subnets = Why(subnets, "EFA, placement groups and reservations need one zone")
    section: dict[str, Any] = {"SubnetIds": subnets, "PlacementGroup": _placement(item)}
    if ids.security_group is not None:
        section["AdditionalSecurityGroups"] = Why(
            [ids.security_group], "all traffic to and from itself, in both directions: EFA checks both"
        )
    return section


def subnets_of(item: Queue, ids: Ids) -> list[str]:
    """All private subnets for a queue that may run in any zone, else the first."""
    in_one_zone = item.efa or item.placement or item.capacity.kind not in ("on-demand", "spot")
    return list(ids.private_subnets[:1] if in_one_zone else ids.private_subnets)


def _placement(item: Queue) -> Any:
    if isinstance(item.placement, str):
        return Why({"Enabled": True, "Name": item.placement}, "the group the spec names")
    by_rule, reason = placement_rule(item)
    why = reason if by_rule == item.placement else "as the spec says"
    return Why({"Enabled": bool(item.placement)}, why)


def _disks(setting: Setting, item: Queue, machine: InstanceType) -> dict[str, Any]:
    disks: dict[str, Any] = {"RootVolume": {"Size": gib(item.root_volume), "Encrypted": True, "VolumeType": "gp3"}}
    scratch = next((s for s in setting.spec.storage if s.nvme is not None), None)
    if scratch is not None and machine.nvme_gb > 0:
        disks["EphemeralVolume"] = Why(
            {"MountDir": scratch.mount},
            f"{machine.nvme_gb:,} GB of NVMe on each node, striped; lost when the node stops",
        )
    return disks


def _resource(item: Queue, machine: InstanceType, several_zones: bool) -> dict[str, Any]:
    assert item.count is not None
    resource: dict[str, Any] = {
        "Name": machine.name.replace(".", "-"),
        # ParallelCluster takes several zones only with its list of types, even a list of one.
        **({"Instances": [{"InstanceType": machine.name}]} if several_zones else {"InstanceType": machine.name}),
        "MinCount": Why(item.count.min, _why_count(item)),
        "MaxCount": item.count.max,
    }
    if item.efa:
        resource["Efa"] = Why({"Enabled": True}, _why_efa(machine))
    target = _reservation(item)
    if target is not None:
        resource["CapacityReservationTarget"] = target
    layout = _layout(machine)
    if layout is not None:
        resource["CustomSlurmSettings"] = layout
    return resource


def _why_count(item: Queue) -> str:
    assert item.count is not None
    if item.count.min == item.count.max:
        return "the same as MaxCount: the nodes are always up" + (
            ", their capacity is paid in any case" if item.capacity.kind in ("reservation", "block", "group") else ""
        )
    if item.count.min == 0:
        return "none while there is no work"
    return f"{item.count.min} always up; the others start on demand and stop when idle"


def _why_efa(machine: InstanceType) -> str:
    cards = "one EFA card" if machine.efa_cards == 1 else f"{machine.efa_cards} EFA cards"
    return f"{cards}, {machine.network_gbps:,.0f} Gbit/s in all; without this line NCCL falls back to TCP"


def _reservation(item: Queue) -> Any:
    kind, target = item.capacity.kind, item.capacity.id
    if kind in ("reservation", "block"):
        return {"CapacityReservationId": target}
    if item.capacity.reservations:
        target = reference(capacity_key(item), "capacity", "GroupArn")
    if kind == "group":
        return Why({"CapacityReservationResourceGroupArn": target}, "several reservations, used like one")
    return None


def _layout(machine: InstanceType) -> Any:
    """Sockets and cores of nodes with several sockets: ParallelCluster counts every CPU as a socket of its own, and
    Slurm then binds ranks across the sockets."""
    if machine.sockets < 2 or not (machine.is_gpu or machine.is_neuron):
        return None
    layout = {
        "Sockets": machine.sockets,
        "CoresPerSocket": machine.cores_per_socket,
        "ThreadsPerCore": machine.threads_per_core,
    }
    return Why(layout, "without it Slurm counts every CPU as a socket and binds ranks across sockets")
