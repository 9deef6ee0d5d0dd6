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
            "release 20 of the module as its upgrade guides say (hashicorp/aws ~> 5.80), "
            'ami_type = "AL2023_x86_64_STANDARD" in a (for which it looks up Amazon Linux 2)',
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
            "subnet_ids instead of subnets, hashicorp/aws ~> 5.80 and releases of the "
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
            "amazon-linux-2023/x86_64/nvidia instead of amazon-linux-2-gpu in the path of the image, that version "
            "instead of 1.24 on line 7 too",
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
    assert finding.fix.partition("; change with it whatever else")[0] == fix
    assert finding.fix.endswith(" releases, providers)")


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


def groups(*pairs: tuple[str, str]) -> str:
    """Node groups of the resource, each with an image and a type."""
    return "".join(
        f'resource "aws_eks_node_group" "g{number}" {{\n  ami_type = "{ami}"\n  instance_types = ["{type_}"]\n}}\n'
        for number, (ami, type_) in enumerate(pairs)
    )


def taken(findings: list[Finding]) -> str:
    """What a fix says about the images."""
    (finding,) = findings
    return finding.fix.partition("; change with it whatever else")[0]


@pytest.mark.parametrize(
    ("pairs", "fix"),
    [
        ([("AL2_x86_64", "m5.large"), ("AL2_x86_64", "c5.large")], "use AL2023_x86_64_STANDARD"),
        (
            [("AL2_ARM_64", "m6g.large"), ("AL2_x86_64", "m5.large")],
            "use AL2023_ARM_64_STANDARD instead of AL2_ARM_64, AL2023_x86_64_STANDARD instead of AL2_x86_64",
        ),
        (
            [("AL2_x86_64", "m5.large"), ("AL2_x86_64", "p2.xlarge")],
            "use AL2023_x86_64_STANDARD instead of AL2_x86_64 in g0, AL2023_x86_64_NVIDIA instead of AL2_x86_64 in g1, "
            "with a newer type, such as g4dn.xlarge, instead of p2.xlarge (on which it does not run)",
        ),
        (
            [("AL2_x86_64", "m5.large"), ("AL2_x86_64", "g5.xlarge")],  # which TFM001 reports too
            "use AL2023_x86_64_STANDARD instead of AL2_x86_64 in g0, AL2023_x86_64_NVIDIA instead of AL2_x86_64 in g1",
        ),
        (
            [("AL2_x86_64_GPU", "g5.xlarge"), ("AL2_x86_64_GPU", "trn1.2xlarge")],
            "use AL2023_x86_64_NVIDIA instead of AL2_x86_64_GPU in g0, AL2023_x86_64_NEURON instead of AL2_x86_64_GPU "
            "in g1",
        ),
    ],
)
def test_each_group_gets_its_own_image(run: Run, pairs: list[tuple[str, str]], fix: str) -> None:
    assert taken(run("groups.tf", groups(*pairs), "EKS002")) == fix


def test_groups_with_the_image_of_a_module(run: Run) -> None:
    text = (
        MODULE.replace("VERSION", "~> 20.0")
        .replace("1.24", "1.32")
        .replace(
            "GROUPS",
            'eks_managed_node_group_defaults = { ami_type = "AL2_x86_64" }\n  eks_managed_node_groups = {\n'
            '    cpu = { instance_types = ["m5.large"] }\n    inf = { instance_types = ["inf2.xlarge"] }\n'
            '    arm = { instance_types = ["m7g.large"] }\n  }',
        )
    )
    assert taken(run("eks.tf", text, "EKS002")) == (
        "use AL2023_x86_64_STANDARD instead of AL2_x86_64 in cpu, AL2023_x86_64_NEURON instead of AL2_x86_64 in inf, "
        "AL2023_ARM_64_STANDARD instead of AL2_x86_64 in arm"
    )


def test_images_that_a_loop_gives_to_groups(run: Run) -> None:
    local = 'locals {\n  other = { image = "AL2_ARM_64" }\n}\n'
    fix = "use AL2023_x86_64_STANDARD instead of AL2_x86_64, AL2023_ARM_64_STANDARD instead of AL2_ARM_64"
    assert taken(run("eks.tf", local + groups(("AL2_x86_64", "m5.large")), "EKS002")) == fix


def test_clusters_of_versions_with_and_without_the_image(run: Run) -> None:
    clusters = "".join(
        RESOURCE.replace('"gpu" {', f'"{name}" {{').replace("1.24", version) for name, version in CLUSTERS
    )
    text = clusters + "".join(
        f'resource "aws_eks_node_group" "{name}" {{\n  cluster_name = aws_eks_cluster.{name}.name\n'
        '  ami_type = "AL2_x86_64"\n}\n'
        for name, _ in CLUSTERS
    )
    old, refused = run("eks.tf", text, "EKS002")
    assert (old.level, refused.level) == ("warning", "error")
    assert "more group" not in refused.message + old.message


CLUSTERS = [("old", "1.32"), ("new", "1.35")]


def test_an_image_of_2023_stays_where_the_version_changes(run: Run) -> None:
    text = RESOURCE + groups(("AL2023_x86_64_STANDARD", "m5.large"), ("AL2023_x86_64_STANDARD", "g5.xlarge"))
    assert said(run("eks.tf", text, "EKS001")) == ""


