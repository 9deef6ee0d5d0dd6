"""The stacks that make an EKS cluster without eksctl: control plane, one per node group, add-ons. They make what the
plan's cluster.yaml asks of eksctl."""

from __future__ import annotations

from trainwright.catalog.instances import InstanceType, instance
from trainwright.platforms.containers import service_account
from trainwright.platforms.eks.cluster_file import kubernetes_version
from trainwright.platforms.eks.karpenter import karpenter_stack
from trainwright.platforms.eks.nodegroups import SYSTEM, SYSTEM_INSTANCE, SYSTEM_NODES, start_size
from trainwright.platforms.monitoring.prometheus import managed_workspace
from trainwright.platforms.setting import Setting, gib
from trainwright.platforms.wiring import StackPlan, Wiring
from trainwright.spec.model import Queue, Spec

CONTROL, NODES, ADDONS = "control", "nodes", "addons"
OWN = (CONTROL, NODES, ADDONS)  # keys: control, nodes-QUEUE, addons


def own_stacks(setting: Setting, wiring: Wiring) -> tuple[StackPlan, ...]:
    """In the order in which they can be made."""
    spec = setting.spec
    brought = spec.queues if spec.platform == "eks" else ()  # HyperPod brings the nodes that train
    control = StackPlan(
        CONTROL,
        "eks-cluster",
        {
            "Name": spec.name,
            "Version": kubernetes_version(spec),
            "Subnets": ",".join(wiring.zone_subnets),
            **_shared_group(setting, wiring),
            **({"ApiFrom": ",".join(spec.kubernetes.api_from)} if spec.kubernetes.api_from else {}),
        },
        "control plane and roles",
    )
    queues = [queue for queue in brought if queue.provisioner in ("managed", "self-managed")]
    groups = [_system(control, wiring), *(_nodes(setting, queue, control, wiring) for queue in queues)]
    return (control, *groups, _addons(spec, control))


def _shared_group(setting: Setting, wiring: Wiring) -> dict[str, str]:
    """Nodes of HyperPod have the network's group only, so the control plane has it too."""
    shared = setting.spec.platform == "hyperpod-eks" and wiring.ids.security_group
    return {"SecurityGroup": str(wiring.ids.security_group)} if shared else {}


def _group(control: StackPlan, wiring: Wiring, name: str, machine: InstanceType) -> dict[str, str]:
    security = {"SecurityGroup": wiring.ids.security_group} if wiring.ids.security_group else {}
    return {
        "Cluster": control.output("Cluster"),
        "NodeGroup": name,
        "InstanceType": machine.name,
        "ImageType": _image(machine),
        "Subnet": wiring.ids.private_subnets[0],
        "ClusterSecurityGroup": control.output("ClusterSecurityGroup"),
        "NodeRole": control.output("NodeRole"),
        **security,
    }


def _image(machine: InstanceType) -> str:
    processor = "ARM_64" if machine.arch == "arm64" else "x86_64"
    kind = "NVIDIA" if machine.is_gpu else "NEURON" if machine.is_neuron else "STANDARD"
    return f"AL2023_{processor}_{kind}"


def _system(control: StackPlan, wiring: Wiring) -> StackPlan:
    nodes = str(SYSTEM_NODES)
    size = {"MinSize": nodes, "DesiredSize": nodes, "MaxSize": str(SYSTEM_NODES + 1), "Disk": "50"}
    parameters = {**_group(control, wiring, SYSTEM, instance(SYSTEM_INSTANCE)), **size}
    return StackPlan(f"{NODES}-{SYSTEM}", "eks-nodes", parameters, "small nodes for controllers and operators")


def _nodes(setting: Setting, queue: Queue, control: StackPlan, wiring: Wiring) -> StackPlan:
    machine = setting.queue_instance(queue)
    assert queue.count is not None
    parameters = {
        **_group(control, wiring, queue.name, machine),
        "Queue": queue.name,
        "MinSize": str(start_size(queue)),
        "DesiredSize": str(start_size(queue)),
        "MaxSize": str(queue.count.max),
        "Disk": str(gib(queue.root_volume)),
        **({"Gpu": "true"} if machine.is_gpu else {}),
        **_capacity(queue),
    }
    if queue.efa:
        parameters["Cards"] = str(machine.efa_cards)
        if machine.network_cards > machine.efa_cards:
            parameters["FirstCardEfa"] = "false"
    if machine.nvme_gb > 0 and any(item.nvme is not None for item in setting.spec.storage):
        parameters["LocalDisks"] = "true"
    return StackPlan(f"{NODES}-{queue.name}", "eks-nodes", parameters, f"nodes of queue {queue.name}")


def _capacity(queue: Queue) -> dict[str, str]:
    kind, target = queue.capacity.kind, str(queue.capacity.id or "")
    if kind == "group":
        return {"ReservationGroup": target}
    if kind in ("reservation", "block"):
        return {"Reservation": target, **({"Capacity": "CAPACITY_BLOCK"} if kind == "block" else {})}
    spot = {"Capacity": "SPOT"} if kind == "spot" else {}
    if isinstance(queue.placement, str):
        return {**spot, "PlacementName": queue.placement}
    return {**spot, **({"Placement": "true"} if queue.placement and queue.efa else {})}


def _addons(spec: Spec, control: StackPlan) -> StackPlan:
    kinds = {item.kind for item in spec.storage}
    drivers = {
        name: "true" for kind, name in (("lustre", "Lustre"), ("openzfs", "OpenZfs"), ("efs", "Efs")) if kind in kinds
    }
    buckets = sorted({item.bucket.removeprefix("s3://").partition("/")[0] for item in spec.storage if item.bucket})
    rights: dict[str, str] = {}
    if buckets:
        rights = {
            "Namespace": spec.kubernetes.namespace,
            "ServiceAccount": service_account(spec),
            "Buckets": ",".join(f"arn:aws:s3:::{bucket}" for bucket in buckets),
            "Objects": ",".join(f"arn:aws:s3:::{bucket}/*" for bucket in buckets),
        }
    workspace = managed_workspace(spec.monitoring.remote_write) if spec.monitoring else None
    if workspace:
        rights["MetricsWorkspace"] = workspace
    nodes = karpenter_stack(spec)
    if nodes is not None:
        rights |= {
            "KarpenterRole": nodes.output("ControllerRoleArn"),
            "KarpenterNodeRole": nodes.output("NodeRoleArn"),
        }
    return StackPlan(
        ADDONS, "eks-addons", {"Cluster": control.output("Cluster"), **drivers, **rights}, "add-ons, rights of pods"
    )
