"""Mistakes in settings, names and versions that a stranger planted and earlier versions did not report: each gives a
finding of the named rule, and what is right beside it gives none."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwright.check.engine import Selection, check
from trainwright.check.finding import Finding


def found(tmp_path: Path, name: str, text: str, code: str) -> list[Finding]:
    (tmp_path / name).write_text(text)
    return check([str(tmp_path / name)], Selection(select=(code,))).findings


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("export NCCL_PROTO=LL128", 1),
        ("export NCCL_PROTO=LL,LL128", 1),
        ("export NCCL_PROTO='ll'", 1),
        ("export NCCL_PROTO=Simple", 0),  # an old plugin needs it
        ("export NCCL_PROTO=^LL128", 0),
        ("export NCCL_PROTO=LL128,Simple", 0),
        ("export NCCL_PROTO=$PROTO", 0),
        ("export NCCL_PROTO=", 0),
        ("export NCCL_PROTO=LL128  # 12 % faster, nccl-tests of March", 0),
    ],
)
def test_forced_protocol_without_a_version(tmp_path: Path, line: str, count: int) -> None:
    text = f"#!/bin/bash\n#SBATCH --nodes=2\n{line}\nsrun torchrun --nproc_per_node=8 train.py\n"
    findings = found(tmp_path, "train.sbatch", text, "ENV002")
    assert [f.level for f in findings] == ["info"] * count


PCLUSTER = "pcluster create-cluster --cluster-configuration c.yaml"


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        (f'CLUSTER=vision_train\n{PCLUSTER} --cluster-name "$CLUSTER"', ["error"]),
        (f"{PCLUSTER} -n 2vision", ["error"]),
        (f"{PCLUSTER} --cluster-name={'v' * 61}", ["error"]),
        (f"CLUSTER=${{1:-vision_train}}\n{PCLUSTER} -n $CLUSTER", ["info"]),
        ("eksctl create cluster --name=gpu_train --region us-east-2", ["error"]),
        ("eksctl create cluster gpu_train --nodes 2", ["error"]),
        ("aws --region us-east-2 eks create-cluster --name gpu.train --role-arn $ROLE", ["error"]),
        ("aws sagemaker create-cluster --cluster-name gpu_train --instance-groups file://g.json", ["error"]),
        (f'CLUSTER=vision-train\n{PCLUSTER} --cluster-name "$CLUSTER"', []),
        (f'{PCLUSTER} -n "vision_$USER"', []),
        (f"{PCLUSTER} -n <cluster_name>", []),
        (f"{PCLUSTER} --cluster-name YOUR_CLUSTER", []),
        (f"CLUSTER=vision_train\necho $CLUSTER\nread -r NAME\n{PCLUSTER} -n $NAME", []),
        ("aws eks create-cluster --name gpu_train --role-arn $ROLE", []),
        ("eksctl create cluster -f cluster_gpu.yaml", []),
        ("eksctl create nodegroup --cluster gpu --name workers_1", []),
        ("aws eks create-nodegroup --cluster-name gpu_train --nodegroup-name a_b", []),
        ("aws ecs create-cluster --cluster-name a_b  # gpu", []),
    ],
)
def test_name_of_a_cluster_that_a_script_creates(tmp_path: Path, text: str, levels: list[str]) -> None:
    findings = found(tmp_path, "create.sh", f"#!/bin/bash\n{text}\n", "CFG002")
    assert [f.level for f in findings] == levels


CONDITIONED = """AWSTemplateFormatVersion: '2010-09-09'
Parameters:
  CreateS3Endpoint: {Type: String, Default: 'true', AllowedValues: ['true', 'false']}
Conditions:
  CONDITION
Resources:
  Vpc: {Type: AWS::EC2::VPC, Properties: {CidrBlock: 10.60.0.0/16}}
  S3Endpoint:
    Type: AWS::EC2::VPCEndpoint
    Condition: WithS3Endpoint
    Properties: {VpcId: !Ref Vpc, ServiceName: !Sub "com.amazonaws.${AWS::Region}.s3"}
