"""What the templates make for given parameters, by a small reading of CloudFormation's functions: zones of the network,
parts of Lustre that only some deployments have."""

from __future__ import annotations

from typing import Any

import pytest

from trainwright.spec.source import Node, parse
from trainwright.stacks.library import template

REGION_ZONES = [f"us-east-2{letter}" for letter in "abc"]
NO_VALUE = object()


class Reading:
    """A template read with parameters: which resources there are, and the values of their properties."""

    def __init__(self, name: str, **parameters: str) -> None:
        (self.root,) = parse(template(name).text, name)
        given = self.root.get("Parameters")
        assert given is not None
        self.parameters = {key: self._default(node) for key, node in given.items()} | parameters

    def _default(self, node: Node) -> str:
        default = node.get("Default")
        return default.text if default is not None else ""

    def condition(self, name: str) -> bool:
        node = self.root.get("Conditions", name)
        assert node is not None, name
        return bool(self.value(node))

    def resources(self) -> dict[str, Node]:
        section = self.root.get("Resources")
        assert section is not None
        kept: dict[str, Node] = {}
        for name, node in section.items():
            wanted = node.get("Condition")
            if wanted is None or self.condition(wanted.text):
                kept[name] = node
        return kept

    def value(self, node: Node) -> Any:
        if node.tag:
            return self._function(node)
        if node.is_map:
            pairs = {key: self.value(child) for key, child in node.items()}
            return {key: value for key, value in pairs.items() if value is not NO_VALUE}
        if node.is_list:
            return [value for child in node.elements() if (value := self.value(child)) is not NO_VALUE]
        return node.text

    def _function(self, node: Node) -> Any:
        if node.tag == "Ref":
            return NO_VALUE if node.text == "AWS::NoValue" else self.parameters.get(node.text, f"<{node.text}>")
        if node.tag == "Condition":
            return self.condition(node.text)
        if node.tag in ("GetAtt", "Sub"):
            return f"<{node.text}>"
        if node.tag == "GetAZs":
            return REGION_ZONES
        parts = list(node.elements())
        if node.tag == "If":
            return self.value(parts[1] if self.condition(parts[0].text) else parts[2])
        values = [self.value(part) for part in parts]
        functions: dict[str, Any] = {
            "Equals": lambda: values[0] == values[1],
            "Not": lambda: not values[0],
            "And": lambda: all(values),
            "Or": lambda: any(values),
            "Select": lambda: values[1][int(values[0])],
            "Join": lambda: values[0].join(values[1]),
        }
        return functions[node.tag]()

    def properties(self, name: str) -> dict[str, Any]:
        node = self.resources()[name].get("Properties")
        assert node is not None
        values: dict[str, Any] = self.value(node)
        return values


def private_subnets(reading: Reading) -> list[str]:
    return [n for n, r in reading.resources().items() if n.startswith("PrivateSubnet") and "Routes" not in n]


def test_a_network_in_one_zone_has_one_private_subnet() -> None:
    reading = Reading("network")
    assert private_subnets(reading) == ["PrivateSubnet1"]
    assert reading.properties("PrivateSubnet1")["AvailabilityZone"] == "us-east-2a"
    assert "PrivateAddresses2" not in reading.resources()


@pytest.mark.parametrize(("count", "ranges"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (6, 3)])
def test_each_zone_has_a_subnet_in_a_range_that_exists(count: int, ranges: int) -> None:
    reading = Reading("network", **{f"Zone{n}": f"use2-az{n}" for n in range(1, count + 1)}, ZoneStyle="id")
    assert len(private_subnets(reading)) == count
    present = [name for name in reading.resources() if name.startswith("PrivateAddresses")]
    assert len(present) == ranges
    for name in private_subnets(reading):
        wanted = reading.resources()[name].get("DependsOn")
        assert wanted is not None
        assert wanted.text in present
        block = reading.properties(wanted.text)["CidrBlock"].split(".")[1]
        assert reading.properties(name)["CidrBlock"].split(".")[1] == block


def test_zones_by_id_and_by_name() -> None:
    by_id = Reading("network", ZoneStyle="id", Zone1="use2-az3").properties("PublicSubnet")
    assert by_id["AvailabilityZoneId"] == "use2-az3"
    assert "AvailabilityZone" not in by_id
    by_name = Reading("network", Zone1="us-east-2c").properties("PrivateSubnet1")
    assert by_name["AvailabilityZone"] == "us-east-2c"
    assert "AvailabilityZoneId" not in by_name
    automatic = Reading("network", Zone1="auto", Zone2="auto").properties("PrivateSubnet2")
    assert automatic["AvailabilityZone"] == "us-east-2b"


def test_the_list_of_subnets_has_those_that_exist() -> None:
    reading = Reading("network", Zone2="auto")
    output = reading.root.get("Outputs", "PrivateSubnets", "Value")
    assert output is not None
    assert reading.value(output) == "<PrivateSubnet1>,<PrivateSubnet2>"


@pytest.mark.parametrize(
    ("deployment", "efa", "expected"),
    [
        ("PERSISTENT_2", "false", {"PerUnitStorageThroughput", "EfaEnabled", "MetadataConfiguration"}),
        ("PERSISTENT_2", "true", {"PerUnitStorageThroughput", "EfaEnabled", "MetadataConfiguration"}),
        ("PERSISTENT_1", "false", {"PerUnitStorageThroughput"}),
        ("SCRATCH_2", "false", set()),
    ],
)
def test_lustre_has_what_its_deployment_takes(deployment: str, efa: str, expected: set[str]) -> None:
    reading = Reading("lustre", DeploymentType=deployment, Efa=efa)
    keys = set(reading.properties("FileSystem")["LustreConfiguration"])
    assert keys == expected | {"DeploymentType", "DataCompressionType"}
    assert {name for name in reading.resources() if "Efa" in name} == (
        {"EfaFromServers", "EfaToServers", "EfaFromNodes", "EfaToNodes", "NodesEfaFromServers", "NodesEfaToServers"}
        if efa == "true"
        else set()
    )


def test_a_bucket_is_linked_only_when_one_is_named() -> None:
    assert "BucketLink" not in Reading("lustre").resources()
    link = Reading("lustre", Bucket="s3://data").properties("BucketLink")
    assert link["DataRepositoryPath"] == "s3://data"
    assert link["FileSystemPath"] == "/data"
