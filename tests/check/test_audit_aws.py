"""ParallelCluster files near the trigger of a rule: what a strict reader would call wrong,
and mistakes that stay reported with words and fixes that are true."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from clusters import CLUSTER, HEAD, NODES
from reported import shown

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]


@pytest.mark.parametrize(
    "comment",
    [
        "# Needs AWS ParallelCluster >= 3.2 for memory-based scheduling",
        "# Works with ParallelCluster 3.1 or later",
        "# 2025-01: upgraded from ParallelCluster 3.2 to 3.13",
        "# ParallelCluster 3.9 dropped centos7",
    ],
)
def test_cfg005_takes_only_a_plain_statement_for_the_version(run: Run, comment: str) -> None:
    text = CLUSTER.replace("alinux2023", "ubuntu2404") + "Imds: {ImdsSupport: v2.0}\n"
    assert run("a.yaml", f"{comment}\n{text}", "CFG005") == []


@pytest.mark.parametrize(
    "comment", ["# ParallelCluster 3.9", "# tested with AWS ParallelCluster v3.9.1.", "# pcluster version: 3.9"]
)
def test_cfg005_believes_a_plain_statement_of_the_version(run: Run, comment: str) -> None:
    [finding] = run("a.yaml", f"{comment}\n" + CLUSTER.replace("alinux2023", "ubuntu2404"), "CFG005")
    assert (finding.level, "3.9" in finding.message) == ("warning", True)


@pytest.mark.parametrize(
    "id",
    ["YOUR_SUBNET_ID", "subnet-12345", "subnet-abcdef", "__SUBNET__", "'{subnet}'", "subnet-...", "TODO", "subnet-head",
     "PrivateSubnet1", "subnet-0123456789", "subnet-*****", "subnet-000000000"],
)  # fmt: skip
def test_cfg005_notes_an_id_that_is_still_to_be_filled_in(run: Run, id: str) -> None:
    assert shown(run("a.yaml", CLUSTER.replace(HEAD, id), "CFG005")) == ["info CFG005 7"]


@pytest.mark.parametrize("id", ["vpc-0a1b2c3d4e5f67890", "subnet-0a1b2c3d4e5f6789", "subnet-0A1B2C3D4E5F67890"])
def test_cfg005_reports_an_id_that_was_filled_in_wrongly(run: Run, id: str) -> None:
    assert shown(run("a.yaml", CLUSTER.replace(HEAD, id), "CFG005")) == ["error CFG005 7"]


def test_cfg005_takes_a_file_without_a_section_or_several_keys_for_a_part(run: Run) -> None:
    for part in (
        CLUSTER.replace("Image:\n  Os: alinux2023\n", ""),
        CLUSTER.replace(f"  Networking:\n    SubnetId: {HEAD}\n", "").replace(
            f"      Networking:\n        SubnetIds: [{NODES}]\n", ""
        ),
    ):
        assert [finding.level for finding in run("a.yaml", part, "CFG005")] == ["info"]
    one = CLUSTER.replace(f"  Networking:\n    SubnetId: {HEAD}\n", "")
    assert shown(run("a.yaml", one, "CFG005")) == ["error CFG005 4"]
    assert run("a.yaml.j2", one.replace("  Ssh:", "  {% include 'network.j2' %}\n  Ssh:"), "CFG005") == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("  Ssh:\n    KeyName: key", "  KeyName: key", "it belongs under HeadNode.Ssh"),
        (f"SubnetIds: [{NODES}]", f"SubnetId: {NODES}", "did you mean 'SubnetIds'? It takes a list"),
        (f"SubnetIds: [{NODES}]", f"SubnetIds: {NODES}", f"write [{NODES}]"),
        ("    - Name: one", "      Name: one", "write a dash before the first key of each element"),
        ("          MinCount: 0", "          Efa: true", "write {Enabled: true}"),
        ("Os: alinux2023", "Os: amazonlinux2", "use one of alinux2023, "),
        ("Scheduler: slurm", "Scheduler: Slurm", "did you mean 'slurm'?"),
        ("          MinCount: 0", "          DesiredCount: 2", "remove it; "),
        ("  Ssh:", "  LocalStorage: {RootVolume: {VolumeSize: 100}}\n  Ssh:", "did you mean 'Size'?"),
        ("          MinCount: 0", "          CapacityType: SPOT", "it belongs under Scheduling.SlurmQueues"),
        ("          InstanceType: c5.large\n", "", "add InstanceType"),
    ],
)
def test_cfg005_proposes_what_repairs_the_file(run: Run, old: str, new: str, said: str) -> None:
    assert old in CLUSTER
    [finding] = run("a.yaml", CLUSTER.replace(old, new), "CFG005")
    assert finding.level in ("error", "warning")
    assert finding.fix.startswith(said)


def test_cfg005_reports_a_misplaced_key_once(run: Run) -> None:
    moved = CLUSTER.replace("  InstanceType: m5.2xlarge\n  Networking:", "  Networking:\n    InstanceType: m5.2xlarge")
    [finding] = run("a.yaml", moved, "CFG005")
    assert finding.fix == "it belongs under HeadNode"


def test_cfg005_leaves_a_later_system_to_a_later_release(run: Run) -> None:
    assert shown(run("a.yaml", CLUSTER.replace("alinux2023", "ubuntu2604"), "CFG005")) == ["info CFG005 3"]
    for system in ("ubuntu1604", "centos8"):
        assert shown(run("a.yaml", CLUSTER.replace("alinux2023", system), "CFG005")) == ["error CFG005 3"]


def test_cfg005_leaves_keys_that_are_still_to_be_filled_in(run: Run) -> None:
    for name, key in (("a.yaml", "${KEY}"), ("a.yaml.j2", "{{ key }}")):
        assert run(name, CLUSTER.replace("MinCount: 0", f"{key}: 0"), "CFG005") == []


@pytest.mark.parametrize("type_", ["g2.8xlarge", "g3.16xlarge", "g3s.xlarge", "p2.xlarge", "p3.8xlarge"])
def test_cap005_knows_the_families_that_ec2_retired(run: Run, type_: str) -> None:
    text = CLUSTER.replace("c5.large", type_)
    assert shown(run("a.yaml", text, "CAP005")) == ["error CAP005 18"]
    image = text.replace("Os: alinux2023", "Os: alinux2023\n  CustomAmi: ami-0123456789abcdef0")
    assert run("b.yaml", image, "CAP005") == []
    assert run("c.yaml", f"# ParallelCluster 3.7\n{text.replace('alinux2023', 'alinux2')}", "CAP005") == []


@pytest.mark.parametrize("type_", ["g4dn.xlarge", "g5.2xlarge", "g3s.${SIZE}", "p2", "m3.large", "g6e.xlarge"])
def test_cap005_leaves_newer_gpus_and_what_is_no_type(run: Run, type_: str) -> None:
    assert run("a.yaml", CLUSTER.replace("c5.large", type_), "CAP005") == []


@pytest.mark.parametrize(
    ("comment", "system", "reported"),
    [
        ("", "alinux2023", ["error CAP005 18"]),
        ("# ParallelCluster 3.5\n", "alinux2", []),
        ("", "ubuntu1804", ["info CAP005 18"]),  # which 3.6 was the last to accept
    ],
)
def test_cap005_holds_for_the_version_of_the_file(run: Run, comment: str, system: str, reported: list[str]) -> None:
    text = CLUSTER.replace("c5.large", "p3.2xlarge").replace("alinux2023", system)
    assert shown(run("a.yaml", comment + text, "CAP005")) == reported


@pytest.mark.parametrize(
    ("type_", "reported"),
    [
        ("i3.metal", ["info CAP006 18"]),
        ("p4d.48xlarge", ["warning CAP006 18"]),
        ("p4d.24xlrage", ["error CAP006 18"]),
        ("P4D.24xlarge", ["error CAP006 18"]),
    ],
)
def test_cap006_knows_that_metal_sizes_are_added_later(run: Run, type_: str, reported: list[str]) -> None:
    assert shown(run("a.yaml", CLUSTER.replace("c5.large", type_), "CAP006")) == reported


@pytest.mark.parametrize(
    ("old", "new", "level"),
    [
        (HEAD, "PLACEHOLDER_SUBNET", "error"),  # the other subnet is filled in
        (HEAD, "subnet-xxxxxxxx  # your public subnet", "info"),
        ("KeyName: key", "KeyName: <your-key>", "info"),
        ("Os: alinux2023", "Os: alinux2023\n  CustomAmi: ami-xxxxxxxx", "info"),
        ("MaxCount: 4", "MaxCount: 4\n          CapacityReservationTarget: {CapacityReservationId: cr-id}", "info"),
    ],
)
def test_cfg001_is_an_error_where_the_same_kind_was_filled_in(run: Run, old: str, new: str, level: str) -> None:
    [finding] = run("a.yaml", CLUSTER.replace(old, new), "CFG001")
    assert finding.level == level


TEMPLATE = """AWSTemplateFormatVersion: '2010-09-09'
Parameters:
  FileSystem: {Type: String, Default: NA}
  Key: {Type: String, Default: CHANGEME}
Conditions:
  HasFileSystem: {'Fn::Not': [{'Fn::Equals': [{Ref: FileSystem}, NA]}]}
Resources:
  Node:
    Type: AWS::EC2::Instance
    Properties: {ImageId: ami-0a1b2c3d4e5f67890, SubnetId: subnet-0a1b2c3d4e5f67890, InstanceType: p4d.24xlarge}
Outputs:
  Ssh: {Value: 'ssh -i <your-key> ubuntu@node'}
"""


def test_cfg001_reads_what_a_tool_uses(run: Run) -> None:
    assert run("a.yaml", TEMPLATE, "CFG001") == []
    said = "#!/bin/bash\n# GPU node\nAMI=ami-0a1b2c3d4e5f67890\necho 'usage: run ami-xxxxxxxx <your-key>'\n"
    assert run("a.sh", said, "CFG001") == []
    assert shown(run("a.sh", said + "aws ec2 run-instances --image-id ami-xxxxxxxx\n", "CFG001")) == ["error CFG001 5"]
