"""EKS in Terraform: versions of the cluster's own resource, of a module without groups, and of a node group
whose cluster is in another file. A fix names what is made for the old version."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from reported import shown

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]
CLUSTER = """resource "aws_eks_cluster" "main" {
  name     = "train"
  role_arn = aws_iam_role.cluster.arn
  version  = VERSION
  vpc_config { subnet_ids = var.subnets }
}
"""
GROUP = """resource "aws_eks_node_group" "workers" {
  cluster_name   = aws_eks_cluster.main.name
  node_role_arn  = aws_iam_role.nodes.arn
  subnet_ids     = var.subnets
  instance_types = ["m5.large"]
  LINE
  scaling_config {
    desired_size = 1
    max_size     = 2
    min_size     = 1
  }
}
"""
MODULE = """module "eks" {
  source          = "SOURCE"
  cluster_name    = "train"
  cluster_version = "1.24"
}
"""


@pytest.mark.parametrize(("version", "expected"), [('"1.24"', ["error EKS001 4"]), ("var.version", [])])
def test_the_version_of_the_resource_is_read(run: Run, version: str, expected: list[str]) -> None:
    assert shown(run("main.tf", CLUSTER.replace("VERSION", version), "EKS001")) == expected


def test_a_module_needs_no_groups_to_have_a_version(run: Run) -> None:
    assert shown(run("a.tf", MODULE.replace("SOURCE", "terraform-aws-modules/eks/aws"), "EKS001")) == ["error EKS001 4"]
    own = MODULE.replace("SOURCE", "./modules/cluster") + 'resource "aws_subnet" "a" {}\n'
    assert not run("b.tf", own, "EKS001")  # what it does with the number is not known


def test_groups_are_changed_with_their_cluster(run: Run) -> None:
    text = CLUSTER.replace("VERSION", '"1.24"') + GROUP.replace("LINE", 'version = "1.24"\n  ami_type = "AL2_x86_64"')
    (finding,) = run("main.tf", text, "EKS001")
    assert "with AL2023_x86_64_STANDARD instead of AL2_x86_64, the same version in its node groups" in finding.fix
    assert not run("main.tf", text, "EKS002")


def test_a_group_states_a_version_that_no_cluster_has(run: Run) -> None:
    text = GROUP.replace("LINE", 'version = "1.24"\n  ami_type = "AL2_x86_64"')
    (finding,) = run("groups.tf", text, "EKS001", "EKS002")
    assert finding.code == "EKS001"
    assert finding.span.line == 6
    assert finding.fix.partition("; change with it whatever else")[0] == (
        "remove version, so that the group has its cluster's, with AL2023_x86_64_STANDARD instead of AL2_x86_64"
    )


def test_a_group_is_older_than_any_cluster_beside_its_newer_cluster(run: Run) -> None:
    group = GROUP.replace("LINE", 'version = "1.28"')
    for version, fix in (('"1.35"', "state 1.35,"), ("var.version", "remove version,")):
        (finding,) = run("main.tf", CLUSTER.replace("VERSION", version) + group, "EKS001")
        assert finding.message.endswith("1.28, which this node group states")
        assert finding.fix.startswith(fix)
    text = MODULE.replace("SOURCE", "terraform-aws-modules/eks/aws").replace('"1.24"', '"1.35"').rstrip()
    inside = 'eks_managed_node_groups = { a = { cluster_version = "VERSION" } }\n}\n'
    assert shown(run("a.tf", text[:-1] + inside.replace("VERSION", "1.28"), "EKS001"))
    assert not run("a.tf", text[:-1] + inside.replace("VERSION", "1.35"), "EKS001")


@pytest.mark.parametrize("line", ["version = aws_eks_cluster.main.version", "", 'version = "1.36"'])
def test_right_groups_are_left_alone(run: Run, line: str) -> None:
    assert not run("groups.tf", GROUP.replace("LINE", line), "EKS001")


def test_karpenter_is_made_for_a_version(run: Run) -> None:
    text = """apiVersion: eksctl.io/v1alpha5
