"""NET and BEN rules near their triggers: other versions, single nodes, other units."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from reported import shown

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]


CLUSTER = """Region: us-east-1
Image: {{Os: {os}}}
HeadNode:
  InstanceType: c5.large
  Networking: {{SubnetId: subnet-0a1b2c3d4e5f67890}}
Scheduling:
  Scheduler: slurm
  SlurmQueues:
  - Name: {name}
    ComputeResources:
    - {{Name: a, {resource}}}
    Networking: {{SubnetIds: [subnet-0a1b2c3d4e5f67890]{more}}}
"""


def cluster(resource: str, more: str = "", os: str = "alinux2023", name: str = "train") -> str:
    return CLUSTER.format(resource=resource, more=more, os=os, name=name)


EFA = "InstanceType: c5n.18xlarge, MaxCount: 8, Efa: {Enabled: true}"


def test_an_old_version_only_advises_to_state_a_placement_group(run: Run) -> None:
    assert shown(run("a.yaml", cluster(EFA), "NET001")) == ["error NET001 11"]
    assert shown(run("b.yaml", cluster(EFA, os="alinux2"), "NET001")) == ["info NET001 11"]
    new = cluster(EFA + ", HealthChecks: {Gpu: {Enabled: true}}", os="alinux2")  # a key of 3.6
    assert shown(run("c.yaml", new, "NET001")) == ["error NET001 11"]
    stated = f"# ParallelCluster 3.9\n{cluster(EFA, os='alinux2')}"
    assert shown(run("d.yaml", stated, "NET001")) == ["error NET001 12"]


def test_a_type_without_efa_is_one_finding(run: Run) -> None:
    text = cluster("InstanceType: g5.2xlarge, MaxCount: 8, Efa: {Enabled: true}")
    assert shown(run("a.yaml", text, "NET001", "NET002")) == ["error NET002 11"]


P4D = "InstanceType: p4d.24xlarge, MaxCount: 4"
GROUP = ", PlacementGroup: {Enabled: true}"


@pytest.mark.parametrize(
    ("text", "level"),
    [
        (cluster(P4D, GROUP), "warning"),
        (cluster(f"{P4D}, MinCount: 2"), "warning"),
        (cluster(P4D), "info"),  # single nodes are as common
        (cluster(P4D, GROUP, name="inference"), "info"),
        (cluster(f"{P4D}, Efa: {{Enabled: false}}", GROUP), "info"),
        (cluster("InstanceType: p4d.24xlarge, MaxCount: 1", GROUP), ""),
    ],
)
def test_efa_that_is_not_used(run: Run, text: str, level: str) -> None:
    assert shown(run("a.yaml", text, "NET002")) == ([f"{level} NET002 11"] if level else [])


def test_the_fix_is_not_refused(run: Run) -> None:
    (finding,) = run("a.yaml", cluster(f"{P4D}, MinCount: 2"), "NET002")
    assert "placement group" in finding.fix  # NET001: EFA alone is refused
    several = cluster("Instances: [{InstanceType: p4d.24xlarge}, {InstanceType: p4de.24xlarge}], MaxCount: 4", GROUP)
    (finding,) = run("b.yaml", several, "NET002")
    assert finding.fix == "enable EFA"


def test_a_group_and_a_list_do_not_go_together(run: Run) -> None:
    text = cluster("InstanceType: c5.xlarge, MaxCount: 8", GROUP).replace("67890]", "67890, subnet-0a1b2c3d4e5f67891]")
    (finding,) = run("a.yaml", text, "NET004")
    assert finding.fix == "keep one subnet"
    (finding,) = run("b.yaml", text.replace(GROUP, ""), "NET004")
    assert "Instances" in finding.fix


TEMPLATE = """AWSTemplateFormatVersion: '2010-09-09'
Resources:
  Template:
    Type: AWS::EC2::LaunchTemplate
    Properties:
      LaunchTemplateData:
        InstanceType: {type_}
        NetworkInterfaces:
          - {{DeviceIndex: 0, NetworkCardIndex: 0, InterfaceType: efa}}
          - {{DeviceIndex: {index}, NetworkCardIndex: 1, InterfaceType: efa}}
"""


@pytest.mark.parametrize(
    ("type_", "index", "levels"),
    [
        ("p4d.24xlarge", 1, ["warning"]),  # it starts
        ("p4d.24xlarge", 0, ["error", "warning"]),
        ("p4d.24xlarge", 2, ["info", "warning"]),
        ("p6-b300.48xlarge", 0, ["info", "warning"]),
        ("c6in.32xlarge", 1, []),
    ],
)
def test_interfaces_of_a_template(run: Run, type_: str, index: int, levels: list[str]) -> None:
    findings = run("a.yaml", TEMPLATE.format(type_=type_, index=index), "NET006")
    assert sorted(one.level for one in findings) == levels


JOB = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --constraint=p5.48xlarge\n{}\nsrun ./{} -b 8 -e 16G\n"


@pytest.mark.parametrize(
    ("line", "program", "level"),
    [
        ("MIN_BUSBW=800", "all_reduce_perf", "warning"),
        ("MIN_BUSBW=${MIN_BUSBW:-800}", "all_reduce_perf", "info"),
        ("MIN_BUSBW_GBPS=2400", "all_reduce_perf", ""),
        ("MIN_NVLINK_BUSBW=800", "all_reduce_perf", ""),
        ("MIN_BUSBW=800", "sendrecv_perf", ""),
        ("case $A in p6*) MIN_BUSBW=800 ;; esac", "all_reduce_perf", "info"),
    ],
)
def test_thresholds_of_other_tests(run: Run, line: str, program: str, level: str) -> None:
    assert [one.level for one in run("a.sbatch", JOB.format(line, program), "BEN001")] == ([level] if level else [])


def test_a_card_with_two_interfaces_does_not_get_one_index_twice(run: Run) -> None:
    interfaces = ((0, 0), (1, 0), (1, 1), (2, 1))
    text = 'resource "aws_launch_template" "gpu" {\n  instance_type = "p4d.24xlarge"\n' + "".join(
        f"  network_interfaces {{\n    network_card_index = {card}\n    device_index = {device}\n"
        '    interface_type = "efa"\n  }\n'
        for card, device in interfaces
    )
    fixes = [finding.fix for finding in run("a.tf", f"{text}}}\n", "NET006") if "device index 0" in finding.message]
    assert fixes == ["write device index 1 for every card but the first, and one interface per card"]


def test_efa_of_eksctl_needs_private_nodes(run: Run) -> None:
    text = """apiVersion: eksctl.io/v1alpha5
kind: ClusterConfig
metadata: {name: train, region: us-east-2, version: "1.36"}
managedNodeGroups:
- {name: train, instanceType: trn1.32xlarge, minSize: 4, maxSize: 4}
"""
    (finding,) = run("a.yaml", text, "NET002")
    assert finding.fix == "set efaEnabled: true and privateNetworking: true"
