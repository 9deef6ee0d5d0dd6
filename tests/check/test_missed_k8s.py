"""Mistakes of manifests that `check` did not report, each beside correct files that look alike."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from reported import loud, shown

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]

POD = """apiVersion: v1
kind: Pod
metadata: {{name: train}}
spec:
  nodeSelector: {selector}
  containers:
  - name: train
    image: {image}
    command: {command}
    resources: {{limits: {limits}}}
    volumeMounts: [{{name: shm, mountPath: /dev/shm}}]
  volumes: [{{name: shm, emptyDir: {shm}}}]
"""


def pod(
    limits: str = "{cpu: 1}",
    *,
    selector: str = "{}",
    shm: str = "{medium: Memory}",
    image: str = "a:1",
    command: str = "[python, train.py]",
) -> str:
    return POD.format(limits=limits, selector=selector, shm=shm, image=image, command=command)


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("nvidia.com/gpus", "nvidia.com/gpu"), ("nvidia.com/GPU", "nvidia.com/gpu"),
        ("nvdia.com/gpu", "nvidia.com/gpu"),
        ("nvidia.com/gup", "nvidia.com/gpu"), ("nvidia/gpu", "nvidia.com/gpu"), ("amd.com/gpus", "amd.com/gpu"),
        ("vpc.amazonaws.com/efas", "vpc.amazonaws.com/efa"), ("vpc.amazon.com/efa", "vpc.amazonaws.com/efa"),
        ("vpc.amazonaws.com/EFA", "vpc.amazonaws.com/efa"), ("aws.amazon.com/neurons", "aws.amazon.com/neuron"),
        ("aws.amazonaws.com/neuron", "aws.amazon.com/neuron"), ("hugepages-2M", "hugepages-2Mi"),
        ("alpha.kubernetes.io/nvidia-gpu", "nvidia.com/gpu"),
        ("hugepages-2MB", "hugepages-2Mi"), ("hugepages-1G", "hugepages-1Gi"),
    ],
)  # fmt: skip
def test_names_of_resources_that_no_node_has(run: Run, name: str, right: str) -> None:
    findings = run("a.yaml", pod(f"{{{name}: 8}}"), "K8S005")
    assert shown(findings) == ["error K8S005 10"]
    assert findings[0].fix == f"write {right}"


@pytest.mark.parametrize(
    "name",
    [
        "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb", "nvidia.com/gpumem", "nvidia.com/gpucores",
        "nvidia.com/vgpu", "nvidia.com/pgpu", "nvidia.com/hostdev", "nvidia.com/GA102GL_A10", "amd.com/gpu",
        "vpc.amazonaws.com/efa", "aws.amazon.com/neuron", "aws.amazon.com/neuroncore", "aws.amazon.com/neurondevice",
        "google.com/tpu", "habana.ai/gaudi", "gpu.intel.com/i915", "intel.com/gpu", "hugepages-2Mi", "hugepages-1Gi",
        "hugepages-64Ki", "rdma/hca", "smarter-devices/fuse", "tencent.com/vcuda-core", "aliyun.com/gpu-mem",
        "arm.com/gpu",
    ],
)  # fmt: skip
def test_names_of_resources_that_plugins_have(run: Run, name: str) -> None:
    assert run("a.yaml", pod(f"{{{name}: 8}}"), "K8S005") == []


P5 = "{node.kubernetes.io/instance-type: p5.48xlarge}"


@pytest.mark.parametrize(
    ("limits", "selector", "expected"),
    [
        ("{cpu: 256, nvidia.com/gpu: 8}", P5, ["error K8S005 10"]),
        ("{memory: 2100Gi}", P5, ["error K8S005 10"]),
        ("{memory: 2048Gi}", P5, ["error K8S005 10"]),
        ("{cpu: 192, memory: 1900Gi}", P5, []),
        ("{cpu: 190000m}", P5, []),
        ("{cpu: '${CPUS}'}", P5, []),
        ("{cpu: 256}", "{}", []),
        ("{cpu: 256}", "{node.kubernetes.io/instance-type: n1-standard-8}", []),
        ("{cpu: 256}", "{node.kubernetes.io/instance-type: ml.p5.48xlarge}", ["error K8S005 10"]),
    ],
)
def test_a_pod_must_fit_the_type_it_is_pinned_to(run: Run, limits: str, selector: str, expected: list[str]) -> None:
    assert shown(run("a.yaml", pod(limits, selector=selector), "K8S005")) == expected


def test_a_pod_that_asks_for_all_of_both(run: Run) -> None:
    """The fix of one alone would leave the pod pending."""
    (finding,) = run("a.yaml", pod("{cpu: 192, memory: 2048Gi}", selector=P5), "K8S005")
    assert finding.fix.startswith("request less than 192 CPUs and 2048 GiB of memory,")


@pytest.mark.parametrize(
    ("shm", "expected"),
    [
        ("{medium: Memory, sizeLimit: 64}", ["error K8S001 12"]),
        ('{medium: Memory, sizeLimit: "512"}', ["error K8S001 12"]),
        ("{medium: Memory, sizeLimit: 64m}", ["error K8S001 12"]),
        ("{medium: Memory, sizeLimit: 64Gi}", []),
        ("{medium: Memory, sizeLimit: 64Mi}", []),
        ("{medium: Memory, sizeLimit: 68719476736}", []),
        ("{medium: Memory, sizeLimit: 64G}", []),
        ("{medium: Memory, sizeLimit: 0}", []),
        ("{medium: Memory, sizeLimit: '${SHM}'}", []),
        ("{medium: Memory}", []),
    ],
)
def test_a_size_without_a_unit_is_bytes(run: Run, shm: str, expected: list[str]) -> None:
    assert shown(run("a.yaml", pod(shm=shm), "K8S001")) == expected


HOROVOD = """apiVersion: kubeflow.org/v1
kind: MPIJob
metadata: {{name: a}}
spec:
  slotsPerWorker: 8
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      template:
        spec:
          containers:
          - name: launcher
            image: {image}
            command: [mpirun, -np, "16", python, {script}]
    Worker:
      replicas: 2
      template:
        spec:
          containers:
          - name: worker
            image: {image}
            resources: {{limits: {{nvidia.com/gpu: 8}}}}
