"""The shipped stacks: clean under cfn-lint, data kept on delete, a security group EFA accepts, Lustre ports."""

from __future__ import annotations

import pytest

from trainwright.errors import UserError
from trainwright.spec.source import Node, parse
from trainwright.stacks.library import FOLDER, template, template_names

DATA_BEARING = {
    "AWS::S3::Bucket": {"Retain", "RetainExceptOnCreate"},
    "AWS::FSx::FileSystem": {"Retain", "RetainExceptOnCreate"},
    "AWS::RDS::DBCluster": {"Retain", "Snapshot"},
    "AWS::SecretsManager::Secret": {"Retain", "RetainExceptOnCreate"},
    "AWS::FSx::DataRepositoryAssociation": {"Retain"},
}

# Password and certificate authority of servers that go with the stack.
HOLDS_NOTHING = {("directory", "Password"), ("directory", "Authority")}


def resources(name: str) -> dict[str, Node]:
    (root,) = parse(template(name).text, name)
    section = root.get("Resources")
    assert section is not None
    return dict(section.items())


def text(node: Node, *path: str | int) -> str:
    child = node.get(*path)
    return child.text if child is not None else ""


def test_the_library_holds_these_stacks() -> None:
    names = "accounting batch bucket capacity directory eks-addons eks-cluster eks-nodes karpenter"
    assert template_names() == (*names.split(), "lustre", "monitoring", "network", "openzfs", "role")


@pytest.mark.parametrize("name", template_names())
def test_cfn_lint_finds_nothing(name: str) -> None:
    from cfnlint.api import lint_file
    from cfnlint.config import ManualArgs

    config = ManualArgs(regions=["us-east-1"])
    assert [str(match) for match in lint_file(FOLDER / f"{name}.yaml", config=config)] == []


@pytest.mark.parametrize("name", template_names())
def test_parameters_and_outputs_are_described(name: str) -> None:
    described = template(name)
    assert all(described.parameters.values()), described.parameters
    assert all(described.outputs.values()), described.outputs
    assert described.description.startswith("Trainwright")


@pytest.mark.parametrize("name", template_names())
def test_data_outlives_the_stack(name: str) -> None:
    for key, node in resources(name).items():
        kept = DATA_BEARING.get(text(node, "Type"))
        if kept is not None and (name, key) not in HOLDS_NOTHING:
            # What a creation that failed has made holds nothing yet, and may go with it.
            assert text(node, "DeletionPolicy") in {*kept, "RetainExceptOnCreate"}, key
            assert text(node, "UpdateReplacePolicy") in kept, key


def test_the_node_security_group_is_valid_for_efa() -> None:
    parts = resources("network")
    for key, kind, peer in (
        ("SecurityGroupFromItself", "AWS::EC2::SecurityGroupIngress", "SourceSecurityGroupId"),
        ("SecurityGroupToItself", "AWS::EC2::SecurityGroupEgress", "DestinationSecurityGroupId"),
    ):
        rule = parts[key]
        assert text(rule, "Type") == kind
        assert text(rule, "Properties", "IpProtocol") == "-1"
        assert text(rule, "Properties", "GroupId") == text(rule, "Properties", peer) == "SecurityGroup"


def test_flow_logs_go_to_the_group_that_exists() -> None:
    group = resources("network")["FlowLog"].get("Properties", "LogGroupName")
    assert group is not None
    assert (group.tag, group.text) == ("Ref", "FlowLogs")
    assert text(resources("network")["FlowLogs"], "Type") == "AWS::Logs::LogGroup"


def test_lustre_ports_are_open_both_ways() -> None:
    opened = {
        (
            text(r, "Properties", "GroupId"),
            text(r, "Properties", "SourceSecurityGroupId"),
            text(r, "Properties", "FromPort"),
        )
        for r in resources("lustre").values()
        if text(r, "Type") == "AWS::EC2::SecurityGroupIngress"
    }
    for port in ("988", "1018"):
        assert ("SecurityGroup", "NodeSecurityGroup", port) in opened
        assert ("SecurityGroup", "SecurityGroup", port) in opened
        assert ("NodeSecurityGroup", "SecurityGroup", port) in opened


def test_the_bucket_link_goes_both_ways() -> None:
    link = resources("lustre")["BucketLink"]
    for policy in ("AutoImportPolicy", "AutoExportPolicy"):
        events = link.get("Properties", "S3", policy, "Events")
        assert events is not None
        assert events.plain() == ["NEW", "CHANGED", "DELETED"]


def test_private_subnets_do_not_overlap_and_are_large() -> None:
    from ipaddress import ip_network

    subnets = [
        ip_network(text(node, "Properties", "CidrBlock"))
        for key, node in resources("network").items()
        if key.startswith("PrivateSubnet") and text(node, "Type") == "AWS::EC2::Subnet"
    ]
    assert len(subnets) == 6
    assert all(subnet.prefixlen == 17 for subnet in subnets)
    assert not any(a.overlaps(b) for i, a in enumerate(subnets) for b in subnets[i + 1 :])


def test_a_wrong_name_gets_a_hint() -> None:
    with pytest.raises(UserError, match="no stack template 'netwrok'") as caught:
        template("netwrok")
    assert "network" in caught.value.fix
