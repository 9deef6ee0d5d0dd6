"""Templates, manifests and images that no rule had seen (sets F and T): what was noise or false there,
and beside it what must still be found. Each sample is written for this test and holds the pattern only."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from reported import shown

from trainwright.check.finding import Finding


@pytest.fixture
def run(run: Callable[..., list[Finding]]) -> Callable[..., list[str]]:
    return lambda name, text, *codes: shown(run(name, text, *codes))


POD = """apiVersion: batch/v1
kind: Job
metadata: {name: a}
spec:
  template:
    spec:
      containers:
      - name: a
        image: registry.example.com/team/train:latest
        resources: {limits: {nvidia.com/gpu: 8}}
        env:
        - name: WANDB_API_KEY
          value: %s
"""


def test_a_written_key_is_one_finding(run) -> None:  # type: ignore[no-untyped-def]
    assert run("a.yaml", POD % "3f9c2b7e5d1a8f60c4b7e92d5a1f3c8b6e0d4a72", "K8S001", "SEC003") == [
        "info K8S001 10",  # shared memory
        "error SEC003 13",
    ]
    assert "info K8S001 13" in run("a.yaml", POD % "local-secret", "K8S001", "SEC003")
    assert "warning K8S001 13" in run("a.yaml", POD % "local-0123456789abcdef", "K8S001", "SEC003")


def test_latest_is_a_note(run) -> None:  # type: ignore[no-untyped-def]
    assert run("a.yaml", POD % "x", "IMG003") == ["info IMG003 9"]
    assert run("Dockerfile", "FROM nvidia/cuda AS a\nFROM busybox\nRUN pip install torch\n", "IMG003") == [
        "info IMG003 1",
        "info IMG003 2",
    ]
    job = "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a}\nspec:\n  pytorchReplicaSpecs:\n" + (
        "    Worker:\n      replicas: 4\n      template:\n        spec:\n          containers:\n"
        "          - {name: pytorch, image: 'example.com/train:latest', resources: {limits: {nvidia.com/gpu: 8}}}\n"
    )
    assert run("b.yaml", job, "IMG003") == ["info IMG003 11"]
    two = "FROM a:1\nENV EFA_INSTALLER_VERSION=1.30.0\nENV EFA_INSTALLER_VERSION=1.43.1\nRUN nccl\n"
    assert run("Dockerfile", two, "IMG003") == ["warning IMG003 3"]


def test_downloads_and_clones_of_a_branch_are_notes(run) -> None:  # type: ignore[no-untyped-def]
    address = "https://raw.githubusercontent.com/o/r/main/get.sh"
    assert run("a.sh", f"#!/bin/bash\ncurl -s {address} | bash\n", "IMG002") == ["info IMG002 2"]
    clone = "FROM nvidia/cuda:12.4.1-devel-ubuntu22.04\nRUN git clone https://github.com/o/r && cd r && make\n"
    assert run("Dockerfile", clone, "IMG002") == ["info IMG002 2"]
    assert run("Dockerfile", clone.replace("r &&", "r && cd r && git checkout -b v1.2 &&", 1), "IMG002") == [
        "warning IMG002 2"
    ]


GROUP = """AWSTemplateFormatVersion: '2010-09-09'
Resources:
  {name}:
    Type: AWS::EC2::SecurityGroup
    Properties:
      GroupDescription: a
      SecurityGroupIngress:
      - {{IpProtocol: tcp, FromPort: 22, ToPort: 22, CidrIp: 0.0.0.0/0}}
"""


def test_a_jump_host_is_reached_from_everywhere(run) -> None:  # type: ignore[no-untyped-def]
    assert run("a.yaml", GROUP.format(name="BastionGroup"), "SEC004") == []
    assert run("ssh-bastion/module.yml", GROUP.format(name="SecurityGroup"), "SEC004") == []
    assert run("a.yaml", GROUP.format(name="HeadNodeGroup"), "SEC004") == ["warning SEC004 8"]


BUCKET = """AWSTemplateFormatVersion: '2010-09-09'
Resources:
  {name}:
    Type: AWS::S3::Bucket
  Template:
    Type: AWS::EC2::LaunchTemplate
    Properties: {{LaunchTemplateData: {{InstanceType: p5.48xlarge, MetadataOptions: {{HttpTokens: required}}}}}}
