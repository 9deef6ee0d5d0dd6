"""What the templates make for given parameters, by a small reading of CloudFormation's functions: zones of the network,
parts of Lustre that only some deployments have."""

from __future__ import annotations

import pytest

from stack_reading import Reading


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
