"""K8S006 on custom kinds (Ray, Kubeflow, JobSet, Kueue, Karpenter), judged by the schemas of their definitions, as
`tools/custom_kinds.py --judge` keeps them: what is reported must be refused, and what is of a wrong type reported."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from test_kubernetes_keys import about_types, changed, findings, places, reported

from trainwright.check.kubernetes_schema import CUSTOM, OBJECTS, custom_types, types
from trainwright.check.rules.k8s_places import _ELSEWHERE, _OF_PODS

SCHEMAS = json.loads((Path(__file__).parent / "files" / "custom_kinds.json").read_text(encoding="utf-8"))
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
METADATA = {
    "type": "object", "additionalProperties": False,
    "properties": {"name": {"type": "string"}, "namespace": {"type": "string"}, "labels": TEXTS, "annotations": TEXTS},
}  # fmt: skip
META = {"name": "a", "labels": {"b": "c"}}
TEXT = {"type": "string"}
CONTAINER = {"type": "object", "properties": {"name": TEXT, "image": TEXT}, "additionalProperties": False}
POD = {
    "type": "object", "additionalProperties": False,
    "properties": {"containers": {"type": "array", "items": CONTAINER}},
}  # fmt: skip
TEMPLATE = {"metadata": {"labels": {"app": "train"}}, "spec": {"containers": [{"name": "pytorch", "image": "a:1"}]}}
RAY = {
    "rayVersion": "2.46.0", "enableInTreeAutoscaling": True,
    "autoscalerOptions": {"idleTimeoutSeconds": 60, "upscalingMode": "Default", "env": [{"name": "A", "value": "1"}]},
    "headGroupSpec": {"rayStartParams": {"dashboard-host": "0.0.0.0", "num-cpus": "0"}, "template": TEMPLATE},
    "workerGroupSpecs": [
        {
            "groupName": "gpu", "replicas": 2, "minReplicas": 1, "maxReplicas": 4, "rayStartParams": {"num-gpus": "8"},
            "template": TEMPLATE, "scaleStrategy": {"workersToDelete": ["a"]},
        },
    ],
}  # fmt: skip
JOBS = [
    {
        "name": "workers", "replicas": 1, "dependsOn": [{"name": "data", "status": "Complete"}],
        "template": {"spec": {"parallelism": 4, "completions": 4, "backoffLimit": 0, "template": TEMPLATE}},
    },
]  # fmt: skip
REPLICA = {"replicas": 2, "restartPolicy": "OnFailure", "template": TEMPLATE}
RUN_POLICY = {"cleanPodPolicy": "None", "backoffLimit": 3, "schedulingPolicy": {"minAvailable": 3, "queue": "a"}}
QUEUE = {
    "namespaceSelector": {"matchLabels": {"team": "a"}}, "queueingStrategy": "BestEffortFIFO",
    "preemption": {"withinClusterQueue": "LowerPriority", "borrowWithinCohort": {"policy": "Never"}},
    "resourceGroups": [
        {
            "coveredResources": ["nvidia.com/gpu"],
            "flavors": [{"name": "p5", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": 64}]}],
        },
    ],
}  # fmt: skip
NODES = {
    "weight": 10, "limits": {"nvidia.com/gpu": 64},
    "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "30m", "budgets": [{"nodes": "0"}]},
    "template": {
        "metadata": {"labels": {"pool": "gpu"}},
        "spec": {
            "expireAfter": "Never", "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "a"},
            "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"], "minValues": 1}],
            "taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule", "value": "true"}],
        },
    },
}  # fmt: skip
NODE_CLASS = {
    "amiSelectorTerms": [{"alias": "al2023@v20250403"}], "role": "nodes", "tags": {"team": "a"},
    "subnetSelectorTerms": [{"tags": {"net": "a"}}], "securityGroupSelectorTerms": [{"id": "sg-0123456789abcdef0"}],
    "blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "500Gi", "iops": 3000}}],
    "metadataOptions": {"httpPutResponseHopLimit": 2, "httpTokens": "required"}, "detailedMonitoring": False,
}  # fmt: skip
FLAVOR = {"nodeLabels": {"node.kubernetes.io/instance-type": "p5.48xlarge"}, "tolerations": [{"operator": "Exists"}]}
SPECS: dict[str, dict[str, Any]] = {
    "ray.io/v1 RayCluster": RAY,
    "ray.io/v1 RayJob": {
        "entrypoint": "python train.py", "runtimeEnvYAML": "pip: []", "shutdownAfterJobFinishes": True,
        "metadata": {"team": "a"}, "entrypointNumGpus": 0.5, "ttlSecondsAfterFinished": 60, "rayClusterSpec": RAY,
    },
    "kubeflow.org/v1 PyTorchJob": {
        "nprocPerNode": "8", "elasticPolicy": {"rdzvBackend": "c10d", "maxRestarts": 3, "rdzvConf": [{"key": "a"}]},
        "runPolicy": RUN_POLICY, "pytorchReplicaSpecs": {"Master": {**REPLICA, "replicas": 1}, "Worker": REPLICA},
    },
    "kubeflow.org/v2beta1 MPIJob": {
        "slotsPerWorker": 8, "runPolicy": RUN_POLICY, "mpiReplicaSpecs": {"Launcher": REPLICA, "Worker": REPLICA},
    },
    "jobset.x-k8s.io/v1alpha2 JobSet": {
        "network": {"enableDNSHostnames": True, "subdomain": "a"}, "replicatedJobs": JOBS,
        "failurePolicy": {"maxRestarts": 3, "rules": [{"name": "a", "action": "FailJobSet"}]},
    },
    "trainer.kubeflow.org/v1alpha1 TrainJob": {
        "runtimeRef": {"name": "torch-distributed"}, "initializer": {"dataset": {"storageUri": "s3://a/b"}},
        "trainer": {"numNodes": 2, "command": ["torchrun"], "image": "a:1", "env": [{"name": "A", "value": "1"}]},
    },
    "trainer.kubeflow.org/v1alpha1 ClusterTrainingRuntime": {
        "mlPolicy": {"numNodes": 2, "torch": {}}, "template": {"spec": {"replicatedJobs": JOBS}},
    },
    "kueue.x-k8s.io/v1beta1 ClusterQueue": {"cohort": "all", **QUEUE},
    "kueue.x-k8s.io/v1beta2 ClusterQueue": {"cohortName": "all", **QUEUE},
    "kueue.x-k8s.io/v1beta1 LocalQueue": {"clusterQueue": "a"},
    "kueue.x-k8s.io/v1beta2 LocalQueue": {"clusterQueue": "a", "stopPolicy": "None"},
    "kueue.x-k8s.io/v1beta1 ResourceFlavor": FLAVOR,
    "kueue.x-k8s.io/v1beta2 ResourceFlavor": FLAVOR,
    "kueue.x-k8s.io/v1beta1 Topology": {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]},
    "kueue.x-k8s.io/v1beta2 Topology": {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]},
    "karpenter.sh/v1 NodePool": NODES,
    "karpenter.k8s.aws/v1 EC2NodeClass": NODE_CLASS,
}  # fmt: skip
VALID = [
    json.loads(json.dumps({"apiVersion": name.split()[0], "kind": name.split()[1], "metadata": META, "spec": spec}))
    for name, spec in SPECS.items()
]


def strict(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema as kubectl applies it, which refuses keys that are not there."""
    result = dict(POD if schema.get("$comment") == "PodSpec" else schema)
    if "properties" in schema:
        result["properties"] = {key: strict(value) for key, value in schema["properties"].items()}
        if "x-kubernetes-preserve-unknown-fields" not in schema:
            result.setdefault("additionalProperties", False)
    if "items" in schema:
        result["items"] = strict(schema["items"])
    if isinstance(result.get("additionalProperties"), dict):
        result["additionalProperties"] = strict(result["additionalProperties"])
    return result


