"""Templates, security groups, file systems and Slurm's own files near the trigger of a rule: what a strict reader would
call wrong, and mistakes that stay reported with words and fixes that are true."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from clusters import CLUSTER
from reported import shown

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]


def loud(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.level != "info"]


EKSCTL = """apiVersion: eksctl.io/v1alpha5
kind: ClusterConfig
metadata: {{name: {name}, region: us-east-2}}
managedNodeGroups:
  - {{name: {group}, instanceType: p4d.24xlarge}}
"""


@pytest.mark.parametrize(
    ("name", "group", "reported"),
    [
        ("train", "gpu-", []),
        ("my_train", "gpu", ["error CFG002 3"]),  # a stack of CloudFormation gets the name
        ("train", "gpu_nodes", ["error CFG003 5"]),
    ],
)
def test_cfg002_and_cfg003_know_the_names_of_eksctl(run: Run, name: str, group: str, reported: list[str]) -> None:
    assert shown(run("a.yaml", EKSCTL.format(name=name, group=group), "CFG002", "CFG003")) == reported


ZONES = """AWSTemplateFormatVersion: '2010-09-09'
Description: network of a training cluster
Parameters:
  NumberOfAZs: {{Type: Number, Default: {count}}}
  AvailabilityZones: {{Type: CommaDelimitedList, Default: 'us-east-1a,us-east-1b,us-east-1c'}}
Resources:
  Disk: {{Type: AWS::EC2::Volume, Properties: {{AvailabilityZone: {zone}, Size: 10}}}}
"""


def test_cfg004_lets_a_template_take_the_first_zones(run: Run) -> None:
    assert shown(run("a.yaml", ZONES.format(count=2, zone="us-east-1a"), "CFG004")) == ["info CFG004 4"]
    assert shown(run("a.yaml", ZONES.format(count=4, zone="us-east-1a"), "CFG004")) == ["error CFG004 4"]
    [finding] = run("a.yaml", ZONES.format(count=3, zone="use1-az4"), "CFG004")
    assert finding.fix.startswith("write the name")  # a volume has no AvailabilityZoneId


PORT = """AWSTemplateFormatVersion: '2010-09-09'
Description: GPU nodes
Resources:
  NodeGroup:
    Type: AWS::EC2::SecurityGroup
    Properties:
      GroupDescription: nodes
      SecurityGroupIngress:
        - {rule}
"""


@pytest.mark.parametrize(
    ("rule", "level"),
    [
        ("{IpProtocol: tcp, FromPort: 22, ToPort: 22, CidrIp: 0.0.0.0/0}", "warning"),
        ("{IpProtocol: tcp, FromPort: 22, ToPort: 22, CidrIp: 0.0.0.0/0}  # restrict to your IP", "info"),
        ("{IpProtocol: tcp, FromPort: 22, ToPort: 22, CidrIp: 0.0.0.0/0, Description: change to your IP}", "info"),
        ("{IpProtocol: tcp, FromPort: 443, ToPort: 443, CidrIp: 0.0.0.0/0}", "info"),
        ("{IpProtocol: icmp, FromPort: 0, ToPort: 65535, CidrIp: 0.0.0.0/0}", ""),
        ("{IpProtocol: udp, FromPort: 22, ToPort: 22, CidrIp: 0.0.0.0/0}", ""),
    ],
)
def test_sec004_leaves_ports_that_are_meant_or_to_be_changed(run: Run, rule: str, level: str) -> None:
    findings = run("a.yaml", PORT.replace("{rule}", rule), "SEC004")
    assert [finding.level for finding in findings] == ([level] if level else [])


def test_sec004_names_a_wide_range_as_such(run: Run) -> None:
    rule = "{IpProtocol: tcp, FromPort: 1024, ToPort: 65535, CidrIp: 0.0.0.0/0}"
    [finding] = run("a.yaml", PORT.replace("{rule}", rule), "SEC004")
    assert "ports 1024 to 65535" in finding.message
    dcv = CLUSTER.replace("  Ssh:", "  Dcv: {Enabled: true, AllowedIps: 0.0.0.0/0}\n  Ssh:")
    [finding] = run("a.yaml", dcv, "SEC004")
    assert (finding.level, "ssh" in finding.message) == ("warning", False)


POLICY = """AWSTemplateFormatVersion: '2010-09-09'
Description: GPU nodes
Resources:
  Vpc: {{Type: AWS::EC2::VPC, Properties: {{CidrBlock: 10.0.0.0/16}}}}
  Owner:
    Type: AWS::IAM::Role
    Properties: {{AssumeRolePolicyDocument: {{Statement: [{{Principal: {{Service: {by}}}}}]}}}}
  Everything:
    Type: AWS::IAM::Policy
    Properties:
      Roles: [{role}]
      PolicyDocument: {{Statement: [{{Effect: Allow, Action: '*', Resource: '*'}}]}}
  Admin:
    Type: AWS::IAM::{kind}
    Properties: {{ManagedPolicyArns: ['arn:aws:iam::aws:policy/AdministratorAccess']}}