"""


@pytest.mark.parametrize(
    ("condition", "count"),
    [
        ("WithS3Endpoint: !Not [!Equals [!Ref CreateS3Endpoint, 'true']]", 1),
        ("WithS3Endpoint: !Equals [!Ref CreateS3Endpoint, 'false']", 1),
        ("WithS3Endpoint: !Equals ['no', !Ref CreateS3Endpoint]", 1),
        ("WithS3Endpoint: {'Fn::Not': [{'Fn::Equals': [{Ref: CreateS3Endpoint}, 'true']}]}", 1),
        (
            "WithS3Endpoint: !Not [!Condition A]\n  A: !Not [!Equals [!Ref CreateS3Endpoint, 'false']]",
            0,
        ),  # A is used too
        ("WithS3Endpoint: !Equals [!Ref CreateS3Endpoint, 'true']", 0),
        ("WithS3Endpoint: !Not [!Equals [!Ref CreateS3Endpoint, 'false']]", 0),
        ("WithS3Endpoint: !Not [!Equals [!Ref CreateS3Endpoint, '']]", 0),
    ],
)
def test_negated_condition_of_a_create_parameter(tmp_path: Path, condition: str, count: int) -> None:
    findings = found(tmp_path, "network.yaml", CONDITIONED.replace("CONDITION", condition), "CFN001")
    assert [(f.level, f.span.line) for f in findings] == [("info", 5)] * count


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("WithS3Endpoint", "UseExistingEndpoint"),
        ("  S3Endpoint:\n", "  ExistingS3Endpoint:\n"),
        ("  S3Endpoint:\n", "  NatGateway:\n"),
        ("  S3Endpoint:\n", "  EndpointPeering:\n"),
    ],
)
def test_negated_condition_of_what_stands_in(tmp_path: Path, old: str, new: str) -> None:
    text = CONDITIONED.replace("CONDITION", "WithS3Endpoint: !Not [!Equals [!Ref CreateS3Endpoint, 'true']]")
    assert found(tmp_path, "network.yaml", text.replace(old, new), "CFN001") == []


@pytest.mark.parametrize("count", [0, 1])
def test_negated_condition_of_a_choice(tmp_path: Path, count: int) -> None:
    asked = "!Not [!Equals [!Ref CreateS3Endpoint, 'true']]" if count else "!Equals [!Ref CreateS3Endpoint, 'true']"
    text = CONDITIONED.replace("CONDITION", f"WithS3Endpoint: {asked}").replace("    Condition: WithS3Endpoint\n", "")
    text += "Outputs: {Endpoint: {Value: !If [WithS3Endpoint, !Ref S3Endpoint, none]}}\n"
    choice = "!If [WithS3Endpoint, !Ref S3Endpoint, !Ref AWS::NoValue]"
    policy = f"  Policy:\n    Type: Custom::Policy\n    Properties: {{Id: {choice}}}\n"
    text = text.replace("Outputs:", f"{policy}Outputs:")
    assert len(found(tmp_path, "network.yaml", text, "CFN001")) == count


INSTALLER = "RUN curl -sO https://efa-installer.amazonaws.com/aws-efa-installer-{}.tar.gz\n"
TESTS = "COPY --from=build /opt/nccl-tests/build /opt/nccl-tests\n"


@pytest.mark.parametrize(
    ("ahead", "build", "start", "final", "copy", "levels"),
    [
        ("", "1.42.0", "ubuntu:22.04", "1.43.2", TESTS, ["info"]),
        ("", "1.42.0", "ubuntu:22.04", "1.43.2", TESTS.replace("build /", "0 /"), ["info"]),
        ("", "1.42.0", "build", "1.43.2", "", ["info"]),
        ("", "1.42.0", "ubuntu:22.04", "1.43.2", "RUN --mount=from=build,target=/o cp -r /o /opt\n", ["info"]),
        ("", "1.42.0", "ubuntu:22.04", "1.42.0", TESTS, []),
        ("", "1.42.0", "ubuntu:22.04", "1.43.2", "", []),  # two images
        ("", "1.42.0", "ubuntu:22.04", "1.43.2", TESTS.replace("=build", "=team/image"), []),
        ("ARG EFA_INSTALLER_VERSION=1.42.0\n", "1.42.0", "ubuntu:22.04", "${EFA_INSTALLER_VERSION}", TESTS, []),
    ],
)  # fmt: skip
def test_versions_of_two_stages(
    tmp_path: Path, ahead: str, build: str, start: str, final: str, copy: str, levels: list[str]
) -> None:
    text = f"{ahead}FROM nvidia/cuda:12.8.1-devel-ubuntu22.04 AS build\n{INSTALLER.format(build)}"
    text += f"FROM {start}\n{'ARG EFA_INSTALLER_VERSION' if ahead else ''}\n{INSTALLER.format(final)}{copy}"
    assert [f.level for f in found(tmp_path, "Dockerfile", text, "IMG003")] == levels


ACCELERATE = """compute_environment: LOCAL_MACHINE
distributed_type: FSDP
num_machines: {}
num_processes: {}
"""
MULTI = """#!/bin/bash
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
MORE
srun bash -c 'accelerate launch --config_file fsdp.yaml --machine_rank $SLURM_NODEID --main_process_ip $HEAD train.py'
"""
SINGLE = """#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=8
MORE
accelerate launch --config_file fsdp.yaml train.py
"""


@pytest.mark.parametrize(
    ("script", "config", "more", "levels"),
    [
        (MULTI, ACCELERATE.format(4, 16), "", ["info"]),
        (MULTI, ACCELERATE.format(4, 28), "", ["info"]),
        (MULTI, ACCELERATE.format(4, 8), "", ["warning"]),
        (SINGLE, ACCELERATE.format(1, 4), "", ["info"]),
        (SINGLE, ACCELERATE.format(1, 1), "", ["info"]),
        (MULTI, ACCELERATE.format(4, 32), "", []),
        (SINGLE, ACCELERATE.format(1, 8), "", []),
        (SINGLE, ACCELERATE.format(1, 7), "CUDA_VISIBLE_DEVICES=7 python serve.py", []),
        (SINGLE, ACCELERATE.format(1, 7), "trl vllm-serve --model m", []),
        (SINGLE, ACCELERATE.format(1, 4), "python evaluate.py &", []),
        (SINGLE, ACCELERATE.format(1, 4), "accelerate launch --config_file other.yaml a.py", []),
        (SINGLE, ACCELERATE.format(1, 4) + "gpu_ids: 0,1,2,3\n", "", []),
        (SINGLE.replace("--config", "--num_processes 8 --config"), ACCELERATE.format(1, 4), "", []),
        (SINGLE.replace("accel", "srun --ntasks=2 accel"), ACCELERATE.format(1, 4), "", []),
        (SINGLE, ACCELERATE.format(1, 4) + "use_cpu: true\n", "", []),
    ],
)
def test_fewer_processes_than_gpus(tmp_path: Path, script: str, config: str, more: str, levels: list[str]) -> None:
    (tmp_path / "fsdp.yaml").write_text(config)
    findings = found(tmp_path, "train.sbatch", script.replace("MORE", more), "JOB016")
    assert [f.level for f in findings] == levels
