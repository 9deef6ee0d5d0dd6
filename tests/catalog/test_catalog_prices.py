"""Prices carry a day and a source, follow the user's own update, and are never invented."""

import pytest

from trainwright.catalog import tables
from trainwright.catalog.instances import find_instance
from trainwright.catalog.prices import price, price_date, prices_of, regions
from trainwright.catalog.regions import find_region
from trainwright.errors import UserError


def test_on_demand_and_spot_of_p5():
    on_demand, spot = price("p5.48xlarge", "us-east-1"), price("p5.48xlarge", "us-east-1", "spot")
    assert (on_demand.usd_hour, on_demand.date, on_demand.kind) == (55.04, price_date(), "on-demand")
    assert spot.usd_hour == pytest.approx(20.2849)
    assert on_demand.source


def test_none_where_it_is_not_sold():
    assert price("p5.48xlarge", "sa-east-1") is None
    assert price("p5e.48xlarge", "us-east-2") is None  # spot and capacity blocks only
    assert price("no.such", "us-east-1") is None


def test_a_capacity_block_has_a_public_price_or_none():
    block = price("p5en.48xlarge", "us-west-2", "capacity-block")
    assert (block.region, block.date) == ("us-west-2", "2026-01-04")
    assert price("p6-b200.48xlarge", "us-east-1", "capacity-block") is None


def test_an_unknown_kind_is_an_error():
    with pytest.raises(UserError) as error:
        price("p5.48xlarge", "us-east-1", "ondemand")
    assert "on-demand" in error.value.fix


def test_cheapest_region_first():
    prices = prices_of("p4d.24xlarge")
    assert [p.usd_hour for p in prices] == sorted(p.usd_hour for p in prices)
    assert len(prices) == 12


def test_every_row_names_a_known_type_and_region():
    for name, region, on_demand, spot in tables.shipped_table("prices.csv").rows:
        assert find_instance(name) is not None, name
        assert find_region(region) is not None, region
        assert on_demand or spot
    assert "us-east-2" in regions()


def test_the_shipped_file_stays_small():
    assert (tables.SHIPPED / "prices.csv").stat().st_size < 100_000


def test_the_users_own_prices_come_first(overlay):
    table = tables.Table(
        {"source": "test", "date": "2030-01-02"},
        ("instance", "region", "on_demand", "spot", "capacity_block", "date"),
        (("p5.48xlarge", "us-east-1", "40", "", "30", "2030-01-02"),),
    )
    tables.write_table(overlay / "prices.csv", table)
    tables.clear_caches()
    assert (price("p5.48xlarge", "us-east-1").usd_hour, price("p5.48xlarge", "us-east-1").date) == (40.0, "2030-01-02")
    assert price("p5.48xlarge", "us-east-1", "capacity-block").usd_hour == 30
    assert price("p5.48xlarge", "us-east-2").date == price_date()
    assert price("p5.48xlarge", "us-east-1", "spot").date == price_date()