kind: ClusterConfig
metadata: {name: train, region: us-east-2, version: "1.24"}
karpenter: {version: v0.27.2}
"""
    (finding,) = run("cluster.yaml", text, "EKS001")
    assert ", with a release of Karpenter that supports it;" in finding.fix


@pytest.mark.parametrize(("disk", "also"), [("8", ", with a disk of 20 GiB or more"), ("50", "")])
def test_a_disk_that_the_new_image_does_not_fit(run: Run, disk: str, also: str) -> None:
    (finding,) = run("groups.tf", GROUP.replace("LINE", f'ami_type = "AL2_x86_64"\n  disk_size = {disk}'), "EKS002")
    assert finding.fix.partition("; change with it whatever else")[0] == f"use AL2023_x86_64_STANDARD{also}"


@pytest.mark.parametrize(("version", "end"), [("1.31", "; that ends on 26 November 2026"), ("1.33", "")])
def test_an_end_that_is_near_is_named(run: Run, version: str, end: str) -> None:
    (finding,) = run("main.tf", CLUSTER.replace("VERSION", f'"{version}"'), "EKS001")
    assert finding.message.endswith(f"which costs six times as much{end}")


OPEN = """# of the EKS cluster
resource "aws_security_group" "access" {
  vpc_id = var.vpc
  ingress {
    from_port   = 22
    to_port     = 22
    protocol    = "tcp"
    cidr_blocks = ["0.0.0.0/0"]
  }
}
"""
REMOTE = (
    "remote_access {\n    ec2_ssh_key = var.key\n    source_security_group_ids = [aws_security_group.access.id]\n  }"
)
COMPUTED = (
    'resource "aws_instance" "b" {\n  vpc_security_group_ids = concat(var.x, [aws_security_group.access.id])\n}\n'
)
ATTACHED = """resource "aws_network_interface_sg_attachment" "a" {
  security_group_id    = aws_security_group.access.id
  network_interface_id = aws_instance.a.primary_network_interface_id
}
"""
MEMBER = 'resource "aws_instance" "a" {\n  vpc_security_group_ids = [\n    aws_security_group.access.id,\n  ]\n}\n'


@pytest.mark.parametrize(
    ("others", "level"),
    [
        ("", "warning"),
        (GROUP.replace("LINE", REMOTE), "info"),
        (MEMBER, "warning"),
        (GROUP.replace("LINE", REMOTE) + COMPUTED, "warning"),
        (GROUP.replace("LINE", REMOTE) + ATTACHED, "warning"),
    ],
)
def test_a_group_that_no_machine_is_in(run: Run, others: str, level: str) -> None:
    """EKS makes a group for ssh itself, which admits the members of the one that is named."""
    (finding,) = run("a.tf", OPEN + others, "SEC004")
    assert finding.level == level


def test_a_group_that_a_machine_of_another_file_is_in(run: Run, tmp_path: Path) -> None:
    (tmp_path / "b.tf").write_text(MEMBER)
    (finding,) = run("a.tf", OPEN + GROUP.replace("LINE", REMOTE), "SEC004")
    assert finding.level == "warning"


NAMED_IN_A_RULE = """resource "aws_security_group" "nodes" {
  ingress {
    from_port       = 0
    to_port         = 65535
    protocol        = "tcp"
    security_groups = [aws_security_group.access.id]
  }
}
"""
PRIVATE = 'resource "KIND" "a" {\n  LINE\n  vpc_security_group_ids = [aws_security_group.access.id]\n}\n'


@pytest.mark.parametrize(
    ("others", "level"),
    [
        (PRIVATE.replace("KIND", "aws_lb"), "info"),
        (PRIVATE.replace("KIND", "aws_efs_mount_target"), "info"),
        (PRIVATE.replace("KIND", "aws_eks_cluster"), "info"),
        (PRIVATE.replace("KIND", "aws_db_instance"), "info"),
        (PRIVATE.replace("KIND", "aws_db_instance").replace("LINE", "publicly_accessible = true"), "warning"),
        (PRIVATE.replace("KIND", "aws_lb") + MEMBER, "warning"),
        (PRIVATE.replace("KIND", "aws_lb") + NAMED_IN_A_RULE, "info"),
        ('resource "aws_lb" "x" {}\nmodule "m" {\n  security_groups = [aws_security_group.access.id]\n}\n', "warning"),
    ],
)
def test_a_group_of_what_has_no_public_address(run: Run, others: str, level: str) -> None:
    """Only the listeners of a load balancer answer, and mount targets have private addresses alone."""
    (finding,) = run("a.tf", OPEN + others.replace("  LINE\n", ""), "SEC004")
    assert finding.level == level


@pytest.mark.parametrize(
    ("port", "fix"),
    [
        ("22", "name your own address range"),
        ("2049", "name the security group of the nodes that use it, or their network's range"),
        (
            "0",
            "name who needs them: the group itself for what its members say to each other, a load balancer's group, "
            "your own address range for ssh",
        ),
    ],
)
def test_who_may_use_a_port(run: Run, port: str, fix: str) -> None:
    text = OPEN.replace("22", port).replace('"tcp"', '"-1"' if port == "0" else '"tcp"')
    (finding,) = run("a.tf", text, "SEC004")
    assert finding.fix == fix
