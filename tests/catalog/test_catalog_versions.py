"""How versions compare, what goes together, what is needed, what EKS supports, and which variables are right."""

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.catalog.accelerators import find_accelerator
from trainwright.catalog.environment import environment, rules_for
from trainwright.catalog.instances import instance
from trainwright.catalog.runtime import runtime_pins
from trainwright.catalog.versions import (
    conflicts,
    efa_installer,
    env_rules,
    find_version,
    kubernetes_support,
    kubernetes_versions,
    minimums,
    minimums_for,
    parse_conditions,
    parse_version,
    version_set,
    version_sets,
)
from trainwright.errors import UserError


def versions(**texts):
    return {name: parse_version(text) for name, text in texts.items()}


@pytest.mark.parametrize(
    ("smaller", "larger"),
    [("1.9", "1.10"), ("v2.18.5", "2.27.7-1"), ("5.10", "5.15.0-1051-aws"), ("2.27.7", "2.27.7-1"), ("1.43.2", "1.47")],
)
def test_order(smaller, larger):
    assert parse_version(smaller) < parse_version(larger)
    assert parse_version(larger) >= parse_version(smaller)


def test_equality_ignores_trailing_zeros_and_v():
    assert parse_version("v1.7") == parse_version("1.7.0")
    assert len({parse_version("1.7"), parse_version("1.7.0")}) == 1


@given(st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=4), min_size=2, max_size=6))
def test_order_is_that_of_the_numbers(rows):
    parsed = [parse_version(".".join(map(str, row))) for row in rows]
    assert sorted(parsed) == sorted(parsed, key=lambda v: (*v.numbers, 0, 0, 0, 0)[:4])


@given(st.text(max_size=30))
def test_no_text_breaks_the_reader(text):
    version = find_version(text)
    assert version is None or parse_version(version.text) == version


@pytest.mark.parametrize("text", ["latest", "main", "", "${NCCL}"])
def test_what_is_no_version(text):
    assert find_version(text) is None
    with pytest.raises(UserError):
        parse_version(text)


def test_a_condition_that_is_not_one_is_refused():
    with pytest.raises(ValueError, match="not a condition"):
        parse_conditions("ofi_nccl about 1.7")


def test_the_default_set_is_what_parallelcluster_ships():
    pinned = version_set()
    assert [str(v) for v in (pinned.parallelcluster, pinned.slurm, pinned.driver)] == [
        "3.16.1",
        "25.11.8",
        "580.173.02",
    ]
    assert str(pinned.torch) == runtime_pins().torch  # the image and the managed runtime train with the same PyTorch
    with pytest.raises(UserError):
        version_set("defualt")


@pytest.mark.parametrize("name", version_sets())
def test_every_set_fits_together(name):
    pinned = version_set(name)
    assert len(pinned.source) > 100
    assert date.fromisoformat(pinned.date) <= date(2026, 11, 15)
    chips = ("", "a100-80", "h100", "h200", "b200") if name == "previous" else ("", "h100", "b200", "b300", "gb200")
    for chip in chips:
        assert conflicts(pinned.versions(), chip) == (), chip
    brings = efa_installer(pinned.efa)
    assert (brings.efa_driver, brings.libfabric, brings.ofi_nccl) == (
        pinned.efa_driver, pinned.libfabric, pinned.ofi_nccl,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "chip", "software", "level"),
    [
        ({"driver": "570.172.08"}, "", "driver", "error"),  # CUDA 13 on an older driver
        ({"efa_driver": "2.17.2"}, "", "efa_driver", "warning"),  # no peer-to-peer with driver 580
        ({"ofi_nccl": "1.16.3"}, "b300", "ofi_nccl", "error"),
        ({"efa": "1.43.2"}, "b300", "efa", "error"),
        ({"nccl": "2.17"}, "h200", "nccl", "error"),
        ({"cuda": "12.8"}, "b300", "cuda", "error"),
        ({"torch": "2.6.0"}, "gb200", "torch", "error"),
    ],
)
def test_one_version_out_of_line_is_named(changed, chip, software, level):
    pinned = version_set().versions() | versions(**changed)
    assert (software, level) in [(one.software, one.level) for one in conflicts(pinned, chip)]


def test_an_installer_between_two_brings_what_the_older_one_does():
    assert str(efa_installer(parse_version("1.43.3")).ofi_nccl) == "1.16.3"
    assert str(efa_installer(parse_version("1.60.0")).ofi_nccl) == "1.21.1"
    assert efa_installer(parse_version("1.30.0")) is None