"""


@pytest.mark.parametrize(
    ("image", "script", "level"),
    [
        ("rafd/horovod:1", "train.py", "info"),
        ("tensorflow/tensorflow:2.15.0-gpu", "train.py", "info"),
        ("armand/maskrcnn:1", "/tensorpack/examples/FasterRCNN/train.py", "info"),
        ("horovod/horovod:0.28-tf2.11-torch1.13", "tensorflow2_mnist.py", "info"),
        ("horovod/horovod:0.28-tf2.11-torch1.13", "train.py", "warning"),
        ("horovod/horovod:0.28", "pytorch_mnist.py", "warning"),
        ("registry/train:1", "train.py", "warning"),
    ],
)
def test_shared_memory_of_horovod_and_tensorflow(run: Run, image: str, script: str, level: str) -> None:
    findings = run("a.yaml", HOROVOD.format(image=image, script=script), "K8S001")
    assert [f.level for f in findings if "/dev/shm" in f.message] == [level]


FORK = """apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  containers:
  - name: a
    image: a:1
    extendedResourceRequests: [nvidia-gpu]
  extendedResources:
  - name: nvidia-gpu
    resources: {limits: {nvidia.com/gpu: 1}}
"""


def test_two_keys_of_one_fork_are_one_finding(run: Run) -> None:
    findings = run("a.yaml", FORK, "K8S006")
    assert shown(findings) == ["error K8S006 8"]
    assert findings[0].fix.endswith("in the container: resources.limits with nvidia.com/gpu")
    apart = FORK.replace("    extendedResourceRequests: [nvidia-gpu]\n", "    gpuShare: 2\n")
    assert shown(run("a.yaml", apart, "K8S006")) == ["error K8S006 8", "error K8S006 9"]


MPI = """apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {{name: a}}
spec:
  slotsPerWorker: 8{more}
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      template:
        spec:
          containers:
          - {{name: a, image: a:1, command: [{command}]}}
    Worker:
      replicas: 2
      template:
        spec:
          containers: [{{name: a, image: a:1, resources: {{limits: {{nvidia.com/gpu: 8}}}}}}]
