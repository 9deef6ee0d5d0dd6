"""Terraform that is right together with the other files of its directory, and was reported."""

from __future__ import annotations

from pathlib import Path

import pytest
from reported import rows

from trainwright.check.engine import check

GROUP = """resource "aws_eks_node_group" "gpu" {{
  instance_types = ["g5.12xlarge"]
  ami_type       = "AL2023_x86_64_STANDARD"
  {more}
  scaling_config {{
    desired_size = 1
    max_size     = 2
    min_size     = 0
  }}
}}
"""
MODULE = """module "eks" {{
  source = "terraform-aws-modules/eks/aws"
  eks_managed_node_groups = {{
    gpu = {{
      instance_types = ["g5.xlarge"]
      ami_type       = "AL2023_x86_64_STANDARD"
      max_size       = 1
      {more}
    }}
  }}
}}
"""
OPERATOR = 'resource "helm_release" "gpu_operator" {\n  chart = "gpu-operator"\n}\n'


def levels(folder: Path, code: str) -> list[str]:
    return [row["level"] for row in rows(folder, "--select", code)]


def test_a_driver_that_another_file_installs(tmp_path: Path) -> None:
    (tmp_path / "eks.tf").write_text(GROUP.format(more=""))
    assert levels(tmp_path, "TFM001") == ["error"]
    (tmp_path / "addons.tf").write_text(OPERATOR)
    assert levels(tmp_path, "TFM001") == ["info"]


@pytest.mark.parametrize(
    ("more", "level"),
    [
        ("", "error"),
        ('pre_bootstrap_user_data = "dnf install -y nvidia-driver"', "info"),
        ("cloudinit_pre_nodeadm = [{ content = file(driver) }]", "info"),
        ('pre_bootstrap_user_data = ""', "error"),
    ],
)
def test_a_driver_that_the_node_installs_itself(tmp_path: Path, more: str, level: str) -> None:
    (tmp_path / "eks.tf").write_text(MODULE.format(more=more))
    assert levels(tmp_path, "TFM001") == [level]


LUSTRE = """resource "aws_security_group" "fsx" {
  ingress {
    from_port = 988
    to_port   = 988
    protocol  = "tcp"
    self      = true
  }
}
"""
MORE = """resource "aws_security_group_rule" "more" {
  type              = "ingress"
  from_port         = 1018
  to_port           = 1023
  protocol          = "tcp"
  self              = true
  security_group_id = aws_security_group.fsx.id
}
"""


def test_rules_of_a_group_in_another_file(tmp_path: Path) -> None:
    (tmp_path / "fsx.tf").write_text(LUSTRE)
    assert levels(tmp_path, "STO005") == ["warning"]
    (tmp_path / "other.tf").write_text(MORE.replace("fsx", "other"))
    assert levels(tmp_path, "STO005") == ["warning"]
    (tmp_path / "rules.tf").write_text(MORE)
    assert levels(tmp_path, "STO005") == []


def test_a_driver_that_a_readme_installs(tmp_path: Path) -> None:
    (tmp_path / "eks.tf").write_text(GROUP.format(more=""))
    (tmp_path / "README.md").write_text("helm install gpu-operator nvidia/gpu-operator -n gpu-operator\n")
    assert levels(tmp_path, "TFM001") == ["info"]


@pytest.mark.parametrize(
    ("types", "image", "found"),
    [
        ('"g5g.xlarge"', "AL2023_x86_64_NVIDIA", ["error"]),
        ('"g5.xlarge"', "AL2023_ARM_64_NVIDIA", ["error"]),
        ('"m7g.large"', "BOTTLEROCKET_ARM_64", []),
        ('"g5g.xlarge"', "AL2023_ARM_64_NVIDIA", []),
        ('"g5.xlarge"', "CUSTOM", []),
        ('"m5.large", "g4dn.xlarge"', "AL2023_x86_64_STANDARD", ["info"]),
    ],
)
def test_images_and_types(tmp_path: Path, types: str, image: str, found: list[str]) -> None:
    text = MODULE.format(more="").replace('"g5.xlarge"', types).replace("AL2023_x86_64_STANDARD", image)
    (tmp_path / "eks.tf").write_text(text)
    assert levels(tmp_path, "TFM001") == found


@pytest.mark.parametrize(
    ("type_", "fix"),
    [
        ("g4dn.xlarge", "write AL2023_x86_64_NVIDIA, with a disk of 20 GiB or more"),
        ("g5g.xlarge", "write AL2023_ARM_64_NVIDIA, with a disk of 20 GiB or more"),
    ],
)
def test_the_image_with_the_driver_is_of_the_type(tmp_path: Path, type_: str, fix: str) -> None:
    text = (
        MODULE.format(more="disk_size = 10").replace("g5.xlarge", type_).replace("AL2023_x86_64_STANDARD", "AL2_x86_64")
    )
    (tmp_path / "eks.tf").write_text(text)
    fixes = [finding.fix for finding in check([str(tmp_path)]).findings if "driver" in finding.message]
    assert fixes == [fix]
