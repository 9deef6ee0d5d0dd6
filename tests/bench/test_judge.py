"""Ceilings, floors and verdicts: physics is never exceeded, and published runs get their authors' verdict."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

from trainwright.catalog.instances import find_instance, instances
from trainwright.catalog.networks import allreduce_ceiling_gb_s
from trainwright.predict import collective_judge
from trainwright.predict.collective_judge import Efficiency, Point, efficiency, evidence, judge, judge_rows, predicted
from trainwright.predict.collective_limits import ceiling, wires_of
from trainwright.predict.hardware import cluster_of

OPS = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "reduce",
    "send_recv",
    "gather",
    "scatter",
)
EVIDENCE = Path(__file__).parents[2] / "src/trainwright/predict/collective_evidence.csv"


def curves() -> dict[tuple[str, str, str, int], list[Point]]:
    """The shipped evidence as (source, op, instance, nodes) -> curve."""
    lines = [line for line in EVIDENCE.read_text().splitlines() if not line.startswith("#")]
    by_key: dict[tuple[str, str, str, int], list[Point]] = {}
    for row in csv.DictReader(lines):
        key = (row["source"], row["op"], row["instance"], int(row["nodes"]))
        by_key.setdefault(key, []).append(Point(row["op"], int(row["bytes"]), float(row["busbw_gb_s"])))
    return by_key


def test_the_ceiling_of_two_p5_is_the_one_worked_out_by_hand() -> None:
    limit = ceiling("all_reduce", wires_of(find_instance("p5.48xlarge"), 2))
    assert limit.busbw == pytest.approx(750.0)
    assert any("400 GB/s one way" in line for line in limit.derivation)


@pytest.mark.parametrize("nodes", [1, 2, 16])
def test_all_reduce_ceilings_agree_with_the_catalog(nodes: int) -> None:
    for name in ("p4d.24xlarge", "p5.48xlarge", "p5en.48xlarge", "p6-b200.48xlarge"):
        kind = find_instance(name)
        # Across nodes without in-switch reduction the network's share of each GPU adds to its links.
        assert ceiling("all_reduce", wires_of(kind, nodes)).busbw >= allreduce_ceiling_gb_s(kind, nodes) - 1e-6


def test_no_floor_and_no_prediction_is_above_its_ceiling() -> None:
    """For every kind of GPU node in the catalog, every collective, 1 to 64 nodes and 1 MiB to 16 GiB."""
    kinds = {(kind.accelerator, kind.accelerator_count, kind.network_gbps): kind for kind in instances() if kind.is_gpu}
    for kind in kinds.values():
        for nodes in (1, 2, 5, 64):
            wires = wires_of(kind, nodes)
            for op in OPS:
                limit = ceiling(op, wires)
                for power in (20, 27, 34) if limit else ():
                    reached = efficiency(op, 2**power, limit.busbw, wires, cluster_of(kind, nodes))
                    assert reached is None or reached.fraction <= 1
                    assert (predicted(op, 2**power, wires, cluster_of(kind, nodes)) or 0) <= limit.busbw


def test_an_efficiency_above_one_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="efficiency"):
        Efficiency(1.01, "a typing error")


def test_no_published_run_beats_physics() -> None:
    assert all(0 < row.fraction < 1 for row in evidence())


@pytest.mark.parametrize(
    ("key", "points"), curves().items(), ids=lambda v: "-".join(map(str, v[1:])) if v and isinstance(v, tuple) else ""
)
def test_published_curves_that_their_authors_call_good_pass(
    key: tuple[str, str, str, int], points: list[Point], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the whole repository that published it left out of the evidence, so that no curve makes its own floor."""
    source, op, name, nodes = key
    others = tuple(row for row in evidence() if row.source.partition("@")[0] != source.partition("@")[0])
    assert len(others) < len(evidence())
    monkeypatch.setattr(collective_judge, "evidence", lambda: others)
    kind = find_instance(name)
    verdict = judge(op, points, wires_of(kind, nodes), kind)
    assert verdict.status == "pass", verdict.reason


@pytest.mark.parametrize(("nodes", "busbw"), [(2, 57.0), (3, 31.77), (4, 29.61)])
def test_the_p4d_runs_their_author_complains_about_fail(nodes: int, busbw: float) -> None:
    """NVIDIA/nccl issue 527: all-reduce of 1 GiB on p4d; the same author's single node, 230.77, is healthy."""
    rows = [Point("all_reduce", 2**30, busbw)]
    assert judge_rows(rows, 8 * nodes, nodes, instance="p4d.24xlarge")[0].status == "fail"
    one = judge_rows([Point("all_reduce", 2**30, 230.77)], 8, 1, instance="p4d.24xlarge")[0]
    assert one.status == "pass"


def test_a_result_above_the_ceiling_is_a_wrong_measurement() -> None:
    verdict = judge_rows([Point("all_reduce", 2**30, 800.0)], 16, 2, instance="p5.48xlarge")[0]
    assert verdict.status == "fail"
    assert "above the ceiling" in verdict.reason


def test_without_known_hardware_there_is_no_verdict() -> None:
    verdict = judge_rows([Point("all_reduce", 2**30, 94.15)], 32, 4)[0]
    assert verdict.status == "skip"


def test_a_network_of_known_rate_is_judged_too() -> None:
    good, bad = (judge_rows([Point("all_gather", 2**26, rate)], 4, 4, gbps=10)[0] for rate in (1.1, 0.2))
    assert (good.status, bad.status) == ("pass", "fail")
    assert good.points[0].ceiling == pytest.approx(1.25)


def test_a_rail_has_its_share_of_the_cards() -> None:
    """Eight communicators of one rank per node run at once: each is given an eighth of the node's cards."""
    whole, rail = (wires_of(find_instance("p5.48xlarge"), 4, per, groups) for per, groups in ((8, 1), (1, 8)))
    assert rail.network == pytest.approx(whole.network / 8)
    assert ceiling("all_gather", rail).busbw == pytest.approx(50.0)


def test_floors_grow_with_size() -> None:
    kind = find_instance("p5.48xlarge")
    rows = [Point("all_reduce", 2**power, 1.0) for power in range(20, 35)]
    floors = [point.floor for point in judge("all_reduce", rows, wires_of(kind, 2), kind).points]
    assert all(math.isfinite(floor) and floor > 0 for floor in floors)
    assert floors[-1] > floors[0]
