"""Mistakes of infrastructure and manifests that a stranger planted and earlier versions did not report: each gives the
named finding at its line, and the corrected file gives none of that rule."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from trainwright.check.engine import Selection, check
from trainwright.check.finding import Finding

NODE_GROUP = """resource "aws_eks_node_group" "p5" {
  cluster_name   = "c"
  subnet_ids     = ["subnet-0a1b2c3d4e5f67890"]
  instance_types = ["p5.48xlarge"]
  ami_type       = "AL2023_x86_64_NVIDIA"
  disk_size      = 200
  LAUNCH
  scaling_config {
    desired_size = 4
    max_size     = 4
    min_size     = 0
  }
}
"""


def found(tmp_path: Path, name: str, text: str, code: str) -> list[Finding]:
    (tmp_path / name).write_text(text)
    return check([str(tmp_path / name)], Selection(select=(code,))).findings


@pytest.mark.parametrize(
    ("code", "old", "new", "line"),
    [
        ("CAP001", "desired_size = 4", "desired_size = 8", 9),
        ("STO008", "disk_size      = 200", "disk_size      = 20", 6),
    ],
)
def test_node_group_of_terraform(tmp_path: Path, code: str, old: str, new: str, line: int) -> None:
    right = NODE_GROUP.replace("LAUNCH", 'launch_template { id = "lt-0a1b2c3d4e5f67890" }')
    assert found(tmp_path, "main.tf", right, code) == []
    assert [f.span.line for f in found(tmp_path, "main.tf", right.replace(old, new), code)] == [line]


def test_efa_of_the_resource_needs_a_launch_template(tmp_path: Path) -> None:
    """`enable_efa_support` is an argument of the community module only."""
    (finding,) = found(tmp_path, "main.tf", NODE_GROUP.replace("LAUNCH", ""), "TFM001")
    assert "launch_template" in finding.fix
    assert "enable_efa_support" not in finding.fix


POOL = """apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: gpu}
spec:
  disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 10m}
  template:
    spec:
      expireAfter: Never
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: gpu}
      requirements:
        - {key: node.kubernetes.io/instance-type, operator: In, values: [p5.48xlarge]}
  limits: {nvidia.com/gpu: 64}
"""


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ("[p5.48xlarge]", "[p55.48xlarge]", [11]),
        ("[p5.48xlarge]", "[p5.24xlarge]", [11]),
        ("[p5.48xlarge]", "[p9x.48xlarge]", []),  # may be newer than the catalog
        ("Never", "24h", [8]),
        ("gpu: 64", "gpu: 4", [12]),
        ("gpu: 64", "gpu: 0", []),
        ("nvidia.com/gpu: 64", "cpu: 96", [12]),
    ],
)
def test_node_pool(tmp_path: Path, old: str, new: str, lines: list[int]) -> None:
    assert found(tmp_path, "pool.yaml", POOL, "K8S003") == []
    assert [f.span.line for f in found(tmp_path, "pool.yaml", POOL.replace(old, new), "K8S003")] == lines


def test_misspelt_type_does_not_silence_its_pool(tmp_path: Path) -> None:
    text = POOL.replace("[p5.48xlarge]", "[p5.48xlarge, p55.48xlarge]").replace("Never", "24h")
    assert [f.span.line for f in found(tmp_path, "pool.yaml", text, "K8S003")] == [8, 11]


PYTORCH_JOB = """apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: train}
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      template:
        spec:
          containers:
            - name: pytorch
              image: train:1.0
              command: [torchrun, --nproc_per_node=8, --nnodes=2, train.py]
              resources:
                requests: {nvidia.com/gpu: 8, memory: 512Gi}
                limits: {nvidia.com/gpu: 8, memory: 512Gi}
              volumeMounts: [{name: shm, mountPath: /dev/shm}]
          volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 128Gi}}]
"""


@pytest.mark.parametrize(
    ("code", "old", "new", "line"),
    [
        ("K8S002", "replicas: 1", "replicas: 2", 7),
        ("K8S002", "name: pytorch", "name: trainer", 11),
        ("K8S001", "memory: 512Gi", "memory: 64Gi", 18),
    ],
)
def test_pytorch_job(tmp_path: Path, code: str, old: str, new: str, line: int) -> None:
    assert found(tmp_path, "job.yaml", PYTORCH_JOB, code) == []
    assert [f.span.line for f in found(tmp_path, "job.yaml", PYTORCH_JOB.replace(old, new), code)] == [line]


def test_literal_amounts_of_a_chart(tmp_path: Path) -> None:
    """What a chart writes out is compared, whatever its expressions add."""
    lines = "{{- with .Values.extra }}", "{{- toYaml . | nindent 14 }}", "{{- end }}"
    extra = "".join(f"{line:>40}\n" for line in lines)
    right = PYTORCH_JOB.replace("              volumeMounts", extra + "              volumeMounts")
    assert found(tmp_path, "job.yaml", right, "K8S001") == []
    wrong = right.replace("requests: {nvidia.com/gpu: 8", "requests: {nvidia.com/gpu: 4")
    assert [f.span.line for f in found(tmp_path, "job.yaml", wrong, "K8S001")] == [15]


JOB_SET = """apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: t}
spec:
  replicatedJobs:
    - name: w
      replicas: 1
      template:
        spec:
          parallelism: 4
          completions: 4
          template:
            spec:
              restartPolicy: Never
              containers: [{name: t, image: "x:1.0", command: [torchrun, --nnodes=4, train.py]}]
