"""Terraform, ParallelCluster and HyperPod files that are right, or wrong in another way than was said."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from reported import loud, rows, shown

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]

NODE_GROUP = """variable "most" {{ default = {most} }}
resource "aws_eks_node_group" "cpu" {{
  scaling_config {{
    desired_size = 4
    max_size     = var.most
    min_size     = 0
  }}
}}
"""
HYPERPOD = """resource "awscc_sagemaker_cluster" "hp" {{
  cluster_name = "hp"
  instance_groups = [
    {{
      instance_group_name = "workers"
      instance_type       = "{type}"
      instance_count      = 16
    }}
  ]
}}
"""
CLUSTER = """Region: us-east-1
Image: {{Os: {system}}}
HeadNode:
  InstanceType: c5.xlarge
  Networking: {{SubnetId: subnet-0123456789abcdef0}}
Scheduling:
  Scheduler: slurm
  SlurmQueues:
    - Name: a
      ComputeResources: [{{Name: a, InstanceType: {type}, MaxCount: 4}}]
      Networking: {{SubnetIds: [{first}]}}
    - Name: b
      ComputeResources: [{{Name: b, InstanceType: c5.large, MaxCount: 4}}]
      Networking: {{SubnetIds: [{second}]}}
SharedStorage:
  - Name: fsx
    MountDir: /fsx
    StorageType: FsxLustre
    FsxLustreSettings: {{{settings}}}
