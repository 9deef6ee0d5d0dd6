"""`catalog update` against moto's EC2. moto has no Price List API, so its answers come from botocore's Stubber, which
checks the request against the real service model."""

import json

import boto3
import pytest
from botocore.stub import ANY, Stubber
from moto import mock_aws

from trainwright.aws import catalog_update, ec2, pricing
from trainwright.aws.catalog_update import Quotes
from trainwright.catalog.instances import instance
from trainwright.catalog.prices import price
from trainwright.errors import UserError

FILTERS = [
    {"Type": "TERM_MATCH", "Field": field, "Value": value}
    for field, value in (
        ("operatingSystem", "Linux"),
        ("tenancy", "Shared"),
        ("preInstalledSw", "NA"),
        ("capacitystatus", "Used"),
        ("marketoption", "OnDemand"),
        ("regionCode", "us-east-1"),
    )
]


@pytest.fixture(autouse=True)
def credentials(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.delenv("AWS_PROFILE", raising=False)


def product(name, *rates):
    dimensions = {str(n): {"unit": unit, "pricePerUnit": {"USD": usd}} for n, (unit, usd) in enumerate(rates)}
    terms = {"OnDemand": {"term": {"priceDimensions": dimensions}}} if rates else {}
    return json.dumps({"product": {"attributes": {"instanceType": name}}, "terms": terms})


def stubbed_pricing(*pages):
    client = boto3.client("pricing", region_name="us-east-1")
    stub = Stubber(client)
    for number, page in enumerate(pages):
        answer = {"PriceList": list(page)}
        if number + 1 < len(pages):
            answer["NextToken"] = "more"
        token = {"NextToken": "more"} if number else {}
        stub.add_response("get_products", answer, {"ServiceCode": "AmazonEC2", "Filters": FILTERS, **token})
    stub.activate()
    return client, stub


def test_on_demand_prices_over_pages():
    client, stub = stubbed_pricing(
        [product("p5.48xlarge", ("Hrs", "50.0")), product("p5e.48xlarge", ("Hrs", "0.0000"))],
        [product("m5.large", ("Hrs", "0.096")), product("x.none"), product("y.odd", ("Quantity", "9"))],
    )
    assert pricing.on_demand_prices(client, "us-east-1") == {"p5.48xlarge": 50.0, "m5.large": 0.096}
    stub.assert_no_pending_responses()


@mock_aws
def test_describe_instance_types_of_moto():
    client = boto3.client("ec2", region_name="us-east-1")
    entries = ec2.describe_instance_types(client, ["p5.48xlarge", "g5.xlarge"])
    assert {entry["InstanceType"] for entry in entries} == {"p5.48xlarge", "g5.xlarge"}
    assert len(ec2.describe_instance_types(client)) > 500


@mock_aws
def test_update_writes_an_overlay_and_returns_what_changed(monkeypatch, overlay):
    stub_client, _ = stubbed_pricing([product("p5.48xlarge", ("Hrs", "50.0"))])
    real = catalog_update.client
    monkeypatch.setattr(
        catalog_update, "client", lambda service, *a: stub_client if service == "pricing" else real(service, *a)
    )
    monkeypatch.setattr(catalog_update, "spot_prices", lambda _: {"p5.48xlarge": 20.2849, "g5.xlarge": 0.5})
    monkeypatch.setattr(catalog_update, "capacity_block_prices", lambda _, names: dict.fromkeys(names, 9.5))
    changes = catalog_update.update("us-east-1")
    assert changes.types_seen > 500
    assert changes.new_types == ()
    assert changes.changed_types == {}
    assert [(c.instance, c.kind, c.before, c.after) for c in changes.prices if c.instance == "p5.48xlarge"] == [
        ("p5.48xlarge", "on-demand", 55.04, 50.0),
        ("p5.48xlarge", "capacity-block", None, 9.5),
    ]
    assert price("p5.48xlarge", "us-east-1", "capacity-block").usd_hour == 9.5
    assert price("p5.48xlarge", "us-east-2", "capacity-block") is None
    assert price("p5.48xlarge", "us-east-1").usd_hour == 50.0
    assert price("p5.48xlarge", "us-east-1").date == changes.date
    assert price("p5.48xlarge", "us-east-2").usd_hour == 55.04
    assert [path.name for path in overlay.iterdir()] == ["prices.csv"]


def test_spot_prices_take_the_lowest_zone():
    client = boto3.client("ec2", region_name="us-east-1")
    rows = [("p5.48xlarge", "us-east-1a", "30.5"), ("p5.48xlarge", "us-east-1b", "20.25")]
    history = [{"InstanceType": n, "AvailabilityZone": z, "SpotPrice": p} for n, z, p in rows]
    with Stubber(client) as stub:
        expected = {"ProductDescriptions": ["Linux/UNIX"], "StartTime": ANY}
        stub.add_response("describe_spot_price_history", {"SpotPriceHistory": history}, expected)
        assert ec2.spot_prices(client) == {"p5.48xlarge": 20.25}


def test_a_capacity_block_costs_its_fee_by_the_hour():
    client = boto3.client("ec2", region_name="us-east-2")
    asked = {"InstanceCount": 1, "CapacityDurationHours": 24}
    offers = [
        {"CapacityBlockDurationHours": 24, "UpfrontFee": "960.00"},
        {"CapacityBlockDurationHours": 23, "UpfrontFee": "828.00"},
    ]
    with Stubber(client) as stub:
        method = "describe_capacity_block_offerings"
        stub.add_response(method, {"CapacityBlockOfferings": offers}, asked | {"InstanceType": "p5.48xlarge"})
        stub.add_response(method, {"CapacityBlockOfferings": []}, asked | {"InstanceType": "p5e.48xlarge"})
        stub.add_client_error(method, "Unsupported", "not here", 400)
        stub.add_client_error(method, "UnauthorizedOperation", "no", 403)
        names = ("p5.48xlarge", "p5e.48xlarge", "trn1.32xlarge")
        assert ec2.capacity_block_prices(client, names) == {"p5.48xlarge": 36.0}
        with pytest.raises(UserError) as error:
            ec2.capacity_block_prices(client, ["p4d.24xlarge"])
    assert "DescribeCapacityBlockOfferings" in error.value.fix


@mock_aws
def test_a_new_type_and_a_changed_one(overlay):
    entries = ec2.describe_instance_types(boto3.client("ec2", region_name="us-east-1"), ["p5.48xlarge"])
    grown = json.loads(json.dumps(entries[0]))
    grown["MemoryInfo"]["SizeInMiB"] = 1
    born = json.loads(json.dumps(entries[0]))
    born["InstanceType"] = "p9.96xlarge"
    changes = catalog_update.store("us-east-1", [grown, born], Quotes({}, {}, {}))
    assert changes.new_types == ("p9.96xlarge",)
    assert changes.changed_types == {"p5.48xlarge": ("memory_mib",)}
    assert instance("p5.48xlarge").memory_mib == 1
    assert instance("p9.96xlarge").efa_cards == 32
    again = catalog_update.store("us-east-1", [grown, born], Quotes({}, {}, {}))
    assert (again.new_types, again.changed_types) == ((), {})
    assert instance("p9.96xlarge").source.startswith("api 20")


def test_another_region_keeps_the_first_ones_prices():
    catalog_update.store("us-east-1", [], Quotes({"p5.48xlarge": 41.0}, {}, {}))
    catalog_update.store("us-east-2", [], Quotes({"p5.48xlarge": 42.0}, {}, {}))
    catalog_update.store("us-east-2", [], Quotes({"p5.48xlarge": 43.0}, {}, {}))
    assert [price("p5.48xlarge", r).usd_hour for r in ("us-east-1", "us-east-2")] == [41.0, 43.0]


def test_the_most_expensive_accelerated_changes_come_first():
    changes = catalog_update.store(
        "us-east-1", [], Quotes({"p5.48xlarge": 41.0, "g5.xlarge": 1.5, "m5.large": 9.0}, {}, {})
    )
    assert [c.instance for c in catalog_update.accelerated_changes(changes)] == ["p5.48xlarge", "g5.xlarge"]


def test_access_denied_is_a_user_error():
    client = boto3.client("pricing", region_name="us-east-1")
    with Stubber(client) as stub:
        stub.add_client_error("get_products", "AccessDeniedException", "no", 403)
        with pytest.raises(UserError) as error:
            pricing.on_demand_prices(client, "us-east-1")
    assert "AccessDeniedException" in error.value.what
    assert "GetProducts" in error.value.fix
