"""File systems in Terraform: their security groups, found by the file system that names them, and their metadata."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from reported import loud, shown

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]

FILE = """resource "aws_security_group" "fs" {{
  vpc_id = var.vpc_id
{rules}
}}
resource "aws_fsx_lustre_file_system" "scratch" {{
  storage_capacity   = 1200
  deployment_type    = "SCRATCH_2"
  subnet_ids         = [var.subnet_id]
  security_group_ids = {groups}
}}
{more}
"""


def text(rules: str, groups: str = "[aws_security_group.fs.id]", more: str = "") -> str:
    return FILE.format(rules=rules, groups=groups, more=more)


def ingress(low: object, high: object, protocol: str = "tcp") -> str:
    lines = f'protocol = "{protocol}"', f"from_port = {low}", f"to_port = {high}", "self = true"
    return "  ingress {\n" + "".join(f"    {line}\n" for line in lines) + "  }\n"


LUSTRE = ingress(988, 988) + ingress(1018, 1023)
RULE = """resource "aws_security_group_rule" "a" {{
  type = "ingress"
  security_group_id = aws_security_group.fs.id
  protocol = "{protocol}"
  from_port = {low}
  to_port = {high}
  self = true
}}
"""
VPC_RULE = """resource "aws_vpc_security_group_ingress_rule" "a" {
  security_group_id            = aws_security_group.fs.id
  referenced_security_group_id = aws_security_group.fs.id
  ip_protocol                  = "tcp"
  from_port                    = 2049
  to_port                      = 2049
}
"""


@pytest.mark.parametrize(
    ("file", "findings"),
    [
        (text(ingress(2049, 2049)), ["error STO005 1"]),  # of NFS
        (text(ingress(443, 443) + ingress(22, 22)), ["error STO005 1"]),
        (text(ingress(988, 988)), ["warning STO005 1"]),
        (text("", more=RULE.format(protocol="tcp", low=2049, high=2049)), ["error STO005 1"]),
        (text("", more=VPC_RULE), ["error STO005 1"]),
        (text("").replace("lustre", "openzfs"), ["info STO005 1"]),
        (text(ingress(988, 988)).replace("lustre", "openzfs"), ["info STO005 1"]),  # nothing speaks of training
    ],
)
def test_a_group_without_the_ports_of_its_file_system(run: Run, file: str, findings: list[str]) -> None:
    assert shown(run("fsx.tf", file, "STO005")) == findings


@pytest.mark.parametrize(
    "file",
    [
        text(LUSTRE),
        text(ingress(988, 1023)),
        text(ingress(0, 0, "-1")),
        text(ingress(0, 0, "all")),
        text(ingress(0, 65535)),
        text("", more=RULE.format(protocol="-1", low=0, high=0)),
        text(ingress(2049, 2049), "[aws_security_group.fs.id, var.nodes]"),  # the other one may admit them
        text(ingress(2049, 2049), "concat([aws_security_group.fs.id], var.more)"),
        text(ingress(2049, 2049), "var.groups"),
        text(ingress("var.port", "var.port")),
        text('  dynamic "ingress" {\n    for_each = [988, 1021]\n    content {\n      protocol = "tcp"\n    }\n  }'),
        text("  ingress = local.rules"),
        text(""),  # a note: whoever uses the module may add rules
        text(ingress(2049, 2049), more=RULE.format(protocol="tcp", low="each.value", high="each.value")),
    ],
)
def test_groups_that_admit_the_file_system_or_may(run: Run, file: str) -> None:
    assert not loud(run("fsx.tf", file, "STO005"))


@pytest.mark.parametrize(
    ("more", "expected"), [("", ["info STO004 8"]), ('metadata_configuration {\n    mode = "AUTOMATIC"\n  }', [])]
)
def test_lustre_with_efa_in_terraform_states_its_metadata(run: Run, more: str, expected: list[str]) -> None:
    text = f"""resource "aws_fsx_lustre_file_system" "hot" {{
  subnet_ids                  = [var.subnet]
  deployment_type             = "PERSISTENT_2"
  storage_type                = "SSD"
  storage_capacity            = 19200
  per_unit_storage_throughput = 250
  file_system_type_version    = "2.15"
  efa_enabled                 = true
  {more}
}}
"""
    assert shown(run("fsx.tf", text, "STO004")) == expected