"""


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [("completions: 4", "completions: 2", 11), ("restartPolicy: Never", "restartPolicy: Always", 14)],
)
def test_job_set(tmp_path: Path, old: str, new: str, line: int) -> None:
    assert found(tmp_path, "jobset.yaml", JOB_SET, "K8S002") == []
    assert [f.span.line for f in found(tmp_path, "jobset.yaml", JOB_SET.replace(old, new), "K8S002")] == [line]


def test_every_port_is_named_as_such(tmp_path: Path) -> None:
    text = """resource "aws_security_group" "nodes" {
  ingress {
    from_port   = 0
    to_port     = 65535
    protocol    = "tcp"
    cidr_blocks = ["0.0.0.0/0"]
  }
}
"""
    (finding,) = found(tmp_path, "sg.tf", text, "SEC004")
    assert "every port" in finding.message


def test_token_of_neptune(tmp_path: Path) -> None:
    token = base64.b64encode(b'{"api_address": "https://app.example", "key": "0"}').decode()
    (finding,) = found(tmp_path, "a.sbatch", f"#!/bin/bash\nexport NEPTUNE_API_TOKEN={token}\nsrun true\n", "SEC003")
    assert finding.span.line == 2
    assert found(tmp_path, "b.sbatch", "#!/bin/bash\nexport NEPTUNE_API_TOKEN=$TOKEN\nsrun true\n", "SEC003") == []


@pytest.mark.parametrize(
    ("count", "extra", "lines"), [(1, {}, []), (2, {}, [1]), (2, {"slurm_configurations": {}}, [])]
)
def test_controllers_of_hyperpod(tmp_path: Path, count: int, extra: dict[str, object], lines: list[int]) -> None:
    """Several controllers work where the provisioning parameters describe them."""
    worker = {"instance_group_name": "workers", "partition_name": "dev"}
    provisioning = {
        "version": "1.0.0",
        "workload_manager": "slurm",
        "controller_group": "head",
        "worker_groups": [worker],
    }
    (tmp_path / "provisioning_parameters.json").write_text(json.dumps(provisioning | extra))
    scripts = {"SourceS3Uri": "s3://sagemaker-x/src", "OnCreate": "on_create.sh"}
    role = "arn:aws:iam::123456789012:role/x"
    groups = [
        {"InstanceGroupName": name, "InstanceType": type_, "InstanceCount": number, "LifeCycleConfig": scripts,
         "ExecutionRole": role}
        for name, type_, number in (("head", "ml.c5.xlarge", count), ("workers", "ml.p5.48xlarge", 16))
    ]  # fmt: skip
    text = json.dumps({"ClusterName": "train", "InstanceGroups": groups})
    assert [f.span.line for f in found(tmp_path, "cluster-config.json", text, "HYP001")] == lines


def test_advice_for_a_name_is_of_its_platform(tmp_path: Path) -> None:
    text = json.dumps({"ClusterName": "ml_cluster", "InstanceGroups": [{"InstanceGroupName": "w"}]})
    (finding,) = found(tmp_path, "cluster-config.json", text, "CFG002")
    assert finding.fix == "use letters, digits and hyphens, and start with a letter or digit"


SCRIPT = """import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("nccl")
rank = dist.get_rank()
sampler = DistributedSampler(ds)
loader = DataLoader(ds, batch_size=8, shuffle=False, sampler=sampler)
for epoch in range(10):
    sampler.set_epoch(epoch)
    model(next(iter(loader))).sum().backward()
    if rank == 0:
        torch.save(model.state_dict(), "/fsx/model.pt")
    dist.barrier()
"""


@pytest.mark.parametrize(
    ("code", "old", "new", "lines"),
    [
        ("PYT004", "shuffle=False", "shuffle=True", [8]),
        ("PYT004", "shuffle=False, sampler=sampler", "shuffle=True, sampler=other", []),
        ("PYT002", "    dist.barrier()", "        dist.barrier()", [14]),
        ("PYT002", "    dist.barrier()", "        dist.barrier()\nif rank != 0:\n    dist.barrier()", []),
    ],
)
def test_training_script(tmp_path: Path, code: str, old: str, new: str, lines: list[int]) -> None:
    assert found(tmp_path, "train.py", SCRIPT, code) == []
    assert [f.span.line for f in found(tmp_path, "train.py", SCRIPT.replace(old, new), code)] == lines


@pytest.mark.parametrize(("ranks", "lines"), [(128, []), (16, [10])])
def test_mpirun_has_ranks_for_every_worker(tmp_path: Path, ranks: int, lines: list[int]) -> None:
    text = f"""apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {{name: nccl}}