def judge(value: dict[str, Any]) -> list[jsonschema.ValidationError]:
    schema = strict(SCHEMAS[f"{value['apiVersion'].replace('/', '_')}_{value['kind']}"])
    schema["properties"]["metadata"] = METADATA
    return list(jsonschema.Draft7Validator(schema).iter_errors(value))


@pytest.mark.parametrize("value", VALID, ids=lambda one: f"{one['apiVersion']} {one['kind']}")
def test_it_agrees_with_the_schemas(value: dict[str, Any]) -> None:
    assert judge(value) == []
    assert findings(value) == []
    rng, refused = random.Random(6), 0
    for _ in range(60):
        other = changed(value, rng)
        ours, errors = about_types(other), judge(other)
        if ours:
            refused += 1
            assert errors, (ours, other)
        else:
            assert [error for error in errors if certain(error)] == [], other
    assert refused > 20


def certain(error: jsonschema.ValidationError) -> bool:
    """Whether the value has a wrong type at a key whose type no other release changed."""
    return error.validator == "type" and error.instance != 2.5 and "numProcPerNode" not in error.absolute_path


def test_every_kind_is_judged() -> None:
    """Of a TrainingRuntime no schema is kept; its spec is that of a ClusterTrainingRuntime."""
    judged = {(value["apiVersion"], value["kind"]) for value in VALID}
    assert judged == {pair for pair in CUSTOM if pair[1] != "TrainingRuntime"}
    assert {f"{version.replace('/', '_')}_{kind}" for version, kind in judged} == set(SCHEMAS)
    assert not CUSTOM.keys() & OBJECTS.keys()