"""
NEW = "StorageCapacity: 1200, DeploymentType: SCRATCH_2, DeletionPolicy: Retain"
OLD = "FileSystemId: fs-0123456789abcdef0"
ONE, OTHER = "subnet-0123456789abcdef0", "subnet-0fedcba9876543210"


@pytest.mark.parametrize(
    ("place", "values", "count"),
    [
        ("", {}, 1),
        ("", {"envs/prod.tfvars": "most = 8\n"}, 0),
        ("", {"environments/prod/terraform.tfvars": "most = 8\n"}, 0),
        ("", {"prod.tfvars": "most = 8\n"}, 0),
        ("", {"envs/prod.tfvars": "region = 8\n"}, 1),
        ("", {"terraform.tfvars": "most = 3\n"}, 1),
        ("modules/eks/", {}, 0),  # the caller gives the values
    ],
)
def test_a_default_that_another_file_replaces(tmp_path: Path, place: str, values: dict[str, str], count: int) -> None:
    for name, text in {f"{place}main.tf": NODE_GROUP.format(most=2), **values}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert len(rows(tmp_path, "--select", "CAP001")) == count


def test_hyperpod_of_terraform_has_efa_by_itself(run: Run) -> None:
    assert not loud(run("main.tf", HYPERPOD.format(type="ml.p5.48xlarge")))


def test_hyperpod_of_terraform_needs_the_prefix(run: Run) -> None:
    assert loud(run("main.tf", HYPERPOD.format(type="p5.48xlarge"))) == ["error HYP001 6"]


@pytest.mark.parametrize(("system", "level"), [("alinux2", "info"), ("alinux2023", "error")])
def test_old_gpus_in_a_file_for_an_unknown_version(run: Run, system: str, level: str) -> None:
    text = CLUSTER.format(system=system, type="p3.16xlarge", first=ONE, second=ONE, settings=OLD)
    assert [finding.level for finding in run("c.yaml", text, "CAP005")] == [level]


@pytest.mark.parametrize(
    ("first", "second", "settings", "findings"),
    [
        (ONE, ONE, NEW, []),
        (ONE, OTHER, NEW, ["error STO002 14"]),
        (f"{ONE}, {OTHER}", ONE, NEW, ["error STO002 11"]),
        (ONE, OTHER, OLD, []),
        ("$A", "$B", NEW, []),
    ],
)
def test_new_lustre_and_the_subnets_of_all_queues(
    run: Run, first: str, second: str, settings: str, findings: list[str]
) -> None:
    text = CLUSTER.format(system="alinux2023", type="c5.large", first=first, second=second, settings=settings)
    assert shown(run("c.yaml", text, "STO002")) == findings


@pytest.mark.parametrize(("key", "level"), [("login_group", "info"), ("controller_group", "error")])
def test_a_group_that_the_cluster_does_not_have(tmp_path: Path, key: str, level: str) -> None:
    groups = [{"InstanceGroupName": "head", "InstanceType": "ml.m5.xlarge", "InstanceCount": 1}]
    (tmp_path / "cluster-config.json").write_text(json.dumps({"ClusterName": "c", "InstanceGroups": groups}))
    parameters = {"version": "1", "workload_manager": "slurm", "controller_group": "head", key: "elsewhere"}
    (tmp_path / "provisioning_parameters.json").write_text(json.dumps(parameters))
    assert level in {row["level"] for row in rows(tmp_path, "--select", "HYP001") if "'elsewhere'" in row["message"]}


@pytest.mark.parametrize("wrong", [{"ClusterName": "a_b"}, {"NodeRecovery": "a_b"}, {"InstanceGroupName": "a_b"}])
def test_a_wrong_value_is_said_once(run: Run, wrong: dict[str, str]) -> None:
    group = {"InstanceGroupName": wrong.pop("InstanceGroupName", "g")}
    text = json.dumps({"ClusterName": "c", "InstanceGroups": [group], **wrong})
    messages = [finding.message for finding in run("cluster-config.json", text) if "a_b" in finding.message]
    assert len(messages) == 1


EFA_GROUP = """resource "aws_security_group" "efa" {{
  {rules}
}}
resource "aws_launch_template" "p5" {{
  network_interfaces {{
    interface_type  = "efa"
    security_groups = [{groups}]
  }}
}}
{more}
"""
ALL, TCP = (f"{{way}} {{{{\n    protocol = {word}\n    self = true\n  }}}}\n  " for word in ('"-1"', '"tcp"'))
OWN = "aws_security_group.efa.id"
OWN_RULE = f"""resource "aws_vpc_security_group_{{way}}_rule" "{{way}}" {{{{
  security_group_id            = {OWN}
  referenced_security_group_id = {OWN}
  ip_protocol                  = "-1"
}}}}
"""


@pytest.mark.parametrize(
    ("rules", "groups", "more", "count"),
    [
        ([TCP, TCP], OWN, "", 1),
        ([ALL, TCP], OWN, "", 1),
        ([ALL, ALL], OWN, "", 0),
        ([ALL.replace('"-1"', "-1"), ALL.replace('"-1"', '"all"')], OWN, "", 0),
        ([TCP, TCP], f"{OWN}, var.other", "", 0),
        ([TCP, TCP], "var.other", "", 0),
        ([ALL.replace('"-1"', "var.protocol"), ALL], OWN, "", 0),
        (["", ""], OWN, OWN_RULE.format(way="ingress") + OWN_RULE.format(way="egress"), 0),
        (["", ""], OWN, OWN_RULE.format(way="ingress"), 1),
        (["", ""], OWN, OWN_RULE.format(way="ingress").replace(f"security_group_id            = {OWN}",
                                                              "security_group_id = local.group"), 0),
    ],
)  # fmt: skip
def test_the_group_of_efa_interfaces(run: Run, rules: list[str], groups: str, more: str, count: int) -> None:
    ways = rules[0].format(way="ingress") + rules[1].format(way="egress")
    text = EFA_GROUP.format(rules=ways, groups=groups, more=more)
    assert len(run("main.tf", text, "NET003")) == count


NAMED = """locals {
  some   = 4
  none   = 0
  listed = ["a", "b"]
  empty  = []
  mapped = { a = 1 }
  chosen = var.efa ? 4 : 0
}
variable "some" { default = 4 }
variable "asked" {}
"""


@pytest.mark.parametrize(
    ("over", "kind", "count"),
    [
        ("[0, 1]", '"efa"', 1),
        ("range(4)", '"efa"', 1),
        ("range(1, 32)", '"efa-only"', 1),
        ("[]", '"efa"', 0),
        ("var.with_efa ? [1] : []", '"efa"', 0),
        ("local.cards", '"efa"', 0),
        ("range(local.some)", '"efa"', 1),
        ("range(1, local.some)", '"efa"', 1),
        ("range(4, local.some)", '"efa"', 0),
        ("toset(local.listed)", '"efa"', 1),
        ("local.mapped", '"efa"', 1),
        ("range(local.none)", '"efa"', 0),
        ("local.empty", '"efa"', 0),
        ("range(local.chosen)", '"efa"', 0),
        ("range(var.some)", '"efa"', 1),
        ("range(var.asked)", '"efa"', 0),
        ("[0, 1]", "network_interfaces.value > 0 ? null : var.kind", 0),
        ("[0, 1]", '"interface"', 0),
    ],
)
def test_interfaces_that_a_block_repeats(run: Run, over: str, kind: str, count: int) -> None:
    block = f'dynamic "network_interfaces" {{\n    for_each = {over}\n    content {{\n      interface_type = {kind}'
    text = EFA_GROUP.format(rules="", groups=OWN, more=OWN_RULE.format(way="ingress") + NAMED)
    text = text.replace('network_interfaces {\n    interface_type  = "efa"', block).replace(
        f"[{OWN}]\n  }}", f"[{OWN}]\n  }}}}"
    )
    assert "dynamic" in text
    assert len(run("main.tf", text, "NET003")) == count


def test_a_rule_of_its_own_names_the_group_by_reference(run: Run) -> None:
    """`self` is an argument of other resources."""
    rules = OWN_RULE.format(way="ingress") + OWN_RULE.format(way="egress").replace('"-1"', '"tcp"')
    (finding,) = run("main.tf", EFA_GROUP.format(rules="", groups=OWN, more=rules), "NET003")
    assert f"referenced_security_group_id = {OWN}" in finding.fix


def test_one_of_two_groups_of_an_interface(run: Run) -> None:
    """CloudFormation: the other group may hold the rules."""
    text = """Resources:
  Fsx: {Type: AWS::EC2::SecurityGroup, Properties: {GroupDescription: lustre}}
  Lt:
    Type: AWS::EC2::LaunchTemplate
    Properties:
      LaunchTemplateData:
        NetworkInterfaces: [{DeviceIndex: 0, InterfaceType: efa, Groups: [!Ref Nodes, !Ref Fsx]}]
