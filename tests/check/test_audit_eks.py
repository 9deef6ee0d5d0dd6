"""eksctl files and Terraform near the triggers of EKS001, EKS002, TFM001 and TFM002."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from reported import shown

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]

CLUSTER = """apiVersion: eksctl.io/v1alpha5
kind: ClusterConfig
metadata: {name: gpu, region: us-west-2, version: "1.34"}
MORE
managedNodeGroups:
- {name: system, instanceType: m5.large}
- {name: NAME, GROUP}
"""
RESERVED = "capacityReservation: {capacityReservationTarget: {capacityReservationID: cr-0123456789abcdef0}}"


def cluster(group: str, name: str = "train", more: str = "") -> str:
    return CLUSTER.replace("GROUP", group).replace("NAME", name).replace("MORE", more)


@pytest.mark.parametrize(
    ("name", "group", "level", "fix"),
    [
        (
            "train",
            "instanceType: p5.48xlarge, maxSize: 4",
            "warning",
            "set efaEnabled: true and privateNetworking: true",
        ),
        ("train", "instanceTypes: [p5.48xlarge], maxSize: 4, launchTemplate: {id: lt-0123456789abcdef0}", "", ""),
        (
            "vllm-inference",
            "instanceType: p5.48xlarge, maxSize: 4",
            "info",
            "set efaEnabled: true and privateNetworking: true",
        ),
        ("train", "instanceType: p5.4xlarge, maxSize: 4", "info", "set efaEnabled: true"),
        ("train", "instanceType: p5.48xlarge, maxSize: 1", "", ""),
        ("train", "instanceType: p6-b300.48xlarge, maxSize: 4", "info", "name a launchTemplate with EFA interfaces"),
    ],
)
def test_groups_whose_nodes_work_together_need_efa(run: Run, name: str, group: str, level: str, fix: str) -> None:
    findings = run("a.yaml", cluster(group, name), "EKS001")
    assert [(f.level, f.fix) for f in findings] == ([(level, fix)] if level else [])


@pytest.mark.parametrize(
    ("more", "group", "level"),
    [
        ("", "", "error"),
        ("availabilityZones: [us-west-2a]", "", ""),
        ("vpc: {subnets: {private: {us-west-2a: {id: subnet-1}}}}", "privateNetworking: true", ""),
        ("vpc: {subnets: {private: {us-west-2a: {id: subnet-1}}}}", "privateNetworking: false", "error"),
        ("vpc: {subnets: {private: {a: {id: s-1}, b: {id: s-2}}}}", "privateNetworking: true", "error"),
        ("", "availabilityZones: [us-west-2a, us-west-2b]", "error"),
        ("", "subnets: [subnet-0123456789abcdef0, subnet-0123456789abcdef1]", "info"),  # both may be in one zone
        ("", "subnets: [subnet-0123456789abcdef0]", ""),
    ],
)
def test_what_keeps_a_group_in_one_zone(run: Run, more: str, group: str, level: str) -> None:
    text = cluster(f"instanceType: g6.12xlarge, {RESERVED}" + (f", {group}" if group else ""), more=more)
    assert [f.level for f in run("a.yaml", text, "EKS001")] == ([level] if level else [])


def test_a_group_of_reservations_may_span_zones(run: Run) -> None:
    """EC2 starts on demand what no reservation of the group takes."""
    arn = "capacityReservationResourceGroupARN: arn:aws:resource-groups:us-west-2:123456789012:group/p5"
    text = cluster(f"instanceType: g6.12xlarge, capacityReservation: {{capacityReservationTarget: {{{arn}}}}}")
    assert run("a.yaml", text, "EKS001") == []


def test_a_launch_template_may_have_the_interfaces(run: Run) -> None:
    group = "instanceTypes: [trn1.32xlarge], desiredCapacity: 2"
    assert [f.level for f in run("a.yaml", cluster(group), "NET002")] == ["warning"]
    assert run("a.yaml", cluster(group + ", launchTemplate: {id: lt-0123456789abcdef0}"), "NET002") == []


def test_the_fix_names_versions(run: Run) -> None:
    [finding] = run("a.yaml", cluster("instanceType: m5.large").replace("1.34", "1.21"), "EKS001")
    assert (finding.level, finding.fix[:5]) == ("error", "use 1")
    assert "refuses" in finding.why


AL2 = "instanceType: g5.xlarge, amiFamily: AmazonLinux2"


def test_user_data_of_the_old_image_goes_with_it(run: Run) -> None:
    [finding] = run("a.yaml", cluster(AL2), "EKS002")
    assert (finding.level, finding.fix.partition("; change with it whatever else")[0]) == (
        "error",
        "use AmazonLinux2023",
    )
    boots = cluster(AL2 + ", overrideBootstrapCommand: /etc/eks/bootstrap.sh gpu")
    [finding] = run("a.yaml", boots, "EKS002")
    assert (
        finding.fix.partition("; change with it whatever else")[0]
        == "use AmazonLinux2023, with the user data as a NodeConfig of nodeadm"
    )


MODULE = """module "eks" {
  source  = "SOURCE"
  version = "VERSION"
  eks_managed_node_groups = {
    train = {
      ami_type       = "AMI"
      instance_types = ["p5.48xlarge"]
      max_size       = 8
      MORE
    }
  }
}
"""
COMMUNITY = "terraform-aws-modules/eks/aws"


def module(ami: str = "AL2023_x86_64_NVIDIA", more: str = "", source: str = COMMUNITY, version: str = "~> 20.0") -> str:
    text = MODULE.replace("SOURCE", source).replace("VERSION", version)
    return text.replace("AMI", ami).replace("MORE", more)


@pytest.mark.parametrize(
    ("source", "version", "level"),
    [
        (COMMUNITY, "~> 20.0", "warning"),
        (COMMUNITY, "~> 21", "warning"),
        (COMMUNITY, "~> 19.15", "info"),  # has no enable_efa_support, and ignores keys that it does not know
        (COMMUNITY, "19", "info"),
        ("git::https://github.com/terraform-aws-modules/terraform-aws-eks.git?ref=v18.3.1", "", "info"),
        ("./modules/eks", "", "info"),
    ],
)
def test_only_newer_modules_have_efa_support(run: Run, source: str, version: str, level: str) -> None:
    text = module(source=source, version=version)
    if not version:
        text = text.replace('  version = ""\n', "")
    [finding] = run("main.tf", text, "TFM001")
    assert finding.level == level
    assert ("enable_efa_support" in finding.fix) == (level == "warning")


@pytest.mark.parametrize(
    ("ami", "more", "expected"),
    [
        ("AL2023_x86_64_STANDARD", "enable_efa_support = true", [("error", "write AL2023_x86_64_NVIDIA")]),
        ("BOTTLEROCKET_x86_64", "enable_efa_support = true", [("error", "write BOTTLEROCKET_x86_64_NVIDIA")]),
        ("AL2023_x86_64_STANDARD", "enable_efa_support = true\n ami_id = data.aws_ami.gpu.id", []),
        (
            "AL2023_x86_64_STANDARD",
            'enable_efa_support = true\n ami_id = ""',
            [("error", "write AL2023_x86_64_NVIDIA")],
        ),
        (
            "AL2_x86_64",
            "enable_efa_support = true # drivers: see gpu-operator.tf",
            [("info", "write AL2023_x86_64_NVIDIA")],
        ),
    ],
)
def test_images_with_and_without_a_driver(run: Run, ami: str, more: str, expected: list[tuple[str, str]]) -> None:
    assert [(f.level, f.fix) for f in run("main.tf", module(ami, more), "TFM001")] == expected


BLOCK = """resource "aws_eks_node_group" "train" {
  capacity_type  = "CAPACITY_BLOCK"
  instance_types = ["p5.48xlarge"]
  ami_type       = "AL2023_x86_64_NVIDIA"
  scaling_config {
    max_size = 1
  }
}
"""


def test_the_resource_takes_the_market_from_a_template(run: Run) -> None:
    [finding] = run("main.tf", BLOCK, "TFM001")
    assert finding.fix == "name a launch_template with the market type capacity-block and the reservation"
    [finding] = run("main.tf", module(more='enable_efa_support = true\n capacity_type = "CAPACITY_BLOCK"'), "TFM001")
    assert finding.fix.startswith("add instance_market_options = {")


@pytest.mark.parametrize(
    ("files", "values", "expected"),
    [
        ({"a.tf": 'variable "nodes" {}\nvariable "b" {}\n'}, "nodes = 1\nb = 1\nregion = 2\n", ["warning TFM002 3"]),
        ({"a.tf": 'variable "nodes" {}\n'}, "node = 1\n", ["warning TFM002 1"]),  # did you mean
        (  # a form
            {"a.tf": 'variable "nodes" {}\nvariable "key" {}\nvariable "user" {}\n'},
            'node = 1\nkey = "your_key"\nuser = "your_id"\n',
            ["info TFM002 1"],
        ),
        ({"a.tf": 'variable "state_bucket" {}\n'}, "region = 1\ngpus = 2\n", ["info TFM002 1", "info TFM002 2"]),
        (
            {"a.tf": 'variable "nodes" {}\n', "b.tf": 'variable "region" { default = "a\n'},
            "nodes = 1\nregion = 1\n",
            [],
        ),
        ({"a.tf": 'variable "nodes" {}\n', "b.tf.json": "{}"}, "nodes = 1\nregion = 1\n", []),
        ({"a.tf": 'variable "nodes" {}\n', "terragrunt.hcl": ""}, "nodes = 1\nregion = 1\n", []),
        ({"a.tf": "terraform {}\n", "../b.tf": 'variable "nodes" {}\n'}, "nodes = 1\nregion = 1\n", []),
    ],
)
def test_values_of_a_configuration_that_is_read_whole(
    run: Run, tmp_path: Path, files: dict[str, str], values: str, expected: list[str]
) -> None:
    (tmp_path / "live").mkdir()
    for name, text in files.items():
        (tmp_path / "live" / name).write_text(text)
    assert shown(run("live/terraform.tfvars", values, "TFM002")) == expected


NETWORK = "vpc: {subnets: {private: {a: {id: subnet-1}}, public: {b: {id: subnet-2}}}}"


@pytest.mark.parametrize(
    ("more", "subnets", "levels"),
    [
        ("", "", ["warning"]),
        (NETWORK, "", ["warning"]),
        (NETWORK, ", subnets: [b]", ["warning"]),
        (NETWORK, ", subnets: [a]", []),
        (NETWORK, ", subnets: [subnet-1]", []),
        ("", ", subnets: [subnet-0123456789abcdef0]", ["info"]),  # public or private
        ("privateCluster: {enabled: true}", "", []),
    ],
)
def test_ssh_of_nodes_in_private_subnets(run: Run, more: str, subnets: str, levels: list[str]) -> None:
    text = cluster(f"instanceType: m5.large, ssh: {{allow: true}}{subnets}", more=more)
    assert [f.level for f in run("a.yaml", text, "SEC004")] == levels
