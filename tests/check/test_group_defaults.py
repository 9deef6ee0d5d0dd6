"""What Terraform's community module gives to all groups of a kind: a fix at one group does not change the others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]
MODULE = """module "eks" {
  source  = "terraform-aws-modules/eks/aws"
  version = "~> 20.0"
  eks_managed_node_group_defaults = {
    DEFAULT
  }
  eks_managed_node_groups = {
    a = { instance_types = ["A"] }
    b = { instance_types = ["B"] }
  }
}
"""
AMI = 'ami_type = "AL2023_x86_64_STANDARD"'
EFA = "enable_efa_support = true"


@pytest.mark.parametrize(
    ("code", "default", "types", "expected"),
    [
        ("TFM001", AMI, ("m5.large", "g5.xlarge"), [(9, 'add ami_type = "AL2023_x86_64_NVIDIA" to this group')]),
        ("TFM001", AMI, ("g5.xlarge", "p4d.24xlarge"), [(5, "write AL2023_x86_64_NVIDIA")]),
        ("TFM001", AMI, ("m5.large", "m6g.large"), [(9, "add an ami_type for arm64 to this group")]),
        (
            "NET002",
            EFA,
            ("p4d.24xlarge", "m5.large"),
            [
                (
                    9,
                    "add enable_efa_support = false to this group, or use a type that has it "
                    "(`trainwright catalog list --efa`)",
                )
            ],
        ),
    ],
)
def test_a_default_that_is_wrong_for_some_groups(
    run: Run, code: str, default: str, types: tuple[str, str], expected: list[tuple[int, str]]
) -> None:
    text = MODULE.replace("DEFAULT", default).replace('"A"', f'"{types[0]}"').replace('"B"', f'"{types[1]}"')
    assert [(one.span.line, one.fix) for one in run("eks.tf", text, code)] == expected


def test_an_image_of_all_groups_is_reported_once(run: Run) -> None:
    text = MODULE.replace("DEFAULT", AMI).replace('"A"', '"g5.xlarge"').replace('"B"', '"p4d.24xlarge"')
    (finding,) = run("eks.tf", text, "TFM001")
    assert finding.message.startswith("a, b: AL2023_x86_64_STANDARD has no driver")
