"""SEC004: managed policies that Terraform attaches to the roles of nodes by resources of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from reported import shown

from trainwright.check.engine import Selection, check
from trainwright.check.readers.recognise import read_file

ROLE = """resource "aws_iam_role" "node" {
  name = "gpu-node"
  assume_role_policy = jsonencode({
    Version   = "2012-10-17"
    Statement = [{ Effect = "Allow", Action = "sts:AssumeRole", Principal = { Service = "SERVICE" } }]
  })
}
"""
OF_EC2 = ROLE.replace("SERVICE", "ec2.amazonaws.com")
HEREDOC = """resource "aws_iam_role" "node" {
  assume_role_policy = <<EOF
{"Statement": [{"Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole", "Effect": "Allow"}]}
EOF
}
"""
ATTACHED = """resource "aws_iam_role_policy_attachment" "NAME" {
  role       = aws_iam_role.node.name
  policy_arn = "arn:aws:iam::aws:policy/POLICY"
}
"""
WORKER = ATTACHED.replace("NAME", "worker").replace("POLICY", "AmazonEKSWorkerNodePolicy")
WIDE = ATTACHED.replace("NAME", "wide").replace("POLICY", "AmazonSSMFullAccess")
LISTED = """resource "aws_iam_role_policy_attachment" "all" {
  for_each = toset([
    "arn:aws:iam::aws:policy/AmazonEKSWorkerNodePolicy",
    "arn:aws:iam::aws:policy/AmazonSSMFullAccess",
  ])
  role       = aws_iam_role.node.name
  policy_arn = each.value
}
"""
LOCALS = """locals {
  policies = {
    worker = "arn:aws:iam::aws:policy/AmazonEKSWorkerNodePolicy"
    ssm    = "arn:aws:iam::aws:policy/AmazonSSMFullAccess"
  }
}
resource "aws_iam_role_policy_attachment" "all" {
  for_each   = local.policies
  role       = aws_iam_role.node.name
  policy_arn = each.value
}
"""
GROUP = 'resource "aws_eks_node_group" "gpu" {\n  cluster_name  = "c"\n  node_role_arn = aws_iam_role.node.arn\n}\n'
MODULE = """module "eks" {
  source = "terraform-aws-modules/eks/aws"
  eks_managed_node_groups = {
    gpu = {
      instance_types = ["g5.xlarge"]
      iam_role_additional_policies = LIST
    }
  }
}
"""
MAP = '{ ssm = "arn:aws:iam::aws:policy/AmazonSSMFullAccess" }'
MANAGED = OF_EC2.replace(
    '"gpu-node"', '"gpu-node"\n  managed_policy_arns = ["arn:aws:iam::aws:policy/AdministratorAccess"]'
)


def found(folder: Path, *texts: str) -> list[str]:
    for number, text in enumerate(texts):
        (folder / f"{number}.tf").write_text(text)
    return shown(check([str(folder)], Selection(select=("SEC004",))).findings)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ((OF_EC2 + WORKER + WIDE,), "warning SEC004 14"),
        (("# GPU nodes\n" + WIDE, OF_EC2 + WORKER), "warning SEC004 4"),
        ((OF_EC2 + GROUP + WIDE,), "warning SEC004 14"),
        ((HEREDOC + WORKER + WIDE + "# of GPU nodes\n",), "warning SEC004 12"),
        ((OF_EC2 + LISTED,), "warning SEC004 11"),
        ((OF_EC2 + LOCALS,), "warning SEC004 11"),
        ((LOCALS + OF_EC2,), "warning SEC004 4"),
        ((OF_EC2 + WIDE,), "info SEC004 10"),  # instances that may be anything
        ((OF_EC2.replace("ec2.amazonaws.com", "ec2.${data.aws_partition.p.dns_suffix}") + WIDE,), "info SEC004 10"),
        ((OF_EC2 + WORKER + WIDE.replace("arn:aws:", "arn:${data.aws_partition.p.partition}:"),), "warning SEC004 14"),
        ((OF_EC2 + WORKER + WIDE.replace("arn:aws:iam::aws:policy", "${local.prefix}"),), "warning SEC004 14"),
        ((OF_EC2 + WORKER + WIDE.replace('" {', '" {\n  count = var.debug ? 1 : 0'),), "info SEC004 15"),
        ((OF_EC2 + GROUP + WIDE.replace("SSMFull", "S3Full"),), "info SEC004 14"),
        ((MANAGED,), "info SEC004 3"),
        ((MANAGED + GROUP,), "warning SEC004 3"),
        ((MODULE.replace("LIST", MAP),), "warning SEC004 6"),
        ((MODULE.replace("LIST", f"[{MAP[8:-2]}]"),), "warning SEC004 6"),
    ],
)
def test_wide_policies_of_nodes(tmp_path: Path, texts: tuple[str, ...], expected: str) -> None:
    assert found(tmp_path, *texts) == [expected]


CORE = WIDE.replace("AmazonSSMFullAccess", "AmazonSSMManagedInstanceCore")


@pytest.mark.parametrize(
    "texts",
    [
        (OF_EC2 + WORKER + CORE,),
        (OF_EC2 + LISTED.replace("SSMFullAccess", "SSMManagedInstanceCore"),),
        (ROLE.replace("SERVICE", "codebuild.amazonaws.com") + WIDE,),
        (ROLE.replace("SERVICE", "lambda.amazonaws.com") + WIDE.replace("AmazonSSMFullAccess", "AdministratorAccess"),),
        (ROLE.replace("SERVICE", "eks.amazonaws.com") + WIDE,),
        (ROLE.replace('{ Service = "SERVICE" }', "{ AWS = var.admins }") + WIDE,),
        (WIDE,),  # a role that nothing here declares
        (OF_EC2 + WORKER + WIDE.replace("aws_iam_role.node", "aws_iam_role.admin"),),
        (OF_EC2 + WORKER + WIDE.replace("aws_iam_role.node.name", "var.admin_role"),),
        (OF_EC2 + WORKER + WIDE.replace("iam::aws:", "iam::123456789012:"),),  # one's own of that name
        (OF_EC2 + WORKER + WIDE.replace('"arn:aws:iam::aws:policy/AmazonSSMFullAccess"', "var.policy"),),
        (OF_EC2 + WORKER + WIDE.replace('"arn:', 'var.admin ? "arn:').replace('Access"', 'Access" : local.narrow'),),
        (OF_EC2 + WORKER + "# " + "\n# ".join(WIDE.splitlines()),),
        (OF_EC2 + WORKER + 'data "aws_iam_policy" "a" { arn = "arn:aws:iam::aws:policy/AmazonSSMFullAccess" }\n',),
        (OF_EC2 + WORKER + WIDE.replace("role_policy", "user_policy").replace("role ", "user "),),
        (OF_EC2 + WORKER + WIDE.replace("role_policy", "group_policy").replace("role ", "group "),),
        (MODULE.replace("LIST", MAP.replace("SSMFullAccess", "SSMManagedInstanceCore")),),
        (MODULE.replace("LIST", "{}"),),
        (MODULE.replace("LIST", "local.policies"),),
        (MODULE.replace("LIST", "var.admin ? " + MAP + " : {}"),),
        (MODULE.replace("LIST", "{ own = aws_iam_policy.AmazonSSMFullAccess.arn }"),),
        ('variable "policies" { default = ["arn:aws:iam::aws:policy/AdministratorAccess"] }\n' + OF_EC2 + WORKER,),
        ('output "x" { value = "arn:aws:iam::aws:policy/AdministratorAccess" }\n' + OF_EC2 + WORKER,),
    ],
)
def test_narrow_policies_and_roles_of_others(tmp_path: Path, texts: tuple[str, ...]) -> None:
    assert found(tmp_path, *texts) == []


DOCUMENT = """data "aws_iam_policy_document" "all" {
  statement {
    actions   = ["*"]
    resources = ["*"]
  }
}
"""
OF_DOCUMENT = """resource "aws_iam_role_policy" "all" {
  role   = aws_iam_role.node.id
  policy = data.aws_iam_policy_document.all.json
}
"""
ENCODED = """resource "aws_iam_role_policy" "all" {
  role = aws_iam_role.node.id
  policy = jsonencode({
    Version   = "2012-10-17"
    Statement = [{ Effect = "Allow", Action = "*", Resource = "*" }]
  })
}
"""
ATTACHED_OWN = """resource "aws_iam_policy" "all" {
  policy = <<EOF
{"Statement": [{"Effect": "Allow", "Action": ["*"], "Resource": "*"}]}
EOF
}
resource "aws_iam_role_policy_attachment" "own" {
  role       = aws_iam_role.node.name
  policy_arn = aws_iam_policy.all.arn
}
"""
NARROW = DOCUMENT.replace('["*"]\n    res', '["s3:*"]\n    res')


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ((DOCUMENT + OF_DOCUMENT + OF_EC2,), "info SEC004 3"),
        ((DOCUMENT + OF_DOCUMENT + OF_EC2 + WORKER,), "warning SEC004 3"),
        (("# GPU nodes\n" + DOCUMENT, OF_DOCUMENT + OF_EC2 + GROUP), "warning SEC004 4"),
        ((ENCODED + OF_EC2,), "info SEC004 5"),
        ((ATTACHED_OWN + HEREDOC,), "info SEC004 3"),
        (("  " + (DOCUMENT + OF_DOCUMENT + OF_EC2).replace("\n", "\n  "),), "info SEC004 3"),
        ((DOCUMENT + OF_DOCUMENT + ROLE.replace("SERVICE", "lambda.amazonaws.com"),), ""),
        ((DOCUMENT + OF_EC2,), ""),
        ((NARROW + OF_DOCUMENT + OF_EC2,), ""),
        ((DOCUMENT.replace("    actions", '    effect = "Deny"\n    actions') + OF_DOCUMENT + OF_EC2,), ""),
        ((DOCUMENT.replace("  }\n", "    condition {\n    }\n  }\n") + OF_DOCUMENT + OF_EC2,), ""),
        ((ENCODED.replace('Resource = "*"', 'Resource = var.bucket') + OF_EC2,), ""),
    ],
)  # fmt: skip
def test_statements_of_a_configuration(tmp_path: Path, texts: tuple[str, ...], expected: str) -> None:
    """A policy that the configuration writes itself is read by its statements."""
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.tf").write_text(text)
    findings = check([str(tmp_path)], Selection(select=("SEC004",))).findings
    assert shown(findings) == ([expected] if expected else [])


CARDS = """locals { cards = 4 }
resource "aws_security_group" "efa" {
  name = "efa"
}
resource "aws_launch_template" "a" {
  dynamic "network_interfaces" {
    for_each = range(local.cards)
    content {
      interface_type  = "efa"
      security_groups = [aws_security_group.efa.id]
    }
  }
}
"""


@pytest.mark.parametrize("saved", ["locals { cards = 4\n", "locals { cards = 0 }\n"])
def test_local_values_are_those_of_the_text_at_hand(tmp_path: Path, saved: str) -> None:
    """An editor's text is not yet saved; a file beside it may be broken."""
    path = tmp_path / "main.tf"
    path.write_text(saved)
    (tmp_path / "other.tf").write_text("resource {{{\n")
    file = read_file(str(path), CARDS)
    assert file is not None
    assert file.security_groups[0].uses == {"efa"}
