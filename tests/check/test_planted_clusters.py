"""Certain mistakes of cluster files that a stranger planted and `check` did not see, and right files beside them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from reported import loud, shown

from trainwright.check.finding import Finding
from trainwright.check.own_codes import CRASHED

Run = Callable[..., list[Finding]]

PCLUSTER = """Region: us-east-1
Image: {{Os: alinux2023}}
HeadNode:
  InstanceType: m5.xlarge
  Networking: {{SubnetId: subnet-0123456789abcdef0}}
  Ssh: {{KeyName: me}}
  CustomActions: {{OnNodeConfigured: {{Script: "{script}"}}}}
Scheduling:
  Scheduler: slurm
  SlurmQueues:
    - Name: gpu
      Networking: {{SubnetIds: [subnet-0123456789abcdef0], PlacementGroup: {{Enabled: true}}}}
      ComputeResources:
        - Name: p5
          {types}
          MinCount: 0
          MaxCount: 2
          DisableSimultaneousMultithreading: {single}
          Efa: {{Enabled: true}}
          CustomSlurmSettings: {settings}
"""


def pcluster(
    script: str = "https://example.com/a.sh",
    settings: str = "{Sockets: 2, CoresPerSocket: 48, ThreadsPerCore: 2}",
    types: str = "InstanceType: p5.48xlarge",
    single: str = "false",
) -> str:
    return PCLUSTER.format(script=script, settings=settings, types=types, single=single)


@pytest.mark.parametrize(
    "script", ["file:///home/ec2-user/a.sh", "post_install.sh", "/fsx/a.sh", "http://a.example.com/b.sh", "s3://bucket"]
)
def test_parallelcluster_takes_scripts_by_https_and_s3_only(script: str, run: Run) -> None:
    """As UrlValidator of ParallelCluster 3.16 answers."""
    assert shown(run("c.yaml", pcluster(script), "CFG005")) == ["error CFG005 7"]


@pytest.mark.parametrize(
    "script",
    ["https://a.example.com/b.sh", "s3://bucket/b.sh", "HTTPS://a.example.com/b.sh", "${SCRIPT}", "<your-script>",
     "s3://bucket/${VERSION}/a.sh", "{{ script }}", "SCRIPT_URL"],
)  # fmt: skip
def test_right_addresses_and_placeholders_of_scripts(script: str, run: Run) -> None:
    assert not loud(run("c.yaml", pcluster(script), "CFG005"))


def test_a_script_in_a_sequence(run: Run) -> None:
    text = pcluster().replace('{Script: "https://example.com/a.sh"}', "{Sequence: [{Script: scripts/a.sh}]}")
    assert shown(run("c.yaml", text, "CFG005")) == ["error CFG005 7"]


SIZES = {
    "{Sockets: 2, CoresPerSocket: 24, ThreadsPerCore: 2}": ["warning SLU003 20"],  # p4d's
    "{Sockets: 2, CoresPerSocket: 96, ThreadsPerCore: 2}": ["warning SLU003 20"],
    "{Sockets: 2, CoresPerSocket: 40, ThreadsPerCore: 2}": ["warning SLU003 20"],
    '{Sockets: "4", CoresPerSocket: "48", ThreadsPerCore: "2"}': ["warning SLU003 20"],
    "{Sockets: 2, CoresPerSocket: 48, ThreadsPerCore: 2}": [],
    "{Sockets: 2, CoresPerSocket: 96, ThreadsPerCore: 1}": [],
    "{Sockets: 192, CoresPerSocket: 1}": [],
    "{Sockets: 2, CoresPerSocket: 48}": [],  # one CPU per core may be meant
    "{Sockets: 2, CoresPerSocket: 48, ThreadsPerCore: 1}": [],
    "{Sockets: 2, CoresPerSocket: $CORES, ThreadsPerCore: 2}": [],
    "{Boards: 2, CoresPerSocket: 48, ThreadsPerCore: 2, Sockets: 1}": [],
}


@pytest.mark.parametrize("settings", SIZES)
def test_sockets_cores_and_threads_make_the_cpus_of_the_instance(settings: str, run: Run) -> None:
    assert shown(run("c.yaml", pcluster(settings=settings), "SLU003")) == SIZES[settings]


def test_one_thread_per_core_halves_the_cpus(run: Run) -> None:
    right, wrong = "{Sockets: 2, CoresPerSocket: 48}", "{Sockets: 2, CoresPerSocket: 48, ThreadsPerCore: 2}"
    assert not run("c.yaml", pcluster(settings=right, single="true"), "SLU003")
    # CPUs=96 is the number of cores, which Slurm accepts
    assert not run("c.yaml", pcluster(settings=wrong, single="true"), "SLU003")


def test_several_types_of_a_resource_are_left_alone(run: Run) -> None:
    types = "Instances: [{InstanceType: p5.48xlarge}, {InstanceType: p4d.24xlarge}]"
    settings = "{Sockets: 2, CoresPerSocket: 12, ThreadsPerCore: 2}"
    assert not loud(run("c.yaml", pcluster(settings=settings, types=types), "SLU003"))


EKSCTL = """apiVersion: eksctl.io/v1alpha5
kind: ClusterConfig
metadata: {{name: a, region: us-east-1}}
{kind}:
  - name: gpu
    minSize: 0
    maxSize: 2
    {more}
