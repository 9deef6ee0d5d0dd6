"""EFA counters of recorded nodes, counters that vanish or wrap, and files that hold anything but a counter."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from recorded_files import DEVICES, counters_of, write_node

from trainwright.exporters.efa import EfaCollector
from trainwright.exporters.files import Tree
from trainwright.exporters.metric import Metric, exposition, gauge

CARDS = {"p4d.24xlarge": 4, "p5.48xlarge": 32, "p5en.48xlarge": 16, "p6-b200.48xlarge": 8}
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parsed(metrics: Iterable[Metric]) -> Samples:
    """The samples as Prometheus' own parser reads them."""
    families = list(text_string_to_metric_families(exposition(metrics)))
    samples = [sample for family in families for sample in family.samples]
    return {(s.name.removeprefix("trainwright_"), tuple(sorted(s.labels.items()))): s.value for s in samples}


def sample(samples: Samples, name: str, **labels: str) -> float | None:
    return samples.get((name, tuple(sorted(labels.items()))))


@pytest.mark.parametrize("instance", CARDS)
def test_every_counter_of_every_device_is_there(instance: str, tmp_path: Path) -> None:
    samples = parsed(EfaCollector(Tree(write_node(instance, tmp_path))).collect())
    assert sample(samples, "efa_pci_devices") == CARDS[instance]
    assert sum(value for (name, _), value in samples.items() if name == "efa_device_up") == CARDS[instance]
    for number, row in enumerate(counters_of(instance)):
        rows = {labels: value for (name, labels), value in samples.items() if name == f"efa_{row['counter']}_total"}
        assert sorted(rows.values()) == [1000 * (number + 1) + card for card in range(CARDS[instance])], row
        assert all(("port", "1") in labels for labels in rows) == (row["level"] == "port")
    assert {value for (name, _), value in samples.items() if name == "efa_port_rate_bytes_per_second"} == {12.5e9}
    assert not any("lifespan" in name for name, _ in samples)


def test_a_scrape_of_the_largest_node_is_quick(tmp_path: Path) -> None:
    collector = EfaCollector(Tree(write_node("p5.48xlarge", tmp_path)))
    times = []
    for _ in range(7):
        began = time.process_time()
        exposition(collector.collect())
        times.append(time.process_time() - began)
    assert min(times) < 0.05, times


def test_what_vanishes_and_what_wraps(tmp_path: Path) -> None:
    root = write_node("p4d.24xlarge", tmp_path)
    collector = EfaCollector(Tree(root))
    first, second, third, _ = sorted(path.name for path in (root / DEVICES).iterdir())
    counters = root / DEVICES / first / "ports/1/hw_counters"
    (counters / "tx_bytes").write_text(f"{2**64 - 1}\n")
    before = parsed(collector.collect())
    assert sample(before, "efa_tx_bytes_total", device=first, port="1") == pytest.approx(2**64)

    (counters / "tx_bytes").write_text("17\n")  # wrapped
    (counters / "rx_drops").unlink()  # another driver
    (root / DEVICES / second / "device/device").unlink()  # the card fell off the bus
    (root / DEVICES / third / "ports/1/state").write_text("1: DOWN\n")
    after = parsed(collector.collect())
    assert sample(after, "efa_tx_bytes_total", device=first, port="1") == 17
    assert sample(after, "efa_counter_resets_total", device=first) == 1
    assert sample(after, "efa_counter_resets_total", device=third) == 0
    assert sample(after, "efa_rx_drops_total", device=first, port="1") is None
    assert sample(after, "efa_device_up", device=second) == 0
    assert sample(after, "efa_device_up", device=first) == 1
    assert sample(after, "efa_tx_bytes_total", device=second, port="1") is None
    assert sample(after, "efa_port_active", device=third, port="1") == 0


def test_bad_files_cost_their_own_counter_only(tmp_path: Path) -> None:
    root = write_node("p4d.24xlarge", tmp_path)
    device = sorted(path.name for path in (root / DEVICES).iterdir())[0]
    counters = root / DEVICES / device / "ports/1/hw_counters"
    bad: dict[str, bytes] = {
        "tx_bytes": bytes(range(256)), "rx_bytes": b"9" * 5_000_000, "tx_pkts": b"-1\n", "rx_pkts": b"",
        "send_wrs": b"0x12\n",
    }  # fmt: skip
    for name, content in bad.items():
        (counters / name).write_bytes(content)
    for name in ("recv_wrs", "send_bytes", "recv_bytes", "rdma_read_wrs"):
        (counters / name).unlink()
    (counters / "recv_wrs").symlink_to("/nowhere/at/all")
    os.mkfifo(counters / "send_bytes")
    (counters / "recv_bytes").mkdir()
    (counters / "rdma_read_wrs").symlink_to("/proc/self/mem")  # readable, and its first read fails
    (counters / 'strange "name"\n').write_text("1\n")
    tree = Tree(root)
    samples = parsed(EfaCollector(tree).collect())
    mine = {name for name, labels in samples if ("device", device) in labels}
    gone = [*bad, "recv_wrs", "send_bytes", "recv_bytes", "rdma_read_wrs"]
    assert not mine & {f"efa_{name}_total" for name in gone}
    assert "efa_rdma_read_bytes_total" in mine
    assert tree.unreadable >= 7


@pytest.mark.skipif(os.geteuid() != 0, reason="root reads everything: the other user is played by a child process")
def test_a_file_closed_to_this_user(tmp_path: Path) -> None:
    root = write_node("p4d.24xlarge", tmp_path)
    closed = root / DEVICES / "rdmap16s27/ports/1/hw_counters/tx_bytes"
    closed.chmod(0)
    child = os.fork()
    if child == 0:
        os.chdir(root)  # from here the other user needs no right to the folders above
        os.setuid(65534)
        tree = Tree(Path("."))
        value = tree.number(f"/{closed.relative_to(root)}")
        beside = tree.number(f"/{closed.relative_to(root).with_name('rx_bytes')}")
        os._exit(0 if value is None and beside is not None and tree.unreadable == 1 else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_labels_of_any_kind_are_escaped() -> None:
    metric = gauge("x", 'back\\slash and\nnew line "quoted"')
    words = ['a"b', "back\\slash", "two\nlines", "ü", "\udcff", "x" * 5000]
    for number, word in enumerate(words):
        metric.add(number, label=word)
    metric.add(0, label="ü")  # twice
    metric.add(float("inf"), label="inf")
    metric.add(float("nan"), label="nan")
    samples = parsed([metric])
    assert [sample(samples, "x", label=word) for word in words[:4]] == [0, 1, 2, 3]
    assert sample(samples, "x", label="inf") == float("inf")
    assert len(samples) == 7
