"""EKS: a fix names what else in the file has to change with a version of Kubernetes, or with the images of the nodes,
and nothing that may stay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]

EKSCTL = """apiVersion: eksctl.io/v1alpha5
kind: ClusterConfig
metadata: {name: train, region: us-east-2, version: "1.24"}
"""
MODULE = """module "eks" {
  source          = "terraform-aws-modules/eks/aws"
  version         = "VERSION"
  cluster_name    = "gpu"
  cluster_version = "1.24"
  GROUPS
}
"""
RESOURCE = """resource "aws_eks_cluster" "gpu" {
  name     = "gpu"
  role_arn = aws_iam_role.cluster.arn
  version  = "1.24"
}
"""


def said(findings: list[Finding]) -> str:
    """What a fix names beside the version or the image."""
    (finding,) = findings
    return finding.fix.partition(";")[0].partition(", with ")[2]


@pytest.mark.parametrize(
    ("rest", "changes"),
    [
        ("addons: [{name: vpc-cni, version: latest}]\n", ""),
        ("nodeGroups: [{name: a, instanceType: m5.large, ami: auto}]\n", ""),
        ("nodeGroups: [{name: a, instanceType: m5.large, volumeSize: 10}]\n", "a disk of 20 GiB or more"),
        ("nodeGroups: [{name: a, instanceType: m5.large, amiFamily: Bottlerocket, volumeSize: 10}]\n", ""),
        (
            "nodeGroups: [{name: a, instanceType: m5.large, amiFamily: Ubuntu2004}]\n",
            "Ubuntu2404 instead of Ubuntu2004",
        ),
        (
            "nodeGroups: [{name: a, instanceType: a1.large}]\n",
            "a newer type, such as m6g.large, instead of a1.large (on which it does not run)",
        ),
        (
            "nodeGroups: [{name: a, instanceType: m5.large, containerRuntime: dockerd}]\n",
            "no containerRuntime (containerd is the only one)",
        ),
        (
            "nodeGroups:\n- name: a\n  instanceType: m5.large\n"
            "  kubeletExtraConfig:\n"
            "    featureGates: {DynamicKubeletConfig: true, RotateKubeletServerCertificate: true}\n",
            "no feature gate DynamicKubeletConfig (which its kubelet refuses)",
        ),
        (
            "nodeGroups:\n- name: a\n  instanceType: m5.large\n  ami: ami-0123456789abcdef0\n"
            "  overrideBootstrapCommand: /etc/eks/bootstrap.sh train\n",
            "images (ami) of that version, the user data as a NodeConfig of nodeadm",
        ),
        (
            "managedNodeGroups:\n- name: a\n  instanceType: m5.large\n  amiFamily: AmazonLinux2\n"
            "  # overrideBootstrapCommand: /etc/eks/bootstrap.sh train\n"
            "  preBootstrapCommands: [amazon-linux-extras install -y epel]\n",
            "AmazonLinux2023 instead of AmazonLinux2, dnf instead of amazon-linux-extras (which it does not have)",
        ),
        (
            "managedNodeGroups:\n- name: cpu\n  instanceType: m5.xlarge\n- name: a\n  instanceType: g5.xlarge\n"
            "  amiFamily: Ubuntu2204\n  ami: ami-0123456789abcdef0\n"
            "  overrideBootstrapCommand: /etc/eks/bootstrap.sh train\n",
            "images (ami) of that version",
        ),
        ("git: {repo: {url: 'git@github.com:a/b'}}\n", "no git section (which eksctl no longer reads)"),
        ("---\napiVersion: policy/v1beta1\nkind: PodDisruptionBudget\n", "policy/v1 instead of policy/v1beta1"),
    ],
)
def test_a_version_in_a_file_of_eksctl(run: Run, rest: str, changes: str) -> None:
    assert said(run("cluster.yaml", EKSCTL + rest, "EKS001")) == changes


@pytest.mark.parametrize(
    ("version", "groups", "changes"),
    [
        (
            "~> 19.0",
            'eks_managed_node_group_defaults = { ami_type = "AL2_x86_64" }\n'
            '  eks_managed_node_groups = { a = { instance_types = ["m5.large"] } }',
            "AL2023_x86_64_STANDARD instead of AL2_x86_64",
        ),
        (
            "~> 19.0",
            'eks_managed_node_groups = { a = { instance_types = ["m5.large"], ami_type = "AL2_x86_64"\n'
            '  pre_bootstrap_user_data = "echo a"\n } }',
            "AL2023_x86_64_STANDARD instead of AL2_x86_64",
        ),
        (
            "~> 19.0",
            'cluster_addons = { coredns = { addon_version = "v1.8.7-eksbuild.2" } }',
            "versions of the addons that it takes",
        ),
        (
            "~> 19.0",
            'self_managed_node_groups = { a = { instance_type = "m5.large" } }',
            'release 20 of the module and ami_type = "AL2023_x86_64_STANDARD" in self_managed_node_groups '
            "(which look up Amazon Linux 2)",
        ),
        (
            "~> 19.0",
            "eks_managed_node_groups = { a = {\n  bootstrap_extra_args = <<-EOT\n    [settings.kernel]\n  EOT\n} }",
            "",
        ),
        ("~> 21.0", 'self_managed_node_groups = { a = { instance_type = "m5.large" } }', ""),
        (
            "17.24.0",
            'worker_groups = [{ instance_type = "m5.large" }]',
            "release 20 of the module as its upgrade guides say (eks_managed_node_groups instead of worker_groups, "
            "which look up Amazon Linux 2, subnet_ids instead of subnets, hashicorp/aws ~> 5.80 and releases of the "
            "other modules that it works with)",
        ),
    ],
)
def test_a_version_of_a_module(run: Run, version: str, groups: str, changes: str) -> None:
    text = MODULE.replace("VERSION", version).replace("GROUPS", groups)
    assert said(run("eks.tf", text, "EKS001")) == changes


@pytest.mark.parametrize(
    ("rest", "changes"),
    [
        (
            'data "aws_ami" "a" {\n  filter {\n    name   = "name"\n'
            '    values = ["amazon-eks-node-${aws_eks_cluster.gpu.version}-v*"]\n  }\n}\n',
            "images by the name amazon-eks-node-al2023-x86_64-standard-<version>-v* instead of amazon-eks-node-…",
        ),
        ('resource "aws_iam_role" "a" {\n  name = "amazon-eks-node-role"\n}\n', ""),
        (
            'data "aws_ssm_parameter" "a" {\n'
            '  name = "/aws/service/eks/optimized-ami/1.24/amazon-linux-2-gpu/recommended/image_id"\n}\n',
            "amazon-linux-2023/x86_64/nvidia instead of amazon-linux-2-gpu in the path of the image",
        ),
        (
            'resource "aws_launch_template" "a" {\n  image_id = "ami-0123456789abcdef0"\n'
            '  block_device_mappings {\n    device_name = "/dev/xvda"\n    ebs { volume_size = 10 }\n  }\n}\n'
            'resource "aws_eks_node_group" "a" {\n  launch_template { id = aws_launch_template.a.id }\n}\n',
            "images (ami) of that version, a disk of 20 GiB or more",
        ),
        (
            'resource "aws_launch_template" "a" {\n  image_id = data.aws_ami.a.id\n}\n'
            'resource "aws_eks_node_group" "a" {\n  launch_template { id = aws_launch_template.a.id }\n}\n',
            "",
        ),
        (
            'locals {\n  groups = { a = { ami_type = "AL2_x86_64", disk_size = 10 } }\n}\n',
            "AL2023_x86_64_STANDARD instead of AL2_x86_64, a disk of 20 GiB or more",
        ),
        (
            'resource "helm_release" "k" {\n  chart   = "karpenter"\n  version = "v0.31.3"\n}\n',
            "a release of Karpenter that supports it",
        ),
        ('resource "kubernetes_ingress" "a" {}\n', "kubernetes_ingress_v1 instead of kubernetes_ingress"),
        ('resource "aws_eks_node_group" "a" {\n  version = aws_eks_cluster.gpu.version\n}\n', ""),
        (
            'resource "aws_eks_node_group" "a" {\n  ami_type = "AL2_x86_64"\n  instance_types = ["g5.xlarge"]\n}\n',
            "AL2023_x86_64_NVIDIA instead of AL2_x86_64",
        ),
        (
            'resource "aws_eks_node_group" "a" {\n  ami_type = "AL2_x86_64"\n  instance_types = ["g5.xlarge"]\n}\n'
            'resource "aws_eks_node_group" "b" {\n  ami_type = "AL2_x86_64"\n  instance_types = ["m5.large"]\n}\n',
            "AL2023_x86_64_NVIDIA instead of AL2_x86_64 in a, AL2023_x86_64_STANDARD instead of AL2_x86_64 in b",
        ),
    ],
)
def test_a_version_of_the_resource(run: Run, rest: str, changes: str) -> None:
    assert said(run("eks.tf", RESOURCE + rest, "EKS001")) == changes


PIN = """terraform {
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "PIN"
    }
  }
}
"""
GROUP = """resource "aws_eks_node_group" "gpu" {
  ami_type       = "AMI"
  instance_types = ["TYPE"]
  LINE
}
"""


@pytest.mark.parametrize(
    ("pin", "image", "refused"),
    [
        ("~> 4.0", "AL2_x86_64", True),
        ("3.75.0", "AL2_x86_64", True),
        ("~> 5.0", "AL2_x86_64", False),
        (">= 4.0", "AL2_x86_64", False),
        ("~> 5.30.0", "AL2_x86_64", True),
        (">= 4, < 5", "AL2_x86_64", True),
        ("= 5.40", "AL2_x86_64", False),
        ("= 5.40.0", "AL2_x86_64", False),
        ("< 5.40", "AL2_x86_64", True),
        ("~> 5.50.0", "AL2_x86_64", False),
        ("~> 5.50.0", "AL2_x86_64_GPU", True),
    ],
)
def test_a_provider_that_does_not_know_the_image(run: Run, tmp_path: Path, pin: str, image: str, refused: bool) -> None:
    (tmp_path / "versions.tf").write_text(PIN.replace("PIN", pin))
    text = GROUP.replace("AMI", image).replace("TYPE", "m5.large").replace("  LINE\n", "")
    expected = f"hashicorp/aws ~> 5.80 instead of {pin} (which does not know that image)" if refused else ""
    assert said(run("groups.tf", text, "EKS002")) == expected


def test_a_provider_that_does_not_know_the_image_with_a_driver(run: Run, tmp_path: Path) -> None:
    (tmp_path / "versions.tf").write_text(PIN.replace("PIN", "~> 5.50.0"))
    text = GROUP.replace("AMI", "AL2023_x86_64_STANDARD").replace("TYPE", "g5.xlarge").replace("  LINE\n", "")
    changes = said(run("groups.tf", text, "TFM001"))
    assert changes == "hashicorp/aws ~> 5.80 instead of ~> 5.50.0 (which does not know that image)"


@pytest.mark.parametrize(
    ("ami", "type_", "line", "fix"),
    [
        ("AL2_x86_64_GPU", "trn1.2xlarge", "", "use AL2023_x86_64_NEURON"),
        ("AL2_x86_64_GPU", "g5.xlarge", "", "use AL2023_x86_64_NVIDIA"),
        (
            "AL2_x86_64",
            "m5.large",
            'release_version = "1.29.0-20240129"',
            "use AL2023_x86_64_STANDARD, with a newer release_version",
        ),
        ("AL2_x86_64", "m5.large", 'release_version = "1.31.2-20241109"', "use AL2023_x86_64_STANDARD"),
    ],
)
def test_an_image_of_a_group(run: Run, ami: str, type_: str, line: str, fix: str) -> None:
    (finding,) = run("groups.tf", GROUP.replace("AMI", ami).replace("TYPE", type_).replace("LINE", line), "EKS002")
    assert finding.fix.partition("; whatever else")[0] == fix
    assert finding.fix.endswith(" releases, providers) goes with it")


def test_an_image_of_a_template(run: Run) -> None:
    text = """Resources:
  Cluster: {Type: AWS::EKS::Cluster, Properties: {Version: "1.27", Name: gpu}}
  Group:
    Type: AWS::EKS::Nodegroup
    Properties: {ClusterName: !Ref Cluster, AmiType: AL2_x86_64, DiskSize: 10}
"""
    changes = said(run("a.yaml", text, "EKS002"))
    assert changes.startswith("Version 1.")
    assert changes.endswith(" in Cluster, a disk of 20 GiB or more")


def test_an_image_that_a_parameter_does_not_allow(run: Run) -> None:
    text = """Parameters:
  Image: {Type: String, Default: AL2_x86_64, AllowedValues: [AL2_x86_64, AL2_ARM_64]}
Resources:
  Group: {Type: AWS::EKS::Nodegroup, Properties: {ClusterName: gpu, AmiType: !Ref Image}}
"""
    assert said(run("a.yaml", text, "EKS002")) == "it in the AllowedValues of Image too"
    assert said(run("b.yaml", text.replace("ARM_64]", "ARM_64, AL2023_x86_64_STANDARD]"), "EKS002")) == ""


def test_a_version_of_eksctl_is_text(run: Run) -> None:
    (finding,) = run("cluster.yaml", EKSCTL.replace('"1.24"', "1.24"), "EKS001")
    assert " in quotes (to eksctl, a version is text);" in finding.fix