"""


@pytest.mark.parametrize(
    ("command", "more", "expected"),
    [
        ('mpirun, -np, "32", python, train.py', "", ["warning K8S002 14"]),
        ('mpirun, -np, "32", -N, "8", python, train.py', "", ["warning K8S002 14"]),
        ('bash, -c, "mpirun -np 32 python train.py"', "", ["warning K8S002 14"]),
        ('mpirun, -np, "8", python, train.py', "", ["warning K8S002 14"]),
        ('mpirun, -np, "8", -bind-to, none, -map-by, slot, -x, PATH, python, train.py', "", ["warning K8S002 14"]),
        ('mpirun, -np, "2", --map-by, "slot:PE=4", python, train.py', "", []),
        ('mpirun, -np, "16", python, train.py', "", []),
        ('mpirun, -np, "24", python, train.py', "\n  runLauncherAsWorker: true", []),
        ('mpirun, -np, "32", python, train.py', "\n  mpiImplementation: Intel", []),
        ('mpirun, --oversubscribe, -np, "32", python, train.py', "", []),
        ('mpirun, --map-by, "ppr:8:node:OVERSUBSCRIBE", -np, "32", python, train.py', "", []),
        ('mpirun, --hostfile, /tmp/hosts, -np, "32", python, train.py', "", []),
        ('mpirun, -np, "2", --map-by, node, python, train.py', "", []),
        ('mpirun, -np, "2", -N, "1", torchrun, train.py', "", []),
        ('mpirun, -np, "16", python, train.py, -np, "32"', "", []),
        ('mpirun, -np, "$(RANKS)", python, train.py', "", []),
        ('bash, -c, "mpirun -np 2 hostname; mpirun -np 16 python train.py"', "", []),
    ],
)
def test_ranks_of_mpirun_fit_the_slots(run: Run, command: str, more: str, expected: list[str]) -> None:
    lines = MPI.format(command=command, more=more)
    offset = more.count("\n")
    places = [one.replace("14", str(14 + offset)) for one in expected]
    assert shown(run("a.yaml", lines, "K8S002")) == places


JOB = """kind: Job
metadata: {name: train}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: a, image: "a:1", command: [python, train.py]}]
"""
SERVICE = "kind: Service\nmetadata: {name: a}\nspec: {clusterIP: None, selector: {app: a}}\n"
NO_POD = """kind: Pod
metadata: {name: a}
spec: {containers: [{name: a, image: "a:1", resources: {limits: {nvidia.com/gpu: 1}}}]}
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [(JOB, 1), (NO_POD, 1), (SERVICE + "---\n" + NO_POD, 1), ("apiVersion: batch/v1\n" + JOB + "---\n" + SERVICE, 10)],
)
def test_an_object_without_a_version(run: Run, text: str, line: int) -> None:
    findings = [f for f in run("a.yaml", text, "K8S006") if "apiVersion" in f.message]
    assert shown(findings)[0] == f"error K8S006 {line}"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "apiVersion: batch/v1\n" + JOB),
        ("pod_template.yaml", NO_POD),  # of Airflow or Spark
        ("a.yaml", JOB.replace(', image: "a:1"', "")),  # a part of an object
        ("a.yaml", "kind: Job\nname: train\nspec: {containers: 2}\n"),
        ("a.yaml", "kind: Service\nowner: me\nspec: {ports: [1]}\n"),
        ("a.yaml", "base: &b {apiVersion: v1}\n<<: *b\n" + NO_POD),
        ("values.yaml", NO_POD.replace("a:1", "{{ image }}")),
    ],
)
def test_parts_of_objects_need_no_version(run: Run, name: str, text: str) -> None:
    findings = run(name, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n---\n" + text, "K8S006")
    assert [f for f in findings if "apiVersion" in f.message] == []


POOL = """apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {{name: gpu}}
spec:
  template:
    spec:
      nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: {ref}}}
      requirements:
      - {{key: node.kubernetes.io/instance-type, operator: In, values: [{types}]}}
      - {{key: {key}, operator: {operator}, values: [{values}]}}
  disruption: {{consolidationPolicy: WhenEmpty, consolidateAfter: 10m}}
---
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {{name: gpu-nodes}}
spec: {{role: a, amiSelectorTerms: [{{alias: al2023@v20250519}}]}}
"""


def pool(
    types: str = "p5.48xlarge", key: str = "kubernetes.io/arch", values: str = "amd64", ref: str = "gpu-nodes",
    operator: str = "In",
) -> str:  # fmt: skip
    return POOL.format(types=types, key=key, values=values, ref=ref, operator=operator)


FAMILY, CATEGORY = "karpenter.k8s.aws/instance-family", "karpenter.k8s.aws/instance-category"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (pool(values="arm64"), ["error K8S003 10"]),
        (pool(key=FAMILY, values="p4d, p4de"), ["error K8S003 10"]),
        (pool(key=CATEGORY, values="c, m"), ["error K8S003 10"]),
        (pool(ref="gpu-node"), ["error K8S003 7"]),
        (pool(ref="default"), ["info K8S003 7"]),
        (pool(), []),
        (pool(values="arm64, amd64"), []),
        (pool(types="p5.48xlarge, g5g.xlarge", values="arm64"), []),  # one of them fits
        (pool(values="arm64", operator="NotIn"), []),
        (pool(types="p99.48xlarge", values="arm64", key="kubernetes.io/arch").replace("p99.48xlarge", "${TYPE}"), []),
        (pool(key=FAMILY, values="p5"), []),
        (pool(key=CATEGORY, values="p"), []),
        (pool(ref="${CLASS}"), []),
        (pool(ref="other").partition("---")[0], []),
    ],
)
def test_requirements_of_a_pool_agree(run: Run, text: str, expected: list[str]) -> None:
    assert shown(run("a.yaml", text, "K8S003")) == expected