def test_the_types_of_the_table_exist() -> None:
    inner = {key.inner for keys in custom_types().values() for key in keys.values() if key.inner}
    assert inner <= {*types(), *custom_types()}
    assert set(CUSTOM.values()) <= set(custom_types())


RAY_JOB = "apiVersion: ray.io/v1\nkind: RayJob\nmetadata: {name: a}\nspec:\n"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("  clusterSelector:\n    matchLabels: {a: b}", [6]),
        ("  clusterSelector: {ray.io/cluster: a}", []),
        ("  runtimeEnv: {envVars: {A: b}}", [5]),
        ("  runtimeEnv: cGlwOiBbXQ==", []),  # KubeRay 1.0 took it as base64
        ("  runtimeEnvYAML: {pip: [torch]}", [5]),
        ("  entryPoint: python train.py", [5]),
        ("  entrypoint: python train.py\n  entryPoint: python train.py", []),  # nobody can say what it is meant to be
        ("  headGroupSpec: {rayStartParams: {}}", [5]),  # of rayClusterSpec
        ("  somethingOfTomorrow: 3", []),
        ("  rayClusterSpec: {headGroupSpec: {rayStartParams: {port: 6380}}}", [5]),
        ('  rayClusterSpec: {headGroupSpec: {rayStartParams: {port: "6380"}}}', []),
        ("  rayClusterSpec: {headGroupSpec: {rayStartParams: {block: true}}}", [5]),
        ("  rayClusterSpec: {headGroupSpec: {rayStartParams: {num-gpus: ${GPUS}}}}", []),
        ("  rayClusterSpec: {workerGroupSpecs: {groupName: a}}", [5]),
        ("  rayClusterSpec:\n    workerGroupSpecs:\n      - groupName: a\n        tolerations: []", [8]),
    ],
)
def test_ray(lines: str, expected: list[int]) -> None:
    assert reported(f"{RAY_JOB}{lines}\n") == [f"error K8S006 {line}" for line in expected]


