"""User data of launch templates and instances, which EC2 takes in base64 (CFN001, TFM001)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from reported import loud

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]
TEMPLATE = """AWSTemplateFormatVersion: "2010-09-09"
Parameters:
  Data: {{Type: String}}
  Name: {{Type: String}}
Conditions:
  Large: !Equals [!Ref Name, large]
Resources:
  Nodes:
    Type: AWS::EC2::LaunchTemplate
    Properties:
      LaunchTemplateData:
        InstanceType: p5.48xlarge
        ImageId: !Ref Name
        UserData: {data}
"""


@pytest.mark.parametrize(
    "data",
    [
        "|\n          #!/bin/bash\n          echo 1",
        "!Sub |\n          #!/bin/bash -xe\n          echo ${Name}",
        "\n          Fn::Sub: |\n            #!/bin/bash\n            echo ${Name}",
        '!Sub ["#!/bin/bash\\necho ${A}", {A: !Ref Name}]',
        '!Join ["\\n", ["#!/bin/bash", "echo 1"]]',
        '{"Fn::Join": ["", ["#!/bin/bash\\n", {"Ref": "Name"}]]}',
        '!If [Large, !Sub "#!/bin/bash", !Ref AWS::NoValue]',
        "|\n          #cloud-config\n          packages: [git]",
        "|\n          MIME-Version: 1.0\n          Content-Type: multipart/mixed",
    ],
)
def test_plain_text_in_cloudformation(run: Run, data: str) -> None:
    assert len(loud(run("a.yaml", TEMPLATE.format(data=data), "CFN001"))) == 1


@pytest.mark.parametrize(
    "data",
    [
        "!Base64 |\n          #!/bin/bash\n          echo 1",
        "\n          Fn::Base64: !Sub |\n            #!/bin/bash\n            echo ${Name}",
        '!If [Large, {"Fn::Base64": "#!/bin/bash"}, !Ref AWS::NoValue]',
        "!Ref Data",
        "IyEvYmluL2Jhc2gKZWNobyAx",
        '"{{resolve:ssm:/boot/data}}"',
        "!Sub ${Data}",
    ],
)
def test_encoded_or_open_in_cloudformation(run: Run, data: str) -> None:
    assert not loud(run("a.yaml", TEMPLATE.format(data=data), "CFN001"))


def test_an_instance_and_a_resource_that_takes_plain_text(run: Run) -> None:
    plain = "Resources:\n  A:\n    Type: {}\n    Properties:\n      UserData: "
    plain += "|\n        #!/bin/bash\n        echo p5.48xlarge\n"
    head = 'AWSTemplateFormatVersion: "2010-09-09"\n'
    assert len(loud(run("b.yaml", head + plain.format("AWS::EC2::Instance"), "CFN001"))) == 1
    assert not loud(run("b.yaml", head + plain.format("Custom::Cluster"), "CFN001"))


def test_a_file_that_terraform_takes_as_it_is(run: Run, tmp_path: Path) -> None:
    (tmp_path / "join.sh").write_text("#!/bin/bash\necho 1\n")
    (tmp_path / "join.b64").write_text("IyEvYmluL2Jhc2gKZWNobyAxCg==\n")
    for data, count in (
        ('file("${path.module}/join.sh")', 1),
        ('file("join.sh")', 1),
        ('file("${path.module}/join.b64")', 0),
        ('file("${path.module}/made-by-ci.sh")', 0),
        ('base64encode(file("${path.module}/join.sh"))', 0),
        ('filebase64("${path.module}/join.sh")', 0),
    ):
        findings = run("nodes.tf", LAUNCH.format(kind="aws_launch_template", data=data), "TFM001")
        assert len(loud(findings)) == count, data


LAUNCH = 'resource "{kind}" "gpu" {{\n  instance_type = "p5.48xlarge"\n  user_data = {data}\n}}\n'


@pytest.mark.parametrize(
    ("data", "count"),
    [
        ("<<-EOT\n    #!/bin/bash\n    echo ${var.name}\n  EOT", 1),
        ('templatefile("${path.module}/boot.sh", { a = 1 })', 1),
        ("data.template_file.boot.rendered", 1),
        ('"#!/bin/bash\\necho 1"', 1),
        ("base64encode(<<-EOT\n    #!/bin/bash\n  EOT\n  )", 0),
        ('base64encode(templatefile("boot.sh", {}))', 0),
        ('filebase64("${path.module}/boot.sh")', 0),
        ("data.cloudinit_config.boot.rendered", 0),
        ("var.user_data", 0),
        ("local.boot", 0),
        ("<<-EOT\n    IyEvYmluL2Jhc2g=\n  EOT", 0),
    ],
)
def test_terraform(run: Run, data: str, count: int) -> None:
    assert len(loud(run("a.tf", LAUNCH.format(kind="aws_launch_template", data=data), "TFM001"))) == count
    group = 'resource "aws_security_group" "a" {}\n'
    # Of an instance the provider encodes it.
    assert not run("b.tf", group + LAUNCH.format(kind="aws_instance", data=data), "TFM001")
