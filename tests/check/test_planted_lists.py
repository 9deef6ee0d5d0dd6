"""Mistakes that two strangers planted from the rules' pages, and that were not reported at first sight."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from reported import shown

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]

TITAN = """[job]
dump_folder = "/fsx/titan"
[lr_scheduler]
{}
[training]
seq_len = 8192
steps = 20000
"""
GROUP = """AWSTemplateFormatVersion: "2010-09-09"
Description: Slurm accounting database
Resources:
  One:
    Type: AWS::EC2::Subnet
    Properties: {{VpcId: vpc-0aa11bb22cc33dd44, AvailabilityZone: us-east-2a, CidrBlock: 10.0.0.0/24}}
  Two:
    Type: AWS::EC2::Subnet
    Properties: {{VpcId: vpc-0aa11bb22cc33dd44, AvailabilityZone: {}, CidrBlock: 10.0.1.0/24}}
  Subnets:
    Type: AWS::RDS::DBSubnetGroup
    Properties:
      DBSubnetGroupDescription: Slurm
      SubnetIds: [!Ref One, !Ref Two]
"""
JOB = """apiVersion: batch/v1
kind: Job
metadata: {{name: forecast}}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: forecast
        image: 210987654321.dkr.ecr.eu-west-1.amazonaws.com/forecast:0.9.2
        resources: {{limits: {{nvidia.com/gpu: 4}}}}
        volumeMounts: [{{name: shm, mountPath: /dev/shm}}, {{name: runs, mountPath: {}}}]
      volumes:
      - {{name: shm, emptyDir: {{medium: Memory}}}}
      - {{name: runs, persistentVolumeClaim: {{claimName: runs}}}}
"""
DOCKERFILE = """FROM pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime
WORKDIR /workspace
COPY train.py /workspace/
CMD ["torchrun", "--standalone", "--nproc_per_node=4", "train.py"]
"""
BUILD = "#!/bin/bash\ndocker build -t 210987654321.dkr.ecr.eu-west-1.amazonaws.com/forecast:0.9.2 .\n"
CLONE = """#!/bin/bash
cd /fsx/tools
if [ ! -d nccl-tests ]; then
    git clone https://github.com/NVIDIA/nccl-tests.git
fi
cd nccl-tests
git checkout {}
make -j 8
"""


@pytest.mark.parametrize(("key", "expected"), [("warmup_step = 400", ["error CFG006 4"]), ("warmup_steps = 400", [])])
def test_a_configuration_of_torchtitan_without_its_parallelism(run: Run, key: str, expected: list[str]) -> None:
    assert shown(run("llama3_8b.toml", TITAN.format(key), "CFG006")) == expected


@pytest.mark.parametrize(("zone", "expected"), [("us-east-2a", ["error SLU002 14"]), ("us-east-2b", [])])
def test_a_database_with_both_subnets_in_one_zone(run: Run, zone: str, expected: list[str]) -> None:
    assert shown(run("db.yaml", GROUP.format(zone), "SLU002")) == expected


@pytest.mark.parametrize(("path", "expected"), [("/workspace", ["info JOB018 12"]), ("/data", [])])
def test_a_volume_over_the_program_of_the_images_own_command(
    tmp_path: Path, run: Run, path: str, expected: list[str]
) -> None:
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    (tmp_path / "build.sh").write_text(BUILD)
    assert shown(run("job.yaml", JOB.format(path), "JOB018")) == expected


@pytest.mark.parametrize(("version", "expected"), [("-b v2.14.1", ["info IMG002 7"]), ("v2.14.1", [])])
def test_a_branch_for_a_tag_of_a_clone_that_may_be_there(run: Run, version: str, expected: list[str]) -> None:
    assert shown(run("build.sh", CLONE.format(version), "IMG002")) == expected


@pytest.mark.parametrize(("stages", "expected"), [(3, ["error JOB002 5"]), (2, [])])
def test_virtual_stages_of_a_rank(run: Run, stages: int, expected: list[str]) -> None:
    text = f"""#!/bin/bash
#SBATCH --nodes=4
#SBATCH --gpus-per-node=8
srun torchrun --nnodes=4 --nproc_per_node=8 --rdzv_backend=c10d pretrain_gpt.py --num-layers 32 \\
    --pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank {stages} --micro-batch-size 1
"""
    assert shown(run("job.sbatch", text, "JOB002")) == expected


@pytest.mark.parametrize(("name", "expected"), [("a" * 47, ["error CFG002 3"]), ("a" * 40, [])])
def test_the_name_of_a_cluster_with_accounting_in_the_command_that_creates_it(
    tmp_path: Path, run: Run, name: str, expected: list[str]
) -> None:
    (tmp_path / "cluster.yaml").write_text(
        "Region: us-east-2\nImage: {Os: alinux2023}\nHeadNode: {InstanceType: m6i.large}\n"
        "Scheduling:\n  Scheduler: slurm\n  SlurmSettings:\n    Database: {Uri: 'db:3306', UserName: slurm}\n"
    )
    text = (
        f"#!/bin/bash\npcluster create-cluster \\\n  --cluster-name {name} \\\n  --cluster-configuration cluster.yaml\n"
    )
    assert shown(run("create.sh", text, "CFG002")) == expected


@pytest.mark.parametrize(("more", "expected"), [("", ["info JOB009"]), ("--num_machines 4 ", [])])
def test_machines_that_only_the_rank_and_address_show(run: Run, more: str, expected: list[str]) -> None:
    text = f"""#!/bin/bash
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
export HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun bash -c 'accelerate launch --multi_gpu --num_processes 32 {more}--machine_rank $SLURM_NODEID \\
    --main_process_ip $HEAD --main_process_port 29500 /fsx/src/train.py'
"""
    assert [line.rsplit(" ", 1)[0] for line in shown(run("job.sbatch", text, "JOB009"))] == expected
