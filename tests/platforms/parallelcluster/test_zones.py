"""Where a spec leaves the zone open, the network is built where the instance types are offered."""

from __future__ import annotations

import json

import boto3
import pytest
from click.testing import CliRunner
from moto import mock_aws

from trainwright.catalog.offerings import offered_zones, zones_of
from trainwright.cli.main import cli
from trainwright.platforms.plan.tree import ClusterPlan, make_plan
from trainwright.spec.load import load_text

SPEC = """\
name: zoned
platform: parallelcluster
region: {region}
queues: [{{name: train, instance: {instance}, count: 2{capacity}}}]
{more}
"""


def plan(region: str, instance: str, more: str = "", capacity: str = "") -> ClusterPlan:
    return make_plan(load_text(SPEC.format(region=region, instance=instance, more=more, capacity=capacity), "spec"))


def parameters(made: ClusterPlan) -> dict[str, str]:
    rows = json.loads(made.files["stacks/network.parameters.json"])
    return {row["ParameterKey"]: row["ParameterValue"] for row in rows}


def test_the_zone_is_one_that_offers_the_type() -> None:
    assert offered_zones("p6-b200.48xlarge", "us-east-1") == ("use1-az6",), "or this test says nothing"
    for more in ("", "zone: auto"):
        made = plan("us-east-1", "p6-b200.48xlarge", more)
        assert parameters(made) == {"ZoneStyle": "id", "Zone1": "use1-az6"}
        assert made.notes == ()
    (default,) = [d for d in made.defaults if d.path == "zone"]
    assert "p6-b200.48xlarge offered in use1-az6, by the catalog of 2026-08-22" in default.why


def test_a_database_gets_a_second_zone_of_the_region() -> None:
    zones = parameters(plan("us-east-1", "p6-b200.48xlarge", "accounting: true"))
    assert zones["Zone1"] == "use1-az6"
    assert zones["Zone2"] in set(zones_of("us-east-1")) - {"use1-az6"}


@pytest.mark.parametrize(
    ("region", "instance", "more", "capacity", "note"),
    [
        ("ap-east-2", "p5.48xlarge", "", "", "is not known: the first zone is taken"),
        (
            "us-east-1",
            "p5.48xlarge",
            "",
            ", capacity: {reservation: cr-0a1b2c3d4e5f67890}",
            "must be in the zone of cr-0",
        ),
        ("us-east-1", "p6-b200.48xlarge", "zone: use1-az1", "", "use1-az1 does not offer p6-b200.48xlarge"),
        ("us-east-1", "c7i.4xlarge", "", "", ""),
    ],
)
def test_what_is_not_known_is_said(region: str, instance: str, more: str, capacity: str, note: str) -> None:
    notes = plan(region, instance, more, capacity).notes
    assert any(note in each for each in notes) if note else notes == ()


def test_aws_is_asked_where_the_user_says_so(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws(), CliRunner().isolated_filesystem():
        ec2 = boto3.client("ec2", "us-west-2")
        offers = ec2.describe_instance_type_offerings(
            LocationType="availability-zone-id", Filters=[{"Name": "instance-type", "Values": ["p5en.48xlarge"]}]
        )["InstanceTypeOfferings"]
        with open("spec.yaml", "w") as spec:
            spec.write(SPEC.format(region="us-west-2", instance="p5en.48xlarge", more="", capacity=""))
        done = CliRunner().invoke(cli, ["plan", "spec.yaml", "--aws", "--json"])
        assert done.exit_code == 0, done.output
        (zone,) = [row for row in json.loads(done.stdout)["defaults"] if row["path"] == "zone"]
        assert zone["value"] == min(offer["Location"] for offer in offers)
        assert "as AWS answered" in zone["why"]