"""


@pytest.mark.parametrize(
    ("by", "role", "reported"),
    [
        ("ec2.amazonaws.com", "!Ref Owner", ["warning SEC004 12"]),
        ("lambda.amazonaws.com", "!Ref Owner", []),
        ("glue.amazonaws.com", "!Ref Owner", []),
        ("ec2.amazonaws.com", "elsewhere", []),
    ],
)
def test_sec004_speaks_of_nodes_where_nodes_have_the_policy(run: Run, by: str, role: str, reported: list[str]) -> None:
    for kind in ("User", "Group"):
        assert shown(run("a.yaml", POLICY.format(by=by, role=role, kind=kind), "SEC004")) == reported


def test_sec002_believes_who_explains_a_setting(run: Run) -> None:
    secured = "  Imds:\n    Secured: false\n  Ssh:"
    assert shown(run("a.yaml", CLUSTER.replace("  Ssh:", secured), "SEC002")) == ["warning SEC002 9"]
    explained = "  # users call the aws cli with the head node's role\n" + secured
    assert shown(run("a.yaml", CLUSTER.replace("  Ssh:", explained), "SEC002")) == ["info SEC002 10"]
    template = 'resource "aws_launch_template" "gpu" {\n  metadata_options {\n    http_endpoint = "%s"\n'
    template += '    http_tokens   = "optional"\n  }\n}\n'
    assert run("a.tf", template % "disabled", "SEC002") == []
    assert shown(run("a.tf", template % "enabled", "SEC002")) == ["warning SEC002 4"]


def test_a_fix_for_terraform_has_the_words_of_terraform(run: Run) -> None:
    text = 'resource "aws_launch_template" "a" {\n  image_id = var.image\n  instance_type = "p5.48xlarge"\n}\n'
    (finding,) = run("a.tf", text, "SEC002")
    assert 'metadata_options with http_tokens = "required"' in finding.fix


LUSTRE = """AWSTemplateFormatVersion: '2010-09-09'
Description: file system of a training cluster
Resources:
  Fs:
    Type: AWS::FSx::FileSystem
    DeletionPolicy: Retain
    Properties: {{FileSystemType: LUSTRE, SubnetIds: [subnet-0a1b2c3d4e5f67890], {more}}}
  A:
    Type: AWS::EC2::SecurityGroup
    Properties:
      GroupDescription: a
      SecurityGroupIngress: [{{IpProtocol: tcp, FromPort: 988, ToPort: 988, CidrIp: 10.0.0.0/8}}]
  B:
    Type: AWS::EC2::SecurityGroup
    Properties:
      GroupDescription: b
      SecurityGroupIngress: [{{IpProtocol: tcp, FromPort: 1018, ToPort: 1023, CidrIp: 10.0.0.0/8}}]