"""


def eksctl(more: str, kind: str = "managedNodeGroups") -> str:
    return EKSCTL.format(kind=kind, more=more.replace("\n", "\n    "))


TEMPLATE = 'launchTemplate: {id: lt-0123456789abcdef0, version: "2"}\n'
BESIDE = [
    "instanceType: p5.48xlarge", "volumeSize: 500", "ami: ami-0123456789abcdef0", "ssh: {allow: true}",
    "ssh: {sourceSecurityGroupIds: [sg-0123456789abcdef0]}", "preBootstrapCommands: [echo a]",
    "overrideBootstrapCommand: echo a", "securityGroups: {attachIDs: [sg-0123456789abcdef0]}",
]  # fmt: skip


@pytest.mark.parametrize("setting", BESIDE)
def test_eksctl_refuses_settings_beside_a_launch_template(setting: str, run: Run) -> None:
    (finding,) = run("c.yaml", eksctl(TEMPLATE + setting), "EKS001")
    assert (finding.level, finding.span.line) == ("error", 9)
    assert setting.partition(":")[0] in finding.message


@pytest.mark.parametrize(
    "more",
    [
        TEMPLATE + "instanceTypes: [p5.48xlarge]", TEMPLATE + "ssh: {allow: false}", TEMPLATE + "labels: {a: b}",
        TEMPLATE + "instanceType: ''", "instanceType: m5.large\nvolumeSize: 500\nssh: {allow: true}",
    ],
)  # fmt: skip
def test_right_settings_of_a_managed_group(more: str, run: Run) -> None:
    assert not run("c.yaml", eksctl(more), "EKS001")


TERRAFORM = """resource "aws_eks_node_group" "gpu" {{
  cluster_name  = "a"
  node_role_arn = "arn:aws:iam::111122223333:role/a"
  subnet_ids    = ["subnet-0123456789abcdef0"]
  {size}
  scaling_config {{
    desired_size = 1
    max_size     = 1
    min_size     = 1
  }}
  {template}
}}
"""
NAMED = 'launch_template {\n    id      = "lt-0123456789abcdef0"\n    version = 1\n  }'
DYNAMIC = 'dynamic "launch_template" {\n    for_each = var.t\n    content {\n      id = "lt-0"\n    }\n  }'
TERRAFORM_CASES = [
    ("disk_size = 500", NAMED, ["error TFM001 5"]),
    ('remote_access {\n    ec2_ssh_key = "me"\n  }', NAMED, ["error TFM001 5"]),
    ("disk_size = 500", "", []),
    ("", NAMED, []),
    ("disk_size = null", NAMED, []),
    ("disk_size = var.disk", NAMED, []),
    ("disk_size = 500", DYNAMIC, []),
]


@pytest.mark.parametrize(("size", "template", "expected"), TERRAFORM_CASES)
def test_a_node_group_of_terraform_has_its_disk_in_the_template(
    size: str, template: str, expected: list[str], run: Run
) -> None:
    assert shown(run("main.tf", TERRAFORM.format(size=size, template=template), "TFM001")) == expected


def test_the_module_ignores_a_disk_beside_its_template(run: Run) -> None:
    text = 'module "eks" {\n  source = "terraform-aws-modules/eks/aws"\n  eks_managed_node_groups = {\n    a = {\n'
    text += '      disk_size = 500\n      launch_template_id = "lt-0123456789abcdef0"\n    }\n  }\n}\n'
    assert not run("main.tf", text, "TFM001")


CFN = """AWSTemplateFormatVersion: "2010-09-09"
Resources:
  Group:
    Type: AWS::EKS::Nodegroup
    Properties:
      ClusterName: a
      NodeRole: arn:aws:iam::111122223333:role/a
      Subnets: [subnet-0123456789abcdef0]
      DiskSize: {size}
      LaunchTemplate: {template}
"""


@pytest.mark.parametrize(
    ("size", "template", "expected"),
    [
        ("500", "{Id: lt-0123456789abcdef0}", ["error EKS001 9"]),
        ("!If [Own, !Ref AWS::NoValue, 500]", "{Id: lt-0123456789abcdef0}", []),
        ("500", "!If [Own, {Id: lt-0123456789abcdef0}, !Ref AWS::NoValue]", []),
        ("!Ref AWS::NoValue", "{Id: lt-0123456789abcdef0}", []),
    ],
)
def test_a_node_group_of_cloudformation_has_its_disk_in_the_template(
    size: str, template: str, expected: list[str], run: Run
) -> None:
    text = CFN.format(size=size, template=template) + "Conditions:\n  Own: !Equals [a, a]\n"
    assert shown(run("t.yaml", text, "EKS001")) == expected


@pytest.mark.parametrize("rate", ["-1", "0", "-250"])
def test_a_throughput_that_is_none(rate: str, run: Run) -> None:
    """STO003 divided by the accelerators of a cluster without any, where a rate below 0 made it the slowest."""
    data = (
        "SharedStorage:\n  - Name: data\n    MountDir: /fsx\n    StorageType: FsxLustre\n    FsxLustreSettings:\n"
        f"      {{DeploymentType: PERSISTENT_2, StorageCapacity: 2400, PerUnitStorageThroughput: {rate}}}\n"
    )
    text = pcluster(types="InstanceType: c6i.4xlarge") + data
    assert run("c.yaml", text, "STO003", CRASHED) == []
