"""Manifests that are right, or complete only together with others, and were reported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from reported import loud, rows

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]

POD = """apiVersion: v1
kind: Pod
metadata: {{name: train}}
spec:
  containers:
  - name: train
    image: pytorch/pytorch:2.7.1
    command: {command}
    args: {args}
"""
JOB = """apiVersion: batch/v1
kind: Job
metadata: {{name: train}}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: train
        image: pytorch/pytorch:2.7.1
        command: [{program}, -c]
        args:
        - |
          {script}
"""


@pytest.mark.parametrize(
    ("command", "args", "levels"),
    [
        ("[/bin/bash, -c, --]", "['while true; do sleep 30; done;']", []),  # `--` ends the options, the script follows
        ("[bash, -ec, --]", "['sleep infinity']", []),
        ("[/bin/sh, -c, --, 'sleep 1']", "[name]", []),
        ("[/bin/sh, -c, --, torchrun]", "[--standalone, train.py]", ["error K8S002 8"]),
    ],
)
def test_dashes_that_end_the_options_of_a_shell(run: Run, command: str, args: str, levels: list[str]) -> None:
    assert loud(run("a.yaml", POD.format(command=command, args=args), "K8S002")) == levels


@pytest.mark.parametrize(
    ("program", "lines", "count"),
    [
        ("bash", ['if [ -z "$JOB_COMPLETION_INDEX" ]; then R=0; else R=$JOB_COMPLETION_INDEX; fi', "train $R"], 0),
        ("bash", ['[[ -n "${JOB_COMPLETION_INDEX}" ]] && export RANK=$JOB_COMPLETION_INDEX', "python train.py"], 0),
        ("bash", ["export JOB_COMPLETION_INDEX=0", "python train.py --shard $JOB_COMPLETION_INDEX"], 0),
        ("python", ["import os", "i = os.environ.get('JOB_COMPLETION_INDEX')", "rank = int(i) if i else 0"], 0),
        ("python", ["import os", "i = os.getenv('JOB_COMPLETION_INDEX') or 0"], 0),
        ("python", ["import os", "if 'JOB_COMPLETION_INDEX' in os.environ: print(1)"], 0),
        ("bash", ["python train.py --rank $JOB_COMPLETION_INDEX"], 1),
        ("python", ["import os", "rank = int(os.environ['JOB_COMPLETION_INDEX'])"], 1),
    ],
)
def test_an_index_that_the_script_can_do_without(run: Run, program: str, lines: list[str], count: int) -> None:
    text = JOB.format(program=program, script="\n          ".join(lines))
    assert len(loud(run("a.yaml", text, "K8S002"))) == count


MPI = """apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {{name: train}}
spec:
  slotsPerWorker: 4
  mpiReplicaSpecs:
    Launcher:
      template:
        spec:
          containers:
          - name: launcher
            image: mpi:1
            env: {env}
            command: [{command}]
    Worker:
      replicas: 2
      template: {{spec: {{containers: [{{name: worker, image: "mpi:1"}}]}}}}
"""


@pytest.mark.parametrize(
    ("command", "env", "count"),
    [
        ('mpirun, -n, "2", -ppn, "1", python, train.py', "[]", 0),
        ('mpirun, -n, "2", -perhost, "1", python, train.py', "[]", 0),
        ('mpirun, -np, "4", -npersocket, "1", python, train.py', "[]", 0),
        ('mpirun, -np, "2", --mca, rmaps_base_mapping_policy, node, python, train.py', "[]", 0),
        ('mpirun, -np, "2", python, train.py', '[{name: OMPI_MCA_rmaps_base_mapping_policy, value: "node"}]', 0),
        ('mpirun, -n, "2", python, train.py', '[{name: I_MPI_PERHOST, value: "1"}]', 0),
        ('mpirun, -np, "1", hostname', "[]", 0),  # a test of the launcher
        ('mpirun, -np, "2", python, train.py', "[]", 1),
        ('mpirun, -n, "4", -ppn, "4", python, train.py', "[]", 1),
    ],
)
def test_ranks_that_are_placed_in_another_way(run: Run, command: str, env: str, count: int) -> None:
    assert len(loud(run("a.yaml", MPI.format(command=command, env=env), "K8S002"))) == count


BASE = """apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: train}
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      template:
        spec:
          containers:
          - name: pytorch
            image: train:1
            command: [torchrun, --nproc_per_node=8, train.py]
            resources: {requests: {nvidia.com/gpu: 8}}
            volumeMounts: [{name: data, mountPath: /data}]
