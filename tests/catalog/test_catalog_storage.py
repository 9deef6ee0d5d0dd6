"""What FSx accepts, and what storage costs."""

import pytest

from trainwright.catalog.storage import (
    ebs_monthly_usd,
    find_lustre_rule,
    ipv4_monthly_usd,
    lustre_monthly_usd,
    lustre_problem,
    lustre_rules,
    lustre_throughput_mb_s,
    nat_monthly_usd,
    openzfs_monthly_usd,
    openzfs_throughputs,
    s3_monthly_usd,
    storage_ports,
    unit_price,
)
from trainwright.errors import UserError


@pytest.mark.parametrize(
    ("deployment", "capacity", "throughput", "storage", "efa"),
    [
        ("PERSISTENT_2", 1200, 125, "SSD", False),
        ("PERSISTENT_2", 4800, 250, "SSD", False),
        ("PERSISTENT_1", 2400, 200, "SSD", False),
        ("PERSISTENT_1", 6000, 12, "HDD", False),
        ("PERSISTENT_1", 1800, 40, "HDD", False),
        ("SCRATCH_1", 2400, None, "SSD", False),
        ("SCRATCH_1", 7200, None, "SSD", False),
        ("SCRATCH_2", 4800, None, "SSD", False),
        ("PERSISTENT_2", 38400, 125, "SSD", True),
        ("PERSISTENT_2", 4800, 1000, "SSD", True),
    ],
)
def test_what_fsx_makes(deployment, capacity, throughput, storage, efa):
    assert lustre_problem(deployment, capacity, throughput, storage, efa) is None


@pytest.mark.parametrize(
    ("deployment", "capacity", "throughput", "storage", "efa", "words"),
    [
        ("PERSISTENT_2", 3600, 125, "SSD", False, "2400 or 4800"),
        ("PERSISTENT_2", 1000, 125, "SSD", False, "nearest: 1200 GiB"),
        ("PERSISTENT_2", 4800, 200, "SSD", False, "125, 250, 500, 1000"),
        ("PERSISTENT_2", 4800, None, "SSD", False, "required"),
        ("PERSISTENT_1", 4800, 250, "SSD", False, "50, 100, 200"),
        ("PERSISTENT_2", 6000, 12, "HDD", False, "no FSx for Lustre deployment"),
        ("SCRATCH_2", 1200, 125, "SSD", False, "takes no throughput"),
        ("SCRATCH_1", 4800, None, "SSD", False, "3600"),
        ("PERSISTENT_2", 4800, 250, "SSD", True, "multiple of 19200"),
        ("PERSISTENT_1", 4800, 200, "SSD", True, "cannot use EFA"),
        ("PERSISTENT_2", 0, 125, "SSD", False, "not a size"),
    ],
)
def test_what_fsx_refuses(deployment, capacity, throughput, storage, efa, words):
    assert words in lustre_problem(deployment, capacity, throughput, storage, efa)


def test_the_next_capacity_is_always_allowed_and_enough():
    for rule in lustre_rules():
        for throughput in rule.throughputs or (None,):
            for efa in (False, True) if rule.efa_step else (False,):
                for wanted in (1, 1200, 1201, 2400, 5000, 40_000):
                    size = rule.next_capacity(wanted, throughput, efa)
                    assert size >= wanted
                    assert rule.capacity_fits(size, throughput, efa)


def test_throughput_is_capacity_times_the_rate_of_a_tib():
    assert lustre_throughput_mb_s(4800, 250) == pytest.approx(1171.875)
    assert lustre_throughput_mb_s(1200, None, "SCRATCH_2") == pytest.approx(234.375)


def test_months():
    assert lustre_monthly_usd(1200, 125) == pytest.approx(174.0)  # a published estimate says about 174
    assert lustre_monthly_usd(4800, 250, "ap-northeast-1") == pytest.approx(4800 * 0.282)
    assert openzfs_monthly_usd(512, 512) == pytest.approx(512 * 0.09 + 512 * 0.26)
    assert ebs_monthly_usd(500) == pytest.approx(40.0)
    assert ebs_monthly_usd(100, iops=4000, throughput_mb_s=225) == pytest.approx(8 + 5 + 4)
    assert s3_monthly_usd(1024) == pytest.approx(23.552)
    assert openzfs_monthly_usd(512, 160, deployment="MULTI_AZ_1") == pytest.approx(512 * 0.18 + 160 * 0.87)
    assert nat_monthly_usd() == pytest.approx(32.85)
    assert nat_monthly_usd(gib=1000) - nat_monthly_usd() == pytest.approx(45.0)
    assert ipv4_monthly_usd() == pytest.approx(3.65)


def test_every_rule_has_a_price():
    for rule in lustre_rules():
        for throughput in rule.throughputs or (None,):
            assert lustre_monthly_usd(1200, throughput, deployment=rule.deployment, storage=rule.storage) > 0


def test_a_region_without_its_own_price_is_marked():
    assert unit_price("ebs/gp3", "us-east-1").exact
    elsewhere = unit_price("ebs/gp3", "eu-west-3")
    assert (elsewhere.exact, elsewhere.region, elsewhere.confidence) == (False, "us-east-1", "medium")
    assert elsewhere.date
    with pytest.raises(UserError):
        unit_price("ebs/gp9")


def test_ports_and_openzfs():
    assert storage_ports("lustre") == ((988, 988), (1018, 1023))
    assert storage_ports("openzfs", "udp")[-1] == (20001, 20003)
    assert 512 in openzfs_throughputs("SINGLE_AZ_HA_1")
    assert openzfs_throughputs("NONE") == ()
    assert find_lustre_rule("PERSISTENT_3") is None