"""
SCRATCH = "StorageCapacity: 1200, LustreConfiguration: {DeploymentType: SCRATCH_2%s}"


@pytest.mark.parametrize(
    ("more", "reported"),
    [
        ("StorageType: INTELLIGENT_TIERING, LustreConfiguration: {DeploymentType: PERSISTENT_2}", []),
        ("BackupId: backup-0a1b2c3d4e5f67890, LustreConfiguration: {DeploymentType: PERSISTENT_2}", []),
        (SCRATCH % ", PerUnitStorageThroughput: !If [Fast, 250, !Ref 'AWS::NoValue']", []),
        (SCRATCH % ", PerUnitStorageThroughput: 250", ["error STO002 7"]),
        (SCRATCH % "" + ", SecurityGroupIds: [!Ref A, !Ref B]", []),
        (SCRATCH % "" + ", SecurityGroupIds: [!Ref A]", ["warning STO005 8"]),
        (SCRATCH % "" + ", SecurityGroupIds: [!Ref B]", ["warning STO005 8", "error STO005 13"]),
    ],
)
def test_lustre_is_held_to_what_fsx_refuses(run: Run, more: str, reported: list[str]) -> None:
    text = LUSTRE.format(more=more)
    if "SecurityGroupIds" not in more:
        text = text.partition("  A:")[0]
    assert shown(run("a.yaml", text, "STO001", "STO002", "STO005")) == reported


def test_sto007_warns_of_data_that_is_lost(run: Run) -> None:
    storage = (
        "SharedStorage:\n  - Name: f\n    MountDir: /fsx\n    StorageType: FsxLustre\n    FsxLustreSettings: {%s}\n"
    )
    kept = "StorageCapacity: 1200, DeploymentType: PERSISTENT_1, PerUnitStorageThroughput: 50"
    assert shown(run("a.yaml", CLUSTER + storage % kept, "STO007")) == ["warning STO007 23"]
    assert shown(run("a.yaml", CLUSTER + storage % (kept + ", ImportPath: 's3://a'"), "STO007")) == ["info STO007 23"]
    template = "AWSTemplateFormatVersion: '2010-09-09'\nDescription: training\nResources:\n  A: {Type: %s%s}\n"
    assert shown(run("a.yaml", template % ("AWS::EFS::FileSystem", ""), "STO007")) == ["warning STO007 4"]
    backed = ", Properties: {BackupPolicy: {Status: ENABLED}}"
    assert run("a.yaml", template % ("AWS::EFS::FileSystem", backed), "STO007") == []


def test_sto001_leaves_settings_that_are_a_variable(run: Run) -> None:
    storage = "SharedStorage:\n  - Name: f\n    MountDir: /fsx\n    StorageType: FsxLustre\n"
    assert run("a.yaml", CLUSTER + storage + "    FsxLustreSettings: ${FSX}\n", "STO001") == []
    assert shown(run("a.yaml", CLUSTER + storage, "STO001")) == ["error STO001 23"]


@pytest.mark.parametrize(
    ("subnets", "reported"),
    [("[!Ref One]", ["error SLU002 5"]), ("[!Ref Several]", []), ("[!If [A, !Ref One, !Ref 'AWS::NoValue']]", [])],
)
def test_slu002_counts_subnets_that_are_written(run: Run, subnets: str, reported: list[str]) -> None:
    text = "AWSTemplateFormatVersion: '2010-09-09'\nDescription: accounting of Slurm\n"
    text += "Parameters: {One: {Type: String}, Several: {Type: List<AWS::EC2::Subnet::Id>}}\nResources:\n"
    text += f"  G: {{Type: AWS::RDS::DBSubnetGroup, Properties: {{SubnetIds: {subnets}}}}}\n"
    assert shown(run("a.yaml", text, "SLU002")) == reported


def test_slu001_names_the_key_of_parallelcluster(run: Run) -> None:
    queue = "      CustomSlurmSettings: {OverSubscribe: EXCLUSIVE}\n      ComputeResources:"
    [finding] = run("a.yaml", CLUSTER.replace("      ComputeResources:", queue), "SLU001")
    assert "JobExclusiveAllocation" in finding.fix


NETWORK = """AWSTemplateFormatVersion: '2010-09-09'
Description: network of GPU nodes
Parameters:
  CreateGroup: {Type: String, Default: 'true'}
  ExistingGroup: {Type: String, Default: ''}
Conditions:
  MakeGroup: !Equals [!Ref CreateGroup, 'true']
Resources:
  Vpc: {Type: AWS::EC2::VPC, Properties: {CidrBlock: 10.0.0.0/16}}
  Group: {Type: AWS::EC2::PlacementGroup, Condition: MakeGroup, Properties: {Strategy: cluster}}
  Role: {Type: AWS::IAM::Role}