RAY = """apiVersion: ray.io/v1
kind: RayCluster
metadata: {{name: a}}
spec:
  headGroupSpec:
    rayStartParams: {{}}
    template: {{spec: {{containers: [{{name: head, image: {head}}}]}}}}
  workerGroupSpecs:
  - groupName: gpu
    replicas: 1
    minReplicas: {least}
    maxReplicas: {most}
    rayStartParams: {{}}
    template: {{spec: {{containers: [{{name: worker, image: {worker}}}]}}}}
"""


@pytest.mark.parametrize(
    ("least", "most", "expected"),
    [("4", "2", ["info K8S002 11"]), ("2", "4", []), ("2", "2", []), ("0", "0", []), ("${A}", "2", [])],
)
def test_replicas_of_ray_workers(run: Run, least: str, most: str, expected: list[str]) -> None:
    text = RAY.format(least=least, most=most, head="a:1", worker="a:1")
    assert shown(run("a.yaml", text, "K8S002")) == expected


@pytest.mark.parametrize(
    ("head", "worker", "expected"),
    [
        ("rayproject/ray:2.9.0", "rayproject/ray:2.9.3", ["error K8S002 14"]),
        ("rayproject/ray:2.9.0", "rayproject/ray-ml:2.40.0-py310-gpu", ["error K8S002 14"]),
        ("rayproject/ray:2.9.0-py310", "rayproject/ray:2.9.0-py311-gpu", ["error K8S002 14"]),
        ("rayproject/ray:2.9.0", "rayproject/ray-ml:2.9.0-gpu", []),
        ("rayproject/ray:2.9.0", "rayproject/ray:latest", []),
        ("rayproject/ray:2.9.0", "registry/own-ray:2.10.0", []),
        ("rayproject/ray:nightly", "rayproject/ray:2.9.0", []),
        ("rayproject/ray:2.9.0", "rayproject/ray:${RAY_VERSION}", []),
        ("docker.io/rayproject/ray:2.9.0-py310", "rayproject/ray:2.9.0-py310-cu121", []),
        ("rayproject/ray:2.9.0", "rayproject/ray:2.9.0-py310", []),  # which Python the first has is its default
    ],
)
def test_versions_of_ray(run: Run, head: str, worker: str, expected: list[str]) -> None:
    text = RAY.format(least=1, most=2, head=head, worker=worker)
    assert loud(run("a.yaml", text, "K8S002")) == expected