@pytest.mark.parametrize(
    ("version", "kind", "spec", "count"),
    [
        ("kubeflow.org/v1", "PyTorchJob", {"nprocPerNode": 8}, 1),
        ("kubeflow.org/v1", "PyTorchJob", {"cleanPodPolicy": "None", "backoffLimit": 3}, 0),  # before runPolicy
        ("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": {"Worker": {**REPLICA, "nodeSelector": {}}}}, 1),
        ("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpec": {"Worker": REPLICA}}, 1),
        ("kubeflow.org/v1", "MPIJob", {"slotsPerWorker": "8"}, 0),  # another version, of which no schema is known
        ("kubeflow.org/v1", "PytorchJob", {}, 1),
        ("batch/v1", "PyTorchJob", {}, 1),
        ("trainer.kubeflow.org/v1alpha1", "TrainJob", {"trainer": {"numProcPerNode": "auto"}, "labels": {}}, 0),
        ("trainer.kubeflow.org/v1alpha1", "TrainJob", {"podTemplateOverrides": [{"spec": {}}]}, 0),
        ("trainer.kubeflow.org/v1alpha1", "TrainJob", {"trainer": {"numNodes": "2"}}, 1),
        ("karpenter.sh/v1", "NodePool", {"requirements": []}, 1),  # of a Provisioner
        ("karpenter.sh/v1", "NodePool", {"disruption": {"expireAfter": "720h", "consolidateAfter": "0s"}}, 1),
        ("karpenter.sh/v1", "NodePool", {"disruption": {"budgets": [{"nodes": 0}], "consolidateAfter": "0s"}}, 1),
        ("karpenter.sh/v1", "NodePool", {"template": {"spec": {"kubelet": {}}}}, 1),  # of v1beta1
        ("karpenter.sh/v1beta1", "NodePool", {"disruption": {"expireAfter": "720h"}}, 0),
        ("kueue.x-k8s.io/v1beta1", "ClusterQueue", {"namespaceSelector": {}, "cohort": 1}, 1),
    ],
)
def test_one_mistake(version: str, kind: str, spec: dict[str, Any], count: int) -> None:
    value = {"apiVersion": version, "kind": kind, "metadata": {"name": "a"}, "spec": spec}
    assert len(findings(value)) == count


def test_a_pod_inside_is_read_once() -> None:
    pod = {"containers": [{"name": "pytorch", "image": "a:1", "volumeMount": []}]}
    for value in VALID[:2]:
        spec = {**RAY, "headGroupSpec": {"rayStartParams": {}, "template": {"spec": pod}}}
        inside = {"rayClusterSpec": spec} if value["kind"] == "RayJob" else spec
        assert len(findings({**value, "spec": inside})) == 1, value["kind"]


def test_keys_that_belong_elsewhere_are_known_there_and_not_here() -> None:
    for here, _, names in _ELSEWHERE:
        assert not names & custom_types()[here].keys()
        assert names <= {key for keys in custom_types().values() for key in keys} | set(types()["JobSpec"])
    for here, keys in custom_types().items():
        if "template" in keys and keys["template"].inner == "PodTemplateSpec":
            assert _OF_PODS & keys.keys() <= {"restartPolicy"}, here


def test_places_reach_below_replicas() -> None:
    """The changes above touch the levels at which real files have their mistakes."""
    value = next(one for one in VALID if one["kind"] == "PyTorchJob")
    assert ("spec", "pytorchReplicaSpecs", "Worker", "replicas") in set(places(value))


@pytest.mark.parametrize(
    ("version", "kind", "spec", "fix"),
    [
        ("karpenter.sh/v1", "NodePool", {"template": {"spec": {"expireAfter": 720}}}, "write it with a unit: 720h"),
        ("ray.io/v1", "RayCluster", {"headGroupSpec": {"rayStartParams": {"resources": {"a": 4}}}},
         "write it as text: ray start takes JSON there"),
    ],
)  # fmt: skip
def test_a_fix_is_one_that_the_controller_takes(  # type: ignore[no-untyped-def]
    run, version: str, kind: str, spec: dict[str, Any], fix: str
) -> None:
    value = {"apiVersion": version, "kind": kind, "metadata": {"name": "a"}, "spec": spec}
    (found,) = run("a.yaml", json.dumps(value), "K8S006")
    assert found.fix == fix