spec:
  slotsPerWorker: 8
  mpiReplicaSpecs:
    Launcher:
      template: {{spec: {{containers: [{{name: l, image: x, command: [mpirun, -np, "{ranks}", -N, "8", p, -n, 9]}}]}}}}
    Worker:
      replicas: 16
      template: {{spec: {{containers: [{{name: w, image: "x:1", resources: {{limits: {{nvidia.com/gpu: 8}}}}}}]}}}}
"""
    assert [f.span.line for f in found(tmp_path, "mpi.yaml", text, "K8S002")] == lines


SIZES = """#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node={tasks}
"""
NEMO = """trainer: {devices: 8, num_nodes: 4, max_steps: 1000}
model: {micro_batch_size: 4, global_batch_size: GLOBAL, tensor_model_parallel_size: 4}
"""
FOUNDRY = "max_duration: 100ba\nglobal_train_batch_size: GLOBAL\ndevice_train_microbatch_size: 4\n"


@pytest.mark.parametrize(
    ("path", "more", "batch", "count"),
    [
        ("$PWD", "", 128, 1),
        ("$PWD", " trainer.num_nodes=2", 128, 0),
        ("$PWD", " trainer.num_nodes=2", 100, 1),
        ("/elsewhere", "", 100, 0),
    ],
)
def test_configuration_of_nemo(tmp_path: Path, path: str, more: str, batch: int, count: int) -> None:
    (tmp_path / "gpt.yaml").write_text(NEMO.replace("GLOBAL", str(batch)))
    command = f"srun python /opt/pretrain.py --config-path={path} --config-name=gpt{more}\n"
    assert len(found(tmp_path, "run.sbatch", "#!/bin/bash\n" + SIZES.format(tasks=8) + command, "JOB016")) == count


@pytest.mark.parametrize(("batch", "count"), [(128, 0), (96, 0), (100, 1)])
def test_configuration_of_llm_foundry(tmp_path: Path, batch: int, count: int) -> None:
    (tmp_path / "mpt.yaml").write_text(FOUNDRY.replace("GLOBAL", str(batch)))
    command = "srun torchrun --nnodes 2 --nproc_per_node 8 /opt/llm-foundry/scripts/train/train.py mpt.yaml\n"
    assert len(found(tmp_path, "run.sbatch", "#!/bin/bash\n" + SIZES.format(tasks=1) + command, "JOB016")) == count


HYPERPOD = """AWSTemplateFormatVersion: '2010-09-09'
Resources:
  Nodes:
    Type: AWS::EC2::Subnet
    Properties: {VpcId: vpc-0a1b2c3d, CidrBlock: 10.40.32.0/MASK}
  Cluster:
    Type: AWS::SageMaker::Cluster
    Properties:
      VpcConfig: {Subnets: [!Ref Nodes], SecurityGroupIds: [sg-0d4e5f60718293a4b]}
      InstanceGroups:
        - {InstanceGroupName: workers, InstanceType: TYPE, InstanceCount: 16}
"""


@pytest.mark.parametrize(
    ("kind", "mask", "expected"),
    [
        ("ml.p5.48xlarge", "24", ["info"]),
        ("ml.p5.48xlarge", "22", []),
        ("ml.p5.48xlarge", "28", ["warning"]),
        ("ml.p4d.24xlarge", "24", []),
        ("ml.g5.48xlarge", "27", []),
    ],
)
def test_cards_of_hyperpod(tmp_path: Path, kind: str, mask: str, expected: list[str]) -> None:
    """HyperPod itself chooses the interfaces of its nodes: one on each card."""
    findings = found(tmp_path, "a.yaml", HYPERPOD.replace("MASK", mask).replace("TYPE", kind), "NET007")
    assert [(f.level, f.span.line) for f in findings] == [(level, 5) for level in expected]


ENROOT_CONF = """#!/bin/bash
cat > /etc/enroot/enroot.conf <<'CONF'
ENROOT_CACHE_PATH /scratch/enroot/cache
ENROOT_DATA_PATH  /var/lib/enroot/data/user-$(id -u)
CONF
"""


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (ENROOT_CONF, [4]),
        (ENROOT_CONF.replace("/var/lib", "/scratch"), []),
        (ENROOT_CONF.replace("/var/lib", "/opt/dlami/nvme"), []),
        (ENROOT_CONF.replace("ENROOT_DATA", "# ENROOT_DATA"), []),
        (ENROOT_CONF + "mount /dev/nvme1n1 /var/lib/enroot\n", []),
        (ENROOT_CONF + "ln -s /scratch/enroot /var/lib/enroot\n", []),
        ('#!/bin/bash\necho "ENROOT_TEMP_PATH /tmp/enroot" >> /etc/enroot/enroot.conf\n', [2]),
        ("#!/bin/bash\nexport ENROOT_DATA_PATH=/tmp/enroot\nsrun true\n", [2]),
        ("#!/bin/bash\nexport ENROOT_DATA_PATH=/opt/dlami/nvme/enroot\nsrun true\n", []),
    ],
)
def test_enroot_conf(tmp_path: Path, text: str, lines: list[int]) -> None:
    findings = found(tmp_path, "enroot.sh", text, "STO008")
    assert [(f.level, f.span.line) for f in findings] == [("info", line) for line in lines]