"""


def test_a_bucket_for_logs_holds_no_data(run) -> None:  # type: ignore[no-untyped-def]
    assert run("a.yaml", BUCKET.format(name="NlbLogBucket"), "STO007") == []
    named = BUCKET.format(name="S3Bucket").replace(
        "::Bucket\n", "::Bucket\n    Properties: {BucketName: cfn-elblogs}\n"
    )
    assert run("a.yaml", named, "STO007") == []
    assert run("a.yaml", BUCKET.format(name="DataBucket"), "STO007") == ["info STO007 3"]


def test_names_of_a_template_without_nodes_are_cfn_lints(run) -> None:  # type: ignore[no-untyped-def]
    text = (
        "AWSTemplateFormatVersion: '2010-09-09'\nResources:\n  Nat:\n    Type: AWS::EC2::NatGateway\n"
        "    Properties: {SubnetId: !Ref PublicSubnet}\n"
    )
    assert run("a.yaml", text, "CFN001") == []
    nodes = "  GpuNodes:\n    Type: AWS::EC2::LaunchTemplate\n    Properties: {LaunchTemplateData: {ImageId: ami-1}}\n"
    assert run("a.yaml", text + nodes, "CFN001") == ["error CFN001 5"]


ROLE = """AWSTemplateFormatVersion: '2010-09-09'
Resources:
  HpcVpc: {{Type: AWS::EC2::VPC}}
  Role:
    Type: AWS::IAM::Role
    Properties:
      AssumeRolePolicyDocument:
        Statement: [{{Effect: Allow, Principal: {principal}, Action: 'sts:AssumeRole'}}]
      ManagedPolicyArns: ['arn:aws:iam::aws:policy/AdministratorAccess']
"""


def test_roles_of_people_and_build_services_are_not_those_of_nodes(run) -> None:  # type: ignore[no-untyped-def]
    for principal in ("{AWS: !Ref Admins}", "{Service: codebuild.amazonaws.com}"):
        assert run("a.yaml", ROLE.format(principal=principal), "SEC004") == []
    assert run("a.yaml", ROLE.format(principal="{Service: ec2.amazonaws.com}"), "SEC004") == ["warning SEC004 9"]


def test_a_load_balancer_answers_everybody(run) -> None:  # type: ignore[no-untyped-def]
    every = GROUP.replace("IpProtocol: tcp, FromPort: 22, ToPort: 22", "IpProtocol: -1")
    assert run("a.yaml", every.format(name="LoadBalancerSecurityGroup"), "SEC004") == []
    assert run("a.yaml", every.format(name="GpuSecurityGroup"), "SEC004") == ["warning SEC004 8"]


def test_ids_that_are_any_text_are_no_references(run) -> None:  # type: ignore[no-untyped-def]
    text = """AWSTemplateFormatVersion: '2010-09-09'
Resources:
  Files: {Type: AWS::S3::Bucket}
  Cdn:
    Type: AWS::CloudFront::Distribution
    Properties:
      DistributionConfig:
        Origins: [{Id: Files, DomainName: example.com}]
        DefaultCacheBehavior: {TargetOriginId: Files}
  Net: {Type: AWS::EC2::VPC}
  SlurmSubnet: {Type: AWS::EC2::Subnet, Properties: {VpcId: Net}}
