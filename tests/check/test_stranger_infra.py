"""Mistakes of infrastructure and manifests that a stranger planted and earlier versions did not report: each gives the
named finding at its line, and the corrected file gives none of that rule."""

from __future__ import annotations

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