def test_needs_name_known_accelerators_and_the_strictest_comes_first():
    for need in minimums():
        assert all(find_accelerator(name) for name in need.accelerators)
    assert str(minimums_for("b200", "cuda")[0].minimum) == "12.8"
    assert minimums_for("t4") == ()


@pytest.mark.parametrize(
    ("version", "support"),
    [("1.35", "standard"), ("1.34", "standard"), ("1.33", "extended"), ("1.29", "ended"), ("1.21", "ended")],
)
def test_kubernetes_support(version, support):
    assert kubernetes_support(version, date(2026, 11, 15)) == support


def test_kubernetes_patch_releases_and_the_future():
    assert kubernetes_support("1.35.3", date(2026, 11, 15)) == "standard"
    assert kubernetes_support("1.99", date(2026, 11, 15)) == "unknown"
    for row in kubernetes_versions():
        assert row.released < row.standard_until < row.extended_until


def test_the_default_set_runs_a_kubernetes_in_standard_support():
    pinned = version_set()
    assert kubernetes_support(str(pinned.kubernetes), date.fromisoformat(pinned.date)) == "standard"


def test_a_modern_p5_needs_little():
    block = environment(instance("p5.48xlarge"), version_set().versions())
    assert {v.name: v.value for v in block} == {"FI_EFA_USE_HUGE_PAGE": "0", "NCCL_SOCKET_IFNAME": "en"}


def test_an_old_p4d_needs_the_old_block():
    old = versions(ofi_nccl="1.5.0", kernel="5.10", efa="1.28.0", nccl="2.19.3")
    block = {v.name: v.value for v in environment(instance("p4d.24xlarge"), old)}
    assert block == {
        "FI_EFA_USE_HUGE_PAGE": "0",
        "FI_PROVIDER": "efa",
        "NCCL_PROTO": "simple",
        "FI_EFA_USE_DEVICE_RDMA": "1",
        "FI_EFA_FORK_SAFE": "1",
        "FI_EFA_SET_CUDA_SYNC_MEMOPS": "0",
        "NCCL_SOCKET_IFNAME": "en",
    }


def test_nothing_is_set_on_a_guess():
    assert {v.name for v in environment(instance("p4d.24xlarge"), {})} == {"FI_EFA_USE_HUGE_PAGE", "NCCL_SOCKET_IFNAME"}


def test_g5_copies_through_host_memory_and_small_ones_have_no_efa():
    assert [v.name for v in environment(instance("g5.xlarge"), {})] == ["NCCL_SHM_USE_CUDA_MEMCPY"]
    assert environment(instance("m5.large"), {}) == ()


@pytest.mark.parametrize(
    ("variable", "value", "installed", "right"),
    [
        ("FI_PROVIDER", "efa", {"ofi_nccl": "1.16.3"}, False),
        ("FI_PROVIDER", "efa", {"ofi_nccl": "1.5"}, True),
        ("FI_PROVIDER", "efa", {}, None),
        ("FI_EFA_USE_DEVICE_RDMA", "1", {"ofi_nccl": "1.6.0"}, True),
        ("FI_EFA_USE_DEVICE_RDMA", "1", {"ofi_nccl": "1.7.0"}, False),
        ("FI_EFA_FORK_SAFE", "1", {"kernel": "6.8.0-1021-aws"}, False),
        ("FI_EFA_SET_CUDA_SYNC_MEMOPS", "0", {"efa": "1.28", "nccl": "2.19"}, True),
        ("FI_EFA_SET_CUDA_SYNC_MEMOPS", "0", {"efa": "1.30"}, False),
        ("FI_EFA_SET_CUDA_SYNC_MEMOPS", "0", {"nccl": "2.18"}, False),
        ("RDMAV_FORK_SAFE", "1", {}, False),
        ("NCCL_DEBUG", "info", {}, False),
        ("NCCL_ASYNC_ERROR_HANDLING", "1", {"torch": "2.1"}, True),
        ("NCCL_ASYNC_ERROR_HANDLING", "1", {"torch": "2.5"}, False),
    ],
)
def test_whether_a_variable_may_stand(variable, value, installed, right):
    rule = rules_for(variable, value)[0]
    assert rule.is_right(versions(**installed)) is right
    if right is False:
        assert rule.complaint
        assert rule.level


def test_values_without_a_finding():
    assert rules_for("NCCL_DEBUG", "WARN") == ()
    assert rules_for("FI_PROVIDER", "verbs") == ()
    assert rules_for("PATH", "/bin") == ()


def test_every_rule_has_a_known_verdict():
    assert {rule.verdict for rule in env_rules()} == {"set", "allow", "debug", "never", "noise", "measure"}
    for rule in env_rules():
        assert rule.why
        assert rule.fix
        assert rule.value or rule.verdict != "set"
