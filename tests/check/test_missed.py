"""Mistakes of public files that earlier versions did not report: each gives the named finding at its line, and the
corrected file gives none."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwright.check.engine import Selection, check

PCLUSTER = """Region: us-east-2
Image: {Os: ubuntu2204}
HeadNode:
  InstanceType: m5.2xlarge
  Networking: {SubnetId: subnet-0a1b2c3d4e5f67890}
  EXTRA
Scheduling:
  Scheduler: slurm
  SlurmQueues:
    - Name: cpu
      Networking: {SubnetIds: [subnet-0a1b2c3d4e5f67891]}
      ComputeResources: [{Name: c5, InstanceType: c5.4xlarge, MaxCount: 8}]
"""
GROUP = """AWSTemplateFormatVersion: '2010-09-09'
Resources:
  Shared:
    Type: AWS::EC2::SecurityGroup
    Properties:
      GroupDescription: file systems of the HPC cluster
      SecurityGroupIngress:
        - {IpProtocol: tcp, FromPort: PORT, ToPort: PORT, CidrIp: WHO}
"""
IMAGE = """AWSTemplateFormatVersion: '2010-09-09'
Parameters:
  Image: {Type: TYPE, Default: /aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64}
Resources:
  Login:
    Type: AWS::EC2::Instance
    Properties:
      InstanceType: g5.large
      ImageId: !Ref Image
"""
POD = """apiVersion: v1
kind: Pod
metadata: {name: train}
spec:
  containers:
    - name: train
      image: nvcr.io/nvidia/pytorch:25.03-py3
      command: [torchrun, --nproc_per_node=8, train.py]
      resources:
        limits:
          nvidia.com/gpu:GPUS
      volumeMounts: [{name: shm, mountPath: /dev/shm}]
  volumes: [{name: shm, emptyDir: {medium: Memory}}]
"""
SHELL = "#!/bin/bash\n"

JOBSET = """apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: train}
spec:
  replicatedJobs:
    - name: workers
      template:
        spec:
          parallelism: 4
          template:
            spec:
              containers:
                - name: train
                  image: example/train:1.0
                  command: [torchrun, OPTIONS--nproc_per_node=1, --master_addr=train-workers-0-0.train, train.py]