def test_an_image_that_is_looked_up_goes_with_the_image_of_a_group(run: Run) -> None:
    path = "/aws/service/eks/optimized-ami/${var.version}/amazon-linux-2/recommended/release_version"
    text = f'data "aws_ssm_parameter" "a" {{\n  name = "{path}"\n}}\n' + groups(("AL2_x86_64", "m5.large"))
    expected = "amazon-linux-2023/x86_64/standard instead of amazon-linux-2 in the path of the image"
    assert said(run("eks.tf", text, "EKS002")) == expected


@pytest.mark.parametrize(
    ("line", "places"),
    [
        ('values = ["bottlerocket-aws-k8s-1.24-x86_64-*"]', "that version instead of 1.24 on line 7 too"),
        (
            'command = "curl -LO https://dl.k8s.io/v1.24.0/bin/linux/amd64/kubectl"',
            "that version instead of 1.24 on line 7 too",
        ),
        ('version = "1.24.0"', ""),
        ('chart = "cluster-autoscaler"\n  tag = "v1.24.1"', "that version instead of 1.24 on line 8 too"),
        ("name = var.name # of Kubernetes 1.24", ""),
        ('name = "kube-1.241"', ""),
    ],
)
def test_lines_that_name_the_version_again(run: Run, line: str, places: str) -> None:
    assert said(run("eks.tf", f'{RESOURCE}resource "other" "a" {{\n  {line}\n}}\n', "EKS001")) == places


def test_a_module_too_old_for_the_images(run: Run) -> None:
    text = MODULE.replace("VERSION", "17.24.0").replace(
        "GROUPS", 'node_groups = { a = { ami_type = "AL2_x86_64", instance_types = ["m5.large"] } }'
    )
    assert said(run("eks.tf", PIN.replace("PIN", "~> 3.20") + text, "EKS001")) == (
        "AL2023_x86_64_STANDARD instead of AL2_x86_64, release 20 of the module as its upgrade guides say "
        "(eks_managed_node_groups instead of node_groups, subnet_ids instead of subnets, hashicorp/aws ~> 5.80 and "
        "releases of the other modules that it works with)"
    )


def test_versions_that_a_template_allows(run: Run) -> None:
    text = """Parameters:
  Release: {Type: String, Default: "1.27", AllowedValues: ["1.26", "1.27"]}
Resources:
  Cluster: {Type: AWS::EKS::Cluster, Properties: {Version: !Ref Release, Name: gpu}}
  Group: {Type: AWS::EKS::Nodegroup, Properties: {ClusterName: !Ref Cluster, AmiType: AL2_x86_64}}
"""
    assert said(run("a.yaml", text, "EKS002")).endswith(" in Cluster (and in AllowedValues of Release)")


def test_objects_of_a_beta_of_karpenter(run: Run) -> None:
    line = 'manifest = { apiVersion = "karpenter.sh/v1beta1", kind = "NodePool" }'
    changes = said(run("eks.tf", f'{RESOURCE}resource "kubernetes_manifest" "a" {{\n  {line}\n}}\n', "EKS001"))
    assert changes == "NodePool and EC2NodeClass of v1 instead of v1beta1"


def test_a_name_that_stands_elsewhere_too(run: Run) -> None:
    text = EKSCTL.replace("1.24", "1.36").replace("name: train,", "name: my_train,")
    boots = "nodeGroups: [{name: a, instanceType: m5.large, overrideBootstrapCommand: /boot.sh my_train}]\n"
    (finding,) = run("cluster.yaml", text + boots, "CFG002")
    assert finding.fix.endswith("; also on line 4")


def test_zones_of_the_region_only_are_proposed(run: Run) -> None:
    text = EKSCTL.replace("1.24", "1.36") + "availabilityZones: [us-east-2a, us-west-2a, use2-az3]\n"
    group = "nodeGroups: [{name: a, instanceType: m5.large, availabilityZones: [us-east-2c]}]\n"
    fixes = [finding.fix for finding in run("cluster.yaml", text + group, "CFG004")]
    assert "name us-east-2a, or add us-east-2c to the availabilityZones of the cluster" in fixes


def test_a_launch_template_takes_what_the_group_may_not_state(run: Run) -> None:
    text = """resource "aws_eks_node_group" "train" {
  instance_types = ["p4d.24xlarge"]
  disk_size      = 200
  scaling_config {
    desired_size = 2
    max_size     = 4
    min_size     = 2
  }
}
"""
    (finding,) = run("eks.tf", text, "TFM001")
    assert finding.fix.endswith("have interface_type efa, and move disk_size into it")


def test_a_disk_for_an_image_that_is_looked_up(run: Run) -> None:
    text = """data "aws_ami" "a" {
  filter {
    name   = "name"
    values = ["amazon-eks-node-${aws_eks_cluster.gpu.version}-v*"]
  }
}
resource "aws_launch_template" "a" {
  image_id = data.aws_ami.a.id
  block_device_mappings {
    ebs { volume_size = 10 }
  }
}
"""
    assert said(run("eks.tf", RESOURCE + text, "EKS001")).endswith(", a disk of 20 GiB or more")


def test_a_disk_of_worker_groups(run: Run) -> None:
    groups = 'worker_groups = [{ instance_type = "m5.large", root_volume_size = 10 }]'
    text = MODULE.replace("VERSION", "17.24.0").replace("GROUPS", groups)
    assert said(run("eks.tf", text, "EKS001")).startswith("a disk of 20 GiB or more, release 20 of the module")
