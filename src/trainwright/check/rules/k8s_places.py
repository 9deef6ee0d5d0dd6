"""K8S: where a key belongs that stands in the wrong place, and what to write in the place of one that has none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from trainwright.check.kubernetes_schema import OBJECTS, Key, custom_types, keys_of, types
from trainwright.check.registry import Problem
from trainwright.check.rules.k8s_workloads import SELECTING
from trainwright.spec.source import Node

# Where a key that stands in the wrong place belongs, the most likely place first.
_PLACES = {
    "PodSpec": "the pod's spec", "Container": "the container", "ResourceRequirements": "the container's resources",
    "JobSpec": "the job's spec", "SecurityContext": "the container's securityContext",
    "PodTemplateSpec": "the pod template",
}  # fmt: skip
_OF_CONTAINERS = ("resources", "volumeMounts")  # pods have some of these too, since a short time
_SHARED_MEMORY = ("shmSize", "shm_size", "shm-size")  # of Compose and of docker run
MOVED = "it belongs to {}: move it there"
_OF_RUN_POLICY = ("backoffLimit", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "suspend")
_OF_METADATA = ("name", "namespace", "labels", "annotations")
# Keys of a pod that are written beside its template.
_OF_PODS = frozenset({
    "affinity", "containers", "dnsPolicy", "hostIPC", "hostNetwork", "imagePullSecrets", "initContainers",
    "nodeSelector", "restartPolicy", "securityContext", "serviceAccountName", "terminationGracePeriodSeconds",
    "tolerations", "topologySpreadConstraints", "volumeMounts", "volumes",
})  # fmt: skip
# Keys of custom kinds that no version has here: type, where they belong, and which they are.
_ELSEWHERE = [
    ("RayJob:spec", "rayClusterSpec",
     {"headGroupSpec", "workerGroupSpecs", "rayVersion", "enableInTreeAutoscaling", "autoscalerOptions"}),
    ("RayCluster:spec", "the spec of a RayJob", {"entrypoint", "shutdownAfterJobFinishes", "runtimeEnvYAML"}),
    ("NodePool:spec", "template.spec", {"requirements", "taints", "startupTaints", "nodeClassRef", "expireAfter"}),
    ("NodePool:spec", "disruption", {"consolidationPolicy", "consolidateAfter", "budgets"}),
    ("NodePool:spec.disruption", "spec.template.spec", {"expireAfter"}),
    ("NodePool:spec.template.spec", "the spec of the node class", {"kubelet"}),
    ("NodePool:spec.template.spec", "the spec of the NodePool", {"disruption", "limits", "weight"}),
    ("ClusterQueue:spec", "resourceGroups", {"flavors", "coveredResources"}),
    ("JobSet:spec.replicatedJobs", "template.spec", {"parallelism", "completions", "completionMode"}),
    ("PyTorchJob:spec", "elasticPolicy", {"minReplicas", "maxReplicas", "maxRestarts", "rdzvBackend"}),
]  # fmt: skip


def native_place(name: str, type_: str) -> str:
    """Where a key of Kubernetes' own objects belongs, as far as that is certain."""
    if name in _OF_METADATA:
        return "the metadata" if type_ in OBJECTS.values() or type_.endswith(("JobSpec", "SetSpec", "mentSpec")) else ""
    if type_ == "PodSecurityContext":
        return _PLACES["SecurityContext"] if name in types()["SecurityContext"] else ""
    if "template" not in types()[type_] and type_ not in ("PodSpec", "Container", "PodTemplateSpec", "Pod"):
        return ""
    order = ["Container", *_PLACES] if type_ == "PodSpec" or name in _OF_CONTAINERS else list(_PLACES)
    return next((_PLACES[other] for other in order if other != type_ and name in types()[other]), "")


def custom_place(name: str, type_: str) -> str:
    """Where a key of a custom kind belongs, if that is certain."""
    template = custom_types()[type_].get("template")
    if template is not None and template.inner == "PodTemplateSpec" and name in _OF_PODS:
        return "template.spec" if name in types()["PodSpec"] else "a container of template.spec"
    return next((place for here, place, names in _ELSEWHERE if here == type_ and name in names), "")


def _texts(node: Node) -> list[str]:
    return [one.text for one in node.walk() if one.is_scalar]


def for_kind(one: Problem, kind: str) -> Problem:
    """What belongs to a Job, or what only its pods may have, in an object of another kind."""
    if kind in (*SELECTING, "Pod") and one.fix == MOVED.format("the job's spec"):
        return replace(one, fix=f"remove it: a {kind} has no such key, only a Job")
    if kind in ("PyTorchJob", "MPIJob") and one.fix == MOVED.format("the job's spec"):
        policy = any(f" {key} " in one.message for key in _OF_RUN_POLICY)
        return replace(one, fix=MOVED.format("runPolicy") if policy else f"remove it: a {kind} has no such key")
    if kind in SELECTING and " restartPolicy " in one.message:
        return replace(one, fix=f"remove it: a {kind} always restarts its pods")
    return one


def place_below(node: Node, name: str, known: Mapping[str, Key]) -> str:
    """The one neighbour of a key whose own keys have its name: it stands too far to the left."""
    beside = [(key, known[key]) for key, child in node.items() if key in known and (child.is_map or child.is_list)]
    below = [
        f"an entry of {key}" if meant.is_list else key
        for key, meant in beside
        if meant.kind in ("map", "maps") and name in (keys_of(meant.inner) or {})
    ]
    return below[0] if len(below) == 1 else ""


def held_twice(node: Node, name: str) -> str:
    """The fix of a key that the pod's spec below has too; empty where it has none."""
    own, inner = node.get(name), node.get("template", "spec", name)
    if inner is None:
        return ""
    same = own is None or own.is_scalar or _texts(own) == _texts(inner)
    return "remove it: the pod's spec has it too" if same else f"move what it holds to {name} of the pod's spec"


def written_right(name: str, type_: str) -> str:
    """What was meant by a key that has no similar one, where that is plain."""
    if type_ == "ObjectMeta" and name in ("spec", "data", "stringData"):
        return "write it beside metadata: unindent it by two spaces"
    if type_ == "PersistentVolumeClaimVolumeSource" and name == "name":
        return "write claimName"
    if type_ == "EnvVar":
        return f"write `name: {name}`, and its value behind `value:`"
    if name in _SHARED_MEMORY:
        return "remove it, and mount an emptyDir with medium: Memory at /dev/shm"
    if type_ == "Container" and ("/" in name or name in ("gpu", "gpus")):
        return f"write {name if '/' in name else 'nvidia.com/gpu'} below resources.limits"
    if type_ == "ResourceRequirements" and "/" in name:
        return "write it below limits"
    if type_ == "ResourceRequirements" and name in ("cpu", "memory"):
        return "write it below requests or limits"
    return "move it to where it belongs, or remove it"