"""

# name of the file, text, what to replace by what, the finding expected before it is replaced
CASES = [
    ("a.sh", SHELL + "export NCCL_NET_GDR_LEVEL=LOC\nexport FI_EFA_USE_DEVICE_RDMA=1\nsrun python t.py\n",
     ("LOC", "PHB"), "warning ENV001 2"),
    ("a.sh", SHELL + "pip install torch>=2.1 numpy\n", ("torch>=2.1", "'torch>=2.1'"), "warning SHL001 2"),
    ("a.sh", SHELL + "python3 -m pip install torch 'numpy'<2\n", ("'numpy'<2", "'numpy<2'"), "warning SHL001 2"),
    ("Dockerfile", "FROM python:3.12\nRUN pip install --no-cache-dir \\\n  transformers>=4.40\n",
     ("transformers>=4.40", '"transformers>=4.40"'), "warning SHL001 3"),
    ("a.yaml", IMAGE.replace("TYPE", "String"),
     ("Type: String", "Type: AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>"),
     "error CFN001 9"),
    ("a.yaml", IMAGE.replace("!Ref Image", "/aws/service/x").replace("TYPE", "String"),
     ("/aws/service/x", "'{{resolve:ssm:/aws/service/x}}'"), "error CFN001 9"),
    ("a.yaml", POD.replace("GPUS", ""), ("nvidia.com/gpu:", "nvidia.com/gpu: 8"), "error K8S001 11"),
    ("a.yaml", GROUP.replace("PORT", "2049").replace("WHO", "0.0.0.0/0"),
     ("0.0.0.0/0", "10.0.0.0/16"), "warning SEC004 8"),
    ("a.yaml", GROUP.replace("PORT", "988").replace("WHO", "0.0.0.0/0"),
     ("0.0.0.0/0", "10.0.0.0/16"), "warning SEC004 8"),
    ("a.yaml", PCLUSTER.replace("EXTRA", "Imds: {Secured: false}"), ("false", "true"), "warning SEC002 6"),
    ("a.yaml", PCLUSTER.replace("EXTRA", "Ssh: {KeyName: k, AllowedIps: 0.0.0.0/0}"), ("0.0.0.0/0", "10.0.0.0/8"),
     "warning SEC004 6"),
    ("a.yaml", PCLUSTER.replace("EXTRA", "").replace("MaxCount: 8", "MaxCount: 8, CapacityReservationTarget: "
     "{CapacityReservationId: cr-id}"), ("cr-id", "cr-0a1b2c3d4e5f67890"), "info CFG001 12"),
    ("a.sh", SHELL + "EFA_INSTALLER_VERSION=1.43.2\nexport NCCL_PROTO=simple\nsrun python t.py\n",
     ("export NCCL_PROTO=simple\n", ""), "info ENV001 3"),
    ("a.sh", SHELL + "huggingface-cli login --token $HF_TOKEN\nsrun python train.py\n",
     ("login --token $HF_TOKEN", "whoami"), "warning SEC005 2"),
    ("a.sh", SHELL + "# p5.48xlarge\nexport NCCL_P2P_DISABLE=1\nsrun torchrun --nproc_per_node=8 t.py\n",
     ("export NCCL_P2P_DISABLE=1\n", ""), "error ENV001 3"),
    ("Dockerfile", "FROM torch:2.9\nRUN mlflow==2.13.2\n", ("mlflow==", "pip install mlflow=="), "warning SHL001 2"),
    ("a.sh", SHELL + "DATASET=pile\ntorchrun train.py ${DATASEET}\n", ("DATASEET", "DATASET"), "warning SHL001 3"),
    ("a.sbatch", SHELL + "#SBATCH --nodes=2\nsrun torchrun --nproc_per_node 4 --rdzv_id $RANDOM --rdzv_backend c10d "
     "--rdzv_endpoint $H:29500 t.py\n", ("--nproc", "--nnodes 2 --nproc"), "error JOB009 3"),
    ("a.yaml", JOBSET.replace("OPTIONS", ""), ("torchrun, ", "torchrun, --nnodes=4, "), "error JOB009 15"),
    ("a.sh", SHELL + "torchrun --nproc_per_nodes=8 train.py --lr 1\n", ("nproc_per_nodes", "nproc_per_node"),
     "error JOB013 2"),
    ("a.sh", SHELL + "python pretrain_gpt.py --num-layers 8 --micro-batchsize 2\n",
     ("micro-batchsize", "micro-batch-size"), "error JOB013 2"),

        ("a.sbatch", SHELL +
     "#SBATCH --requeue\n#SBATCH --nodes=1\npython pretrain_gpt.py --save /fsx/a --save-interval 100\n",
     ("--save /fsx/a", "--save /fsx/a --load /fsx/a"), "warning JOB014 4"),
    ("a.sbatch", SHELL + "#SBATCH --requeue\n#SBATCH --nodes=1\npython pretrain_gpt.py --save /fsx/a --load /fsx/b\n",
     ("/fsx/b", "/fsx/a"), "warning JOB014 4"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "change", "expected"), CASES, ids=lambda value: str(value)[-20:])
def test_missed(tmp_path: Path, name: str, text: str, change: tuple[str, str], expected: str) -> None:
    path = tmp_path / name
    level, code, _ = expected.split()
    path.write_text(text)
    findings = check([str(path)], Selection(select=(code,))).findings
    assert [f"{f.level} {f.code} {f.span.line}" for f in findings if f.level == level] == [expected]
    assert change[0] in text
    path.write_text(text.replace(*change))
    fixed = check([str(path)], Selection(select=(code,))).findings
    assert [f.message for f in fixed if f.level in (level, "error", "warning")] == []


def test_options_are_compared_with_the_script_beside_the_launcher(tmp_path: Path) -> None:
    (tmp_path / "ddp.py").write_text(
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--total_epochs', type=int)\n"
        "parser.add_argument('-b', '--batch_size', type=int)\nargs = parser.parse_args()\n"
    )
    launcher = tmp_path / "run.sh"
    launcher.write_text(SHELL + "torchrun --nproc_per_node=4 ddp.py --total-epochs 3 --save_every 1\n")
    select = Selection(select=("JOB013",))
    findings = check([str(launcher)], select).findings
    assert ["--total-epochs" in f.message or "--save_every" in f.message for f in findings] == [True, True]
    launcher.write_text(SHELL + "torchrun --nproc_per_node=4 ddp.py --total_epochs 3 -b 1 --batch_size=$B\n")
    assert check([str(launcher)], select).findings == []
    (tmp_path / "ddp.py").write_text("parser.parse_known_args()\nparser.add_argument('--x')\n")
    assert check([str(launcher)], select).findings == []


def test_a_resource_without_a_type_that_names_itself_is_a_finding_and_not_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(GROUP.replace("PORT", "22").replace("WHO", "10.0.0.0/8") + "  Odd: {Properties: {Id: !Ref Odd}}\n")
    assert [f.code for f in check([str(path)]).findings] == ["CFN001"]
