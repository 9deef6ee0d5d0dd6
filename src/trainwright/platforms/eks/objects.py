"""Objects of the cluster itself: volumes for the spec's file systems, Kueue's queues and the runtime of TrainJobs.
`submit` makes the jobs."""

from __future__ import annotations

from typing import Any

from trainwright.platforms.containers import claim_name, network_layers
from trainwright.platforms.eks.nodegroups import QUEUE_LABEL
from trainwright.platforms.setting import Setting, gib, lustre_gib
from trainwright.platforms.wiring import Ids, StackPlan
from trainwright.schedulers.base import Launch
from trainwright.schedulers.kubernetes.kinds import TRAINJOB_RUNTIME
from trainwright.schedulers.kubernetes.pod import GPU_TOLERATION
from trainwright.spec.model import Queue, Storage

Data = dict[str, Any]
KUEUE = "kueue.x-k8s.io/v1beta2"


def storage_objects(setting: Setting, ids: Ids, stacks: tuple[StackPlan, ...]) -> list[Data]:
    """A volume and the claim of it for each shared file system; the claim's name is what jobs mount."""
    objects: list[Data] = []
    by_key = {stack.key: stack for stack in stacks}
    for item in setting.spec.storage:
        source = _source(item, ids, by_key)
        if source is not None:
            objects += _volume(setting, item, source)
    return objects


def _source(item: Storage, ids: Ids, stacks: dict[str, StackPlan]) -> Data | None:
    if item.lustre is not None:
        stack = stacks.get(f"lustre-{item.stack_key}")
        if stack is None:
            return None  # an existing file system: its mount name is only known to AWS, so `claims` must name a claim
        names = {"dnsname": stack.output("DnsName"), "mountname": stack.output("MountName")}
        handle = ids.file_systems[item.mount]
        return {"driver": "fsx.csi.aws.com", "volumeHandle": handle, "volumeAttributes": names}
    if item.efs is not None and item.efs.id is not None:
        return {"driver": "efs.csi.aws.com", "volumeHandle": item.efs.id}
    return None


def _volume(setting: Setting, item: Storage, source: Data) -> list[Data]:
    spec = setting.spec
    name = spec.kubernetes.claims.get(item.mount, claim_name(item.mount))
    size = f"{lustre_gib(item.lustre.capacity) if item.lustre else gib(2**40)}Gi"
    meta = {"labels": {"app.kubernetes.io/managed-by": "trainwright", "trainwright/cluster": spec.name}}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{spec.name}-{name}", **meta},
        "spec": {
            "capacity": {"storage": size},
            "volumeMode": "Filesystem",
            "accessModes": ["ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            "mountOptions": ["flock"] if item.lustre else [],
            "csi": source,
            "claimRef": {"namespace": spec.kubernetes.namespace, "name": name},
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": spec.kubernetes.namespace, **meta},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "",
            "volumeName": f"{spec.name}-{name}",
            "resources": {"requests": {"storage": size}},
        },
    }
    return [volume, claim]


def queue_objects(setting: Setting) -> list[Data]:
    """One flavor, cluster queue and local queue per queue of the spec: a job is admitted whole or waits. A topology,
    where nodes say where in the network they are: the nodes of a job are then as near to each other as they can be."""
    spec = setting.spec
    layers = next((found for queue in spec.queues if (found := network_layers(spec, queue))), ())
    objects = [_topology(spec.name, layers)] if layers else []
    for queue in setting.spec.queues:
        name = f"{setting.spec.name}-{queue.name}"
        flavor: Data = {"nodeLabels": {QUEUE_LABEL: queue.name}}
        if network_layers(spec, queue):
            flavor["topologyName"] = spec.name
        if setting.queue_instance(queue).is_gpu:
            flavor["tolerations"] = [GPU_TOLERATION]
        quota = _quota(setting, queue, name)
        objects += [
            {"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": flavor},
            {"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": quota},
            {
                "apiVersion": KUEUE,
                "kind": "LocalQueue",
                "metadata": {"name": queue.name, "namespace": setting.spec.kubernetes.namespace},
                "spec": {"clusterQueue": name},
            },
        ]  # fmt: skip
    return objects


def _topology(name: str, layers: tuple[str, ...]) -> Data:
    levels = [{"nodeLabel": label} for label in (*layers, "kubernetes.io/hostname")]
    return {"apiVersion": KUEUE, "kind": "Topology", "metadata": {"name": name}, "spec": {"levels": levels}}


def _quota(setting: Setting, queue: Queue, flavor: str) -> Data:
    machine = setting.queue_instance(queue)
    assert queue.count is not None
    nodes = queue.count.max
    amounts: dict[str, str | int] = {"cpu": machine.vcpus * nodes, "memory": f"{machine.memory_mib * nodes}Mi"}
    if machine.is_gpu:
        amounts["nvidia.com/gpu"] = machine.accelerator_count * nodes
    elif machine.is_neuron:
        amounts["aws.amazon.com/neuron"] = machine.accelerator_count * nodes
    if queue.efa:
        amounts["vpc.amazonaws.com/efa"] = machine.efa_cards * nodes
        amounts["hugepages-2Mi"] = f"{5120 * nodes}Mi"
    flavors = [{"name": flavor, "resources": [{"name": k, "nominalQuota": v} for k, v in amounts.items()]}]
    return {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": setting.spec.kubernetes.namespace}},
        "queueingStrategy": "BestEffortFIFO",
        "resourceGroups": [{"coveredResources": list(amounts), "flavors": flavors}],
    }


def runtime_objects() -> list[Data]:
    """What TrainJobs run on. Trainer's chart has a runtime of this name too, left out by default: its container may not
    be root, which EFA needs, and a pod that fails starts again alone while the others wait for it."""
    job = {
        "backoffLimit": 0,  # one lost pod means that all start again, together
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "node"}]}},
    }
    step = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}  # its command is the job's
    jobset = {
        "failurePolicy": {"maxRestarts": Launch.retries},
        "replicatedJobs": [{"name": "node", "template": {"metadata": step, "spec": job}}],
    }
    return [
        {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "ClusterTrainingRuntime",
            "metadata": {"name": TRAINJOB_RUNTIME, "labels": {"trainer.kubeflow.org/framework": "torch"}},
            "spec": {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": {"spec": jobset}},
        }
    ]