Parameters:
  Nodes: {Type: AWS::EC2::SecurityGroup::Id}
"""
    assert not run("c.yaml", text, "NET003")


LUSTRE = """resource "aws_fsx_lustre_file_system" "fs" {{
  storage_capacity = 1200
  subnet_ids       = [var.subnet]
  deployment_type  = "{kind}"
  {line}
}}
"""


@pytest.mark.parametrize(
    ("kind", "line", "count"),
    [
        ("SCRATCH_2", 'per_unit_storage_throughput = var.kind == "SCRATCH_2" ? null : 125', 0),
        ("SCRATCH_2", "per_unit_storage_throughput = var.throughput", 0),
        ("SCRATCH_2", "kms_key_id = try(var.fs.key, null)", 0),
        ("SCRATCH_2", "kms_key_id = aws_kms_key.fs.arn", 1),
        ("SCRATCH_2", "per_unit_storage_throughput = 125", 1),
        ("PERSISTENT_2", "per_unit_storage_throughput = 125\n  import_path = var.bucket", 0),
        ("PERSISTENT_2", 'per_unit_storage_throughput = 125\n  import_path = "s3://${var.bucket}"', 1),
        ("PERSISTENT_2", "per_unit_storage_throughput = var.throughput", 0),
        ("PERSISTENT_2", "", 1),
    ],
)
def test_arguments_that_may_be_null(run: Run, kind: str, line: str, count: int) -> None:
    assert len(run("fsx.tf", LUSTRE.format(kind=kind, line=line), "STO002")) == count


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("ImportPath: !If [W, a, !Ref AWS::NoValue], DeploymentType: PERSISTENT_2, PerUnitStorageThroughput: 125", 0),
        ("ImportPath: !Ref S3, DeploymentType: PERSISTENT_2, PerUnitStorageThroughput: 125", 1),
        ("ExportPath: !If [W, !Ref S3, !Ref AWS::NoValue], DeploymentType: SCRATCH_2", 0),
        ("ExportPath: !Ref S3, DeploymentType: SCRATCH_2", 1),
        ("DriveCacheType: !If [W, READ, !Ref AWS::NoValue], DeploymentType: SCRATCH_2", 0),
    ],
)  # fmt: skip
def test_options_that_a_condition_may_omit(run: Run, line: str, count: int) -> None:
    text = f"""Parameters: {{S3: {{Type: String}}, Sub: {{Type: String}}}}