"""


@pytest.mark.parametrize(
    ("resource", "fix"),
    [
        ("Type: AWS::EC2::Instance, Properties: {PlacementGroupName: !If [MakeGroup, !Ref 'AWS::NoValue', "
         "!Ref ExistingGroup]}", ""),
        ("Type: AWS::EC2::Instance, Properties: {PlacementGroupName: !If [MakeGroup, !Ref 'AWS::NoValue', !Ref Group]}",
         "swap the two branches"),
        ("Type: AWS::EC2::Subnet, Properties: {VpcId: Vpc}", "write !Ref Vpc"),
        ("Type: AWS::Lambda::Function, Properties: {Role: Role}", "write !GetAtt Role.Arn"),
        ("Type: Custom::Waiter, Properties: {LogicalResourceId: Vpc}", ""),
        ("Type: AWS::EC2::Subnet, DependsOn: Gateway, Properties: {VpcId: !Ref Vpc}", "add it, or correct the name"),
        ("Type: AWS::EC2::Instance, Properties: {UserData: !Sub 'echo ${X}'}",
         "add it, or correct the name; write ${!X} for a variable of the shell"),
        ("Type: Our::Network::Vpc::MODULE, Properties: {Zone: !Ref OneSubnet}", ""),
        ("Type: AWS::EC2::Subnet, Properties: {Fn::Transform: {Name: AWS::Include}, VpcId: !Ref Included}", ""),
    ],
)  # fmt: skip
def test_cfn001_proposes_what_cloudformation_takes(run: Run, resource: str, fix: str) -> None:
    findings = loud(run("a.yaml", NETWORK + f"  One: {{{resource}}}\n", "CFN001"))
    assert [finding.fix for finding in findings] == ([fix] if fix else [])
    assert [f.level for f in run("docs/a.yaml", NETWORK + "  A: {Type: B, Properties: {C: !Ref D}}\n", "CFN001")][
        -1:
    ] == ["info"]


SLURM = """ClusterName=c
SelectType=select/{select}
TaskPlugin=task/affinity{task}
GresTypes=gpu
NodeName=g1 CPUs=8 Gres={gres}
PartitionName=p Nodes=g1{more}
"""


@pytest.mark.parametrize(
    ("select", "task", "more", "reported"),
    [
        ("cons_tres", "", "", ["warning SLU005 3"]),
        ("cons_tres", "", " OverSubscribe=EXCLUSIVE", []),  # no two jobs on a node
        ("linear", "", "", ["info SLU005 2"]),
        ("cons_res", ",task/cgroup", "", ["warning SLU005 2"]),
        ("cons_res", ",task/cgroup", "\nCheckpointType=checkpoint/none", ["info SLU005 2"]),  # older than cons_tres
    ],
)
def test_slu005_knows_who_shares_a_node(run: Run, select: str, task: str, more: str, reported: list[str]) -> None:
    text = SLURM.format(select=select, task=task, gres="gpu:4", more=more)
    assert shown(run("slurm.conf", text, "SLU005")) == reported


@pytest.mark.parametrize(
    ("gres", "listed", "reported"),
    [
        ("gpu:a:1,gpu:b:1", "Name=gpu Type=a File=/dev/nvidia0\nName=gpu Type=b File=/dev/nvidia1\n", []),
        ("gpu:3090:2", "Name=gpu Type=3090 File=/dev/nvidia[0-1]\n", []),
        ("gpu:3090:2", "Name=gpu Type=3090 File=/dev/nvidia0\n", ["error SLU004 5"]),
        ("gpu:2(S:0-1),mps:200", "Name=gpu File=/dev/nvidia[0-1]\nName=mps Count=200\n", []),
        ("gpu:4\nNodeName=g2 Gres=gpu:2", "Name=gpu File=/dev/nvidia[0-1]\n", []),  # each node has a file of its own
    ],
)
def test_slu004_adds_the_gpus_up(tmp_path: Path, run: Run, gres: str, listed: str, reported: list[str]) -> None:
    (tmp_path / "gres.conf").write_text(listed)
    text = SLURM.format(select="cons_tres", task=",task/cgroup", gres=gres, more="")
    assert shown(run("slurm.conf", text, "SLU004")) == reported


@pytest.mark.parametrize("name", ["<node>", "{{ nodes }}", "__NODES__", "NODE_LIST"])
def test_slu004_leaves_names_that_are_still_to_be_filled_in(run: Run, name: str) -> None:
    text = SLURM.format(select="cons_tres", task=",task/cgroup", gres="gpu:4", more="").replace(
        "Nodes=g1", f"Nodes={name}"
    )
    assert run("slurm.conf", text, "SLU004") == []


def test_sec004_knows_a_network_without_public_subnets(run: Run) -> None:
    text = EKSCTL.format(name="train", group="gpu").replace("p4d.24xlarge", "p4d.24xlarge, ssh: {allow: true}")
    assert shown(run("a.yaml", text, "SEC004")) == ["warning SEC004 5"]
    private = "vpc: {subnets: {private: {a: {id: subnet-0a1b2c3d4e5f67890}}}}\n"
    assert run("a.yaml", text + private, "SEC004") == []
