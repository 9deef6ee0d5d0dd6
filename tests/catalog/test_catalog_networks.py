"""Ceilings stand above every published measurement; launch templates address every card once."""

import pytest

from trainwright.catalog.instances import instance, instances
from trainwright.catalog.networks import allreduce_ceiling_gb_s, efa_interfaces, network_gb_s
from trainwright.catalog.quotas import quota_for

# Bus bandwidth in GB/s of the largest message: nccl-tests of awslabs/awsome-distributed-ai and stas00/ml-engineering.
MEASURED = [
    ("p4de.24xlarge", 2, 78.3),
    ("p5.48xlarge", 2, 487),
    ("p5.48xlarge", 4, 357),
    ("p5.48xlarge", 16, 356),
    ("p5.48xlarge", 32, 321),
    ("p5en.48xlarge", 1, 480),
    ("p5en.48xlarge", 16, 370),
    ("p6-b200.48xlarge", 1, 846),
    ("p6-b200.48xlarge", 4, 382),
]


@pytest.mark.parametrize(("name", "nodes", "measured"), MEASURED)
def test_a_ceiling_is_above_what_was_measured_and_not_absurdly(name, nodes, measured):
    ceiling = allreduce_ceiling_gb_s(instance(name), nodes)
    assert measured < ceiling < 2.2 * measured


def test_what_has_no_ceiling():
    assert allreduce_ceiling_gb_s(instance("p5.4xlarge"), 1) is None
    assert allreduce_ceiling_gb_s(instance("g5.12xlarge"), 1) is None
    assert allreduce_ceiling_gb_s(instance("p4d.24xlarge"), 1) == 300
    assert network_gb_s(instance("p5.48xlarge")) == 400


def test_interfaces_of_p5():
    cards = efa_interfaces(instance("p5.48xlarge"))
    assert len(cards) == 32
    assert (cards[0].card, cards[0].device, cards[0].kind) == (0, 0, "efa")
    assert {(c.device, c.kind) for c in cards[1:]} == {(1, "efa-only")}


def test_b300_keeps_its_first_card_for_ip():
    cards = efa_interfaces(instance("p6-b300.48xlarge"))
    assert cards[0].kind == "interface"
    assert [c.card for c in cards] == list(range(17))


def test_cards_with_one_interface_use_device_zero():
    assert {c.device for c in efa_interfaces(instance("hpc6id.32xlarge"))} == {0}


def test_every_efa_card_is_used_once():
    unknown = set()
    for t in instances():
        cards = efa_interfaces(t)
        assert len({c.card for c in cards}) == len(cards)
        if sum(c.kind != "interface" for c in cards) != t.efa_cards:
            assert cards == ()
            unknown.add(t.name)
    assert unknown == {"p6e-gb200.36xlarge"}


@pytest.mark.parametrize(
    ("name", "kind", "code"),
    [
        ("p4d.24xlarge", "on-demand", "L-417A185B"),
        ("p4d.24xlarge", "spot", "L-7212CCBC"),
        ("p5.48xlarge", "spot", "L-C4BD4855"),
        ("g5.xlarge", "on-demand", "L-DB2E81BA"),
        ("trn1.32xlarge", "on-demand", "L-2C3B7624"),
        ("inf2.xlarge", "on-demand", "L-1945791B"),
        ("m5.8xlarge", "on-demand", "L-1216C47A"),
    ],
)
def test_quota_codes(name, kind, code):
    assert quota_for(name, 1, kind).code == code


def test_quota_counts_vcpus_and_blocks_do_not_count():
    assert quota_for("p5.48xlarge", 4).vcpus == 768
    assert quota_for("p5.48xlarge", 4, "capacity-block") is None
    assert quota_for("hpc7a.96xlarge", 1, "spot") is None
    assert all(quota_for(t.name, 1) for t in instances())