Conditions: {{W: !Not [!Equals [!Ref S3, '']]}}
Resources:
  Fs:
    Type: AWS::FSx::FileSystem
    Properties:
      FileSystemType: LUSTRE
      StorageCapacity: 1200
      SubnetIds: [!Ref Sub]
      LustreConfiguration: {{{line}}}
"""
    assert len(run("fsx.yaml", text, "STO002")) == count


@pytest.mark.parametrize(
    ("more", "codes"),
    [
        ("launch_template {\n    id      = aws_launch_template.x.id\n    version = 1\n  }", []),
        ("capacity_reservation_specification {\n    capacity_reservation_target {\n"
         "      capacity_reservation_id = var.reservation\n    }\n  }", []),
        ("capacity_reservation_specification {\n    capacity_reservation_target {\n"
         '      capacity_reservation_id = "cr-0123456789abcdef0"\n    }\n  }', ["CAP001", "CAP002"]),
    ],
)  # fmt: skip
def test_spot_nodes_and_what_may_name_a_reservation(run: Run, more: str, codes: list[str]) -> None:
    text = f"""resource "aws_eks_node_group" "spot" {{
  capacity_type  = "SPOT"
  instance_types = ["g4dn.xlarge", "g4dn.2xlarge"]
  {more}
}}
"""
    assert sorted(finding.code for finding in run("main.tf", text, "CAP")) == codes


@pytest.mark.parametrize(("kind", "level"), [("Custom::Helper", "info"), ("AWS::SSM::Document", "error")])
def test_a_logical_id_that_a_program_may_look_up(run: Run, kind: str, level: str) -> None:
    text = f"""Resources:
  GpuRole: {{Type: AWS::IAM::Role}}
  Helper: {{Type: "{kind}", Properties: {{Role: GpuRole}}}}
"""
    assert [finding.level for finding in run("c.yaml", text, "CFN001")] == [level]


@pytest.mark.parametrize(
    ("default", "messages"),
    [
        ("g5.2xlarge,g5.8xlarge", []),
        ("g5.2xlarge, g5.9xlarge", ["the catalog has no g5.9xlarge"]),
    ],
)
def test_the_default_of_a_list_is_split(run: Run, default: str, messages: list[str]) -> None:
    text = f"""Parameters: {{Types: {{Type: CommaDelimitedList, Default: "{default}"}}}}
Resources:
  Env:
    Type: AWS::Batch::ComputeEnvironment
    Properties: {{ComputeResources: {{InstanceTypes: !Ref Types}}}}
"""
    assert [finding.message for finding in run("batch.yaml", text, "CAP006")] == messages


@pytest.mark.parametrize(
    ("type_", "settings", "mount", "findings"),
    [
        ("p4d.24xlarge", "", "/scratch", ["warning STO006 11"]),
        ("p4d.24xlarge", "EphemeralVolume: {MountDir: /scratch}", "/scratch", ["warning STO006 10"]),
        ("p4d.24xlarge", "EphemeralVolume: {MountDir: /nvme}", "/scratch", []),
        ("p4d.24xlarge", "", "/scratch/data", ["error STO006 11"]),
        ("c5.large", "EphemeralVolume: {MountDir: /scratch}", "/scratch", []),  # no disks of its own
        ("c5.large", "", "/scratch", []),
    ],
)
def test_shared_storage_where_nodes_mount_their_disks(
    run: Run, type_: str, settings: str, mount: str, findings: list[str]
) -> None:
    """ParallelCluster's DuplicateMountDirValidator warns, its OverlappingMountDirValidator refuses the file."""
    text = f"""Region: us-east-1
Image: {{Os: alinux2023}}
HeadNode:
  InstanceType: c5.xlarge
  Networking: {{SubnetId: {ONE}}}
Scheduling:
  Scheduler: slurm
  SlurmQueues:
    - Name: a
      ComputeSettings: {{LocalStorage: {{{settings}}}}}
      ComputeResources: [{{Name: a, InstanceType: {type_}, MaxCount: 4}}]
      Networking: {{SubnetIds: [{ONE}]}}
SharedStorage:
  - {{Name: efs, MountDir: {mount}, StorageType: Efs, EfsSettings: {{FileSystemId: fs-0123456789abcdef0}}}}
"""
    assert shown(run("c.yaml", text, "STO006")) == findings