"""
    assert run("a.yaml", text, "CFN001") == ["error CFN001 11"]


def test_optional_parameters_without_a_default_are_one_finding(run) -> None:  # type: ignore[no-untyped-def]
    text = "AWSTemplateFormatVersion: '2010-09-09'\nParameters:\n" + "".join(
        f"  {name}: {{Type: String, Description: Optional name}}\n" for name in ("One", "Two")
    )
    text += "Resources:\n  Net: {Type: AWS::EC2::VPC, Properties: {Tags: [!Ref One, !Ref Two]}}\n"
    assert run("a.yaml", text, "CFN001") == ["info CFN001 3"]


def test_a_template_that_a_tool_completes_is_a_note(run) -> None:  # type: ignore[no-untyped-def]
    head = "AWSTemplateFormatVersion: '2010-09-09'\nResources: # HPC\n"
    text = head + "  Net: {Type: AWS::EC2::VPC, Properties: {Tags: [%s]}}\n"
    many = ", ".join(f"!Ref {name}" for name in ("Alpha", "Beta", "Gamma", "Netz"))
    assert run("a.yaml", text % many, "CFN001") == ["info CFN001 3"]
    assert run("a.yaml", text % "!Ref Netz", "CFN001") == ["error CFN001 3"]


def test_a_database_is_slurms_only_beside_slurm(run) -> None:  # type: ignore[no-untyped-def]
    text = (
        "AWSTemplateFormatVersion: '2010-09-09'\nDescription: %s\nResources:\n  G:\n    Type: AWS::RDS::DBSubnetGroup\n"
        "    Properties: {DBSubnetGroupDescription: a, SubnetIds: [subnet-1]}\n"
    )
    assert run("a.yaml", text % "a network", "SLU002") == []
    assert run("a.yaml", text % "accounting of Slurm", "SLU002") == ["error SLU002 6"]


def test_a_version_may_be_in_the_path_of_an_image(run) -> None:  # type: ignore[no-untyped-def]
    image = "vault.habana.ai/gaudi-docker/1.20.1/ubuntu22.04/habanalabs/pytorch-installer-2.6.0:latest"
    assert run("Dockerfile", f"FROM {image}\n", "IMG003") == []
    assert run("Dockerfile", "FROM YOUR_USER/pytorch:latest\n", "IMG003") == []
    assert run("Dockerfile", "FROM team/pytorch:latest\n", "IMG003") == ["info IMG003 1"]


HYPERPOD = {
    "ClusterName": "ml",
    "InstanceGroups": [
        {"InstanceGroupName": name, "InstanceType": "ml.p5.48xlarge", "InstanceCount": 1, "ThreadsPerCore": 1,
         "LifeCycleConfig": {"SourceS3Uri": "s3://ours/src", "OnCreate": "on_create.sh"},
         "ExecutionRole": "arn:aws:iam::111122223333:role/nodes"} for name in ("controller", "worker")
    ],
}  # fmt: skip


def test_hyperpods_file_may_be_completed_on_the_command_line(run) -> None:  # type: ignore[no-untyped-def]
    file = {key: value for key, value in HYPERPOD.items() if key != "ClusterName"} | {"_comment": "ours"}
    assert run("cluster-config.json", json.dumps(file, indent=1), "HYP003") == ["info HYP003 1", "info HYP003 26"]
    wrong = json.dumps(HYPERPOD | {"NodeRecovry": "None"}, indent=1)
    assert run("cluster-config.json", wrong, "HYP003") == ["error HYP003 27"]


def test_masked_ids_are_placeholders(run) -> None:  # type: ignore[no-untyped-def]
    text = json.dumps(HYPERPOD).replace("111122223333", "************")
    assert run("cluster-config.json", text, "HYP003") == []
    assert run("cluster-config.json", text.replace("************", "11112222"), "HYP003")[:1] == ["error HYP003 1"]


def test_the_bucket_of_lifecycle_scripts_is_a_note(run) -> None:  # type: ignore[no-untyped-def]
    assert run("cluster-config.json", json.dumps(HYPERPOD), "HYP001") == ["info HYP001 1"] * 2


def test_groups_of_an_eks_cluster_are_in_no_partition(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    partitions = {"workload_manager": "slurm", "controller_group": "controller", "worker_groups": []}
    (tmp_path / "provisioning_parameters.json").write_text(json.dumps({"version": "1.0.0", **partitions}))
    assert "warning HYP001 1" in run("cluster-config.json", json.dumps(HYPERPOD), "HYP001")
    eks = HYPERPOD | {"Orchestrator": {"Eks": {"ClusterArn": "arn:aws:eks:us-east-2:111122223333:cluster/ml"}}}
    assert "warning HYP001 1" not in run("cluster-config-eks.json", json.dumps(eks), "HYP001")


def test_one_process_needs_no_shared_memory(run) -> None:  # type: ignore[no-untyped-def]
    pod = POD.replace("WANDB_API_KEY", "X") % "x"
    assert run("a.yaml", pod, "K8S001") == ["info K8S001 10"]
    assert run("a.yaml", pod + "        command: [python, train_jax.py]\n", "K8S001") == []
    ranks = "        command: [torchrun, --nproc_per_node=8, a.py]\n"
    assert run("a.yaml", pod + ranks, "K8S001") == ["warning K8S001 10"]