"""
PLAIN_JOB = """apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  template:
    spec:
      containers: [{name: train, image: "pytorch/pytorch:2.7.1"}]
"""


@pytest.mark.parametrize("text", [BASE, PLAIN_JOB])
@pytest.mark.parametrize(
    ("place", "kustomization", "quiet"),
    [
        ("base/job.yaml", "resources: [job.yaml]\n", True),  # overlays complete it
        ("components/gpu/job.yaml", "kind: Component\nresources: [job.yaml]\n", True),
        ("app/job.yaml", "resources: [job.yaml]\npatches:\n- {path: gpu.yaml, target: {kind: .*Job}}\n", False),
        ("app/job.yaml", "resources: [job.yaml]\npatchesStrategicMerge: [../patch.yaml]\n", True),
        ("app/job.yaml", "resources: [job.yaml]\ncomponents: [../gpu]\n", True),
        ("app/job.yaml", "resources: [job.yaml]\nnamespace: ml\n", False),
        ("base/job.yaml", None, False),
    ],
)
def test_what_a_kustomization_may_add(
    tmp_path: Path, text: str, place: str, kustomization: str | None, quiet: bool
) -> None:
    file = tmp_path / place
    file.parent.mkdir(parents=True)
    file.write_text(text)
    (tmp_path / "patch.yaml").write_text("\n".join(text.splitlines()[:4]) + "\n  suspend: true\n")
    if kustomization is not None:
        (file.parent / "kustomization.yaml").write_text(kustomization)
    levels = {row["level"] for row in rows(tmp_path, "--select", "K8S")}
    assert bool(levels & {"error", "warning"}) is not quiet


OLD = """apiVersion: extensions/v1beta1
kind: Deployment
metadata: {name: server}
spec:
  selector: {matchLabels: {app: server}}
  template:
    metadata: {labels: {app: server}}
    spec:
      containers: [{name: a, image: "x:1", resources: {limits: {nvidia.com/gpu: 1}}}]
"""
BRANCHES = """{{- if semverCompare "<1.16-0" .Capabilities.KubeVersion.GitVersion }}
apiVersion: extensions/v1beta1
{{- else }}
apiVersion: apps/v1
{{- end }}
"""


def test_a_version_that_is_gone_beside_its_copy(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(OLD)
    assert [row["level"] for row in rows(tmp_path, "--select", "K8S006")] == ["error"]
    (tmp_path / "b.yaml").write_text(OLD.replace("extensions/v1beta1", "apps/v1"))
    assert [row["level"] for row in rows(tmp_path, "--select", "K8S006")] == ["info"]


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("k8s-1.8/a.yaml", "info"),
        ("deploy-v1.15.yaml", "info"),
        ("legacy/a.yaml", "info"),
        ("k8s-1.20/a.yaml", "error"),
        ("app-1.15.2/a.yaml", "error"),
    ],
)
def test_a_name_that_says_for_which_clusters(run: Run, name: str, level: str) -> None:
    assert [one.level for one in run(name, OLD, "K8S006")] == [level]


def test_an_old_version_in_a_branch_of_a_chart(run: Run) -> None:
    text = OLD.replace("apiVersion: extensions/v1beta1\n", BRANCHES)
    assert run("templates/a.yaml", text, "K8S006") == []


RAY = """apiVersion: ray.io/v1
kind: RayCluster
metadata: {{name: ray}}
spec:
  headGroupSpec:
    rayStartParams: {{{head}}}
    template: {{spec: {{containers: [{{name: head, image: "ray:1"}}]}}}}
  workerGroupSpecs:
  - groupName: gpu
    replicas: 1
    rayStartParams:
{remark}
      num-gpus: "4"
    template:
      spec: {{containers: [{{name: worker, image: "ray:1", resources: {{limits: {{nvidia.com/gpu: 1}}}}}}]}}
