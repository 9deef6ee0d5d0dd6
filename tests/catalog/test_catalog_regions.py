"""Regions against botocore's own list, zone ids against moto's."""

import boto3
import botocore.session
import pytest
from moto import mock_aws

from trainwright.catalog.regions import find_region, region, region_of_zone, regions, zone_kind
from trainwright.errors import UserError


def test_names_and_titles_are_botocores():
    data = botocore.session.get_session().get_component("data_loader").load_data("endpoints")
    titles = {n: r["description"] for part in data["partitions"] for n, r in part["regions"].items()}
    for ours in regions():
        if ours.name in titles:
            assert titles[ours.name] == ours.title, ours.name
    public = {n for n in titles if not n.startswith(("us-iso", "eu-iso", "us-isob", "eusc", "aws-global"))}
    assert public <= {r.name for r in regions()}


@mock_aws
@pytest.mark.parametrize("name", ["us-east-1", "us-east-2", "us-west-2", "eu-north-1", "ap-northeast-1", "ap-south-1"])
def test_zone_ids_belong_to_their_region(name):
    zones = boto3.client("ec2", region_name=name).describe_availability_zones()["AvailabilityZones"]
    assert zones
    for zone in zones:
        assert region_of_zone(zone["ZoneId"]) == find_region(name)
        assert region_of_zone(zone["ZoneName"]) == find_region(name)


@pytest.mark.parametrize(
    ("zone", "kind", "where"),
    [
        ("use2-az3", "id", "us-east-2"),
        ("us-east-2a", "name", "us-east-2"),
        ("usw2-lax1-az1", "id", "us-west-2"),
        ("us-west-2-lax-1a", "name", "us-west-2"),
        ("us-gov-west-1b", "name", "us-gov-west-1"),
        ("us-east-2", None, None),
        ("zzz9-az1", "id", None),
        ("a zone", None, None),
    ],
)
def test_zone_names_and_ids(zone, kind, where):
    assert zone_kind(zone) == kind
    region = region_of_zone(zone)
    assert (region.name if region else None) == where


def test_unknown_region():
    with pytest.raises(UserError) as error:
        region("eu-nort-1")
    assert "eu-north-1" in error.value.fix
