"""Queues whose nodes come with jobs: a NodePool and an EC2NodeClass of Karpenter for each, and the stack with what
Karpenter itself needs. An elastic queue in a node group would need somebody to scale it."""

from __future__ import annotations

from typing import Any

from trainwright.catalog.versions import version_set
from trainwright.platforms.annotated import Why
from trainwright.platforms.eks.nodegroups import GPU_TAINT, labels_of
from trainwright.platforms.setting import Setting, gib
from trainwright.platforms.wiring import Ids, StackPlan
from trainwright.spec.model import Capacity, Queue, Spec

Data = dict[str, Any]
STACK = "karpenter"
NAMESPACE, ACCOUNT = "kube-system", "karpenter"
# In the order of removal: foreground deletion of a pool waits for its claims, a claim for its node, a class for both.
KINDS = ("nodepools.karpenter.sh", "nodeclaims.karpenter.sh", "ec2nodeclasses.karpenter.k8s.aws")
MOST_GROUPS = 8  # placement groups of the stack
IDLE = "10m"  # longer than a job takes to start again, shorter than anybody wants to pay for


def karpenter_queues(spec: Spec) -> list[Queue]:
    return [queue for queue in spec.queues if queue.provisioner == "karpenter"]


def karpenter_stack(spec: Spec) -> StackPlan | None:
    if not karpenter_queues(spec):
        return None
    names = ", ".join(queue.name for queue in karpenter_queues(spec))
    groups = {"PlacementGroups": str(len(placed))} if (placed := _placed(spec)) else {}
    parameters = {"ClusterName": spec.name, **groups}
    return StackPlan(STACK, "karpenter", parameters, f"Karpenter starts the nodes of {names}")


def _placed(spec: Spec) -> list[str]:
    """The queues with a placement group of their own, as many as the stack can make; others have none."""
    return [queue.name for queue in karpenter_queues(spec) if queue.placement is True][:MOST_GROUPS]


def pod_identity(stack: StackPlan) -> Data:
    """Karpenter's own rights."""
    return {"namespace": NAMESPACE, "serviceAccountName": ACCOUNT, "roleARN": stack.output("ControllerRoleArn")}


def access_entry(stack: StackPlan) -> Data:
    return {"principalARN": stack.output("NodeRoleArn"), "type": Why("EC2_LINUX", "nodes of Karpenter may join")}


def chart_values(spec: Spec) -> Data:
    """Values of Karpenter's chart: it runs on the nodes of the group `system`, never on nodes of its own."""
    return {
        "serviceAccount": {"name": ACCOUNT},
        "settings": {
            "clusterName": spec.name,
            "interruptionQueue": f"{spec.name}-karpenter",
            "featureGates": {"reservedCapacity": True, "nodeRepair": True},
        },
        "nodeSelector": {"eks.amazonaws.com/nodegroup": "system"},
    }


def node_objects(setting: Setting, ids: Ids, stack: StackPlan | None) -> list[Data]:
    """The NodePool and the EC2NodeClass of each queue of Karpenter."""
    if stack is None:
        return []
    queues = karpenter_queues(setting.spec)
    return [made(setting, queue, ids, stack) for queue in queues for made in (_node_class, _node_pool)]


def _node_class(setting: Setting, queue: Queue, ids: Ids, stack: StackPlan) -> Data:
    spec = setting.spec
    machine = setting.queue_instance(queue)
    root = {"volumeSize": f"{gib(queue.root_volume)}Gi", "volumeType": "gp3", "encrypted": True}
    made: Data = {
        # Karpenter takes the variant for the queue's accelerator; a node that joins later has the same image.
        "amiSelectorTerms": [{"alias": f"al2023@{version_set().eks_image}"}],
        "instanceProfile": stack.output("NodeProfileName"),
        "subnetSelectorTerms": [{"id": ids.private_subnets[0]}],
        # The group that EKS makes for the cluster, and the one that file systems let in.
        "securityGroupSelectorTerms": [
            {"tags": {f"kubernetes.io/cluster/{spec.name}": "owned"}},
            *([{"id": ids.security_group}] if ids.security_group is not None else []),
        ],
        "associatePublicIPAddress": False,
        "blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {**root, "deleteOnTermination": True}}],
        "metadataOptions": {"httpEndpoint": "enabled", "httpTokens": "required", "httpPutResponseHopLimit": 1},
        "tags": {**spec.tags, "trainwright:cluster": spec.name, "trainwright:queue": queue.name},
    }
    if machine.nvme_gb > 0 and any(item.nvme is not None for item in spec.storage):
        made["instanceStorePolicy"] = "RAID0"
    if isinstance(queue.placement, str):
        made["placementGroupSelector"] = {"name": queue.placement}
    elif queue.name in (placed := _placed(spec)):
        made["placementGroupSelector"] = {"name": stack.output(f"PlacementGroup{placed.index(queue.name) + 1}")}
    reservations = reserved(queue.capacity)
    if reservations:
        made["capacityReservationSelectorTerms"] = [{"id": one} for one in reservations]
    return {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": queue.name},
        "spec": made,
    }


def reserved(capacity: Capacity) -> tuple[str, ...]:
    """The reservations that nodes may use; `check` refuses a group that is named by its ARN."""
    return capacity.reservations or (
        (capacity.id,) if capacity.kind in ("reservation", "block") and capacity.id else ()
    )


def _node_pool(setting: Setting, queue: Queue, ids: Ids, stack: StackPlan) -> Data:
    machine = setting.queue_instance(queue)
    assert queue.count is not None
    bought = "reserved" if reserved(queue.capacity) else queue.capacity.kind
    node: Data = {
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": queue.name},
        "requirements": [
            {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [machine.name]},
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [bought]},
        ],
        "expireAfter": "Never",  # else Karpenter replaces nodes after a month, in the middle of a training
    }
    if machine.is_gpu:
        node["taints"] = [dict(GPU_TAINT)]
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": queue.name},
        "spec": {
            "template": {"metadata": {"labels": labels_of(queue, machine)}, "spec": node},
            "limits": {"cpu": machine.vcpus * queue.count.max},  # as many nodes as the queue may have
            "disruption": {
                "consolidationPolicy": "WhenEmpty",
                "consolidateAfter": IDLE,
                # A newer image or setting waits until a node is empty: a training is never moved for it.
                "budgets": [
                    {"nodes": "0", "reasons": ["Drifted", "Underutilized"]},
                    {"nodes": "100%", "reasons": ["Empty"]},
                ],
            },
        },
    }