"""


@pytest.mark.parametrize(
    ("remark", "levels"),
    [("      # four actors share one GPU", []), ("      # of the workers\n      block: 'true'", ["error K8S002 14"])],
)
def test_gpus_that_ray_shares(run: Run, remark: str, levels: list[str]) -> None:
    assert loud(run("a.yaml", RAY.format(head="", remark=remark), "K8S002")) == levels


def test_ports_among_those_of_the_workers_are_one_finding(run: Run) -> None:
    head = "object-manager-port: '12345', node-manager-port: '12346'"
    findings = run("a.yaml", RAY.format(head=head, remark="      # meant"), "K8S002")
    assert loud(findings) == ["error K8S002 6"]
    assert "object-manager-port is 12345 and node-manager-port 12346" in findings[0].message


@pytest.mark.parametrize(
    ("given", "count"), [("valueFrom:", 0), ("valueFrom: {fieldRef: {fieldPath: spec.nodeName}}", 1)]
)
def test_a_source_that_is_empty(run: Run, given: str, count: int) -> None:
    pod = (
        POD.format(command="[python]", args="[train.py]")
        + f'    env:\n    - name: NODE\n      value: "a"\n      {given}\n'
    )
    assert len(loud(run("a.yaml", pod, "K8S006"))) == count


@pytest.mark.parametrize(("kind", "key", "level"), [("TFJob", "tf", "info"), ("PyTorchJob", "pytorch", "warning")])
def test_loaders_of_tensorflow_are_threads(run: Run, kind: str, key: str, level: str) -> None:
    text = BASE.replace("PyTorchJob", kind).replace("pytorchReplicaSpecs", f"{key}ReplicaSpecs")
    text = text.replace("[torchrun, --nproc_per_node=8, train.py]", "[python, train.py, --num_workers=4]")
    problems = [one.level for one in run("a.yaml", text, "K8S001") if "/dev/shm" in one.message]
    assert problems == [level]


OF_OPERATOR = """apiVersion: {version}
kind: {kind}
metadata: {{name: gpu}}
spec:
  replicas: 2
  selector: {{matchLabels: {{app: a}}}}
  template:
    metadata: {{labels: {{app: a}}}}
    spec:
      containers:
      - name: worker
        image: a:1
        command: [torchrun, --nproc_per_node=8, train.py]
        resources: {{limits: {{nvidia.com/gpu: 8}}}}
        volumeMounts: [{{name: etc-slurm, mountPath: /etc/slurm}}]
"""


@pytest.mark.parametrize(
    ("version", "kind", "levels"),
    [
        ("slinky.slurm.net/v1alpha1", "NodeSet", ["info", "info"]),  # whose operator adds volumes of its own
        ("apps/v1", "Deployment", ["error", "warning"]),
    ],
)
def test_volumes_that_an_operator_adds(run: Run, version: str, kind: str, levels: list[str]) -> None:
    problems = run("a.yaml", OF_OPERATOR.format(version=version, kind=kind), "K8S001")
    assert sorted(one.level for one in problems) == levels


POOL = """apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {{name: gpu}}
spec:
  template:
    spec:
      nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: {wanted}}}
      requirements: [{{key: node.kubernetes.io/instance-type, operator: In, values: [g5.xlarge]}}]
---
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {{name: {has}}}
spec: {{role: nodes}}
"""


@pytest.mark.parametrize(
    ("wanted", "has", "level"),
    [
        ("gpu-class-a", "gpu-class-b", "info"),  # two of a series: the other is in another file
        ("gpu-nodes-1", "gpu-nodes-2", "info"),
        ("gpu-nodes-v1", "gpu-nodes-v2", "info"),
        ("gpu-noeds", "gpu-nodes", "error"),
        ("gpu-node-s", "gpu-nodes", "error"),
        ("gpu-node", "gpu-nodes", "error"),
    ],
)
def test_classes_of_a_series(run: Run, wanted: str, has: str, level: str) -> None:
    problems = run("a.yaml", POOL.format(wanted=wanted, has=has), "K8S003")
    assert [one.level for one in problems if "EC2NodeClass" in one.message] == [level]


def test_a_class_in_another_file(tmp_path: Path) -> None:
    (tmp_path / "pool.yaml").write_text(POOL.format(wanted="gpu-node", has="gpu-nodes"))
    (tmp_path / "class.yaml").write_text(POOL.partition("---\n")[2].format(has="gpu-node"))
    assert rows(tmp_path, "--select", "K8S003") == []


@pytest.mark.parametrize(
    ("command", "level"),
    [
        ('[python, train.py, --num_workers, "4"]', "warning"),
        ('[python, serve.py, --num_workers, "4"]', "info"),
        ('[gunicorn, app, --num-workers, "4"]', "info"),
        ('[dask-cuda-worker, --num-workers, "4"]', "info"),
    ],
)
def test_workers_of_a_server_are_no_data_loaders(run: Run, command: str, level: str) -> None:
    text = OF_OPERATOR.format(version="apps/v1", kind="Deployment")
    text = text.replace("[torchrun, --nproc_per_node=8, train.py]", command)
    assert [one.level for one in run("a.yaml", text, "K8S001") if "/dev/shm" in one.message] in ([level], [])
    assert level == "info" or len(run("a.yaml", text, "K8S001")) > 1
