"""The predictor against published measurements: the goals of the issue, as thresholds that a worse model would miss."""

from __future__ import annotations

import importlib.util
import math
import sys
from collections import defaultdict
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from trainwright.predict.constants import constants
from trainwright.predict.published.rows import measured, setup_of

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "predict_accuracy.py"


@pytest.fixture(scope="module")
def accuracy() -> ModuleType:
    spec = importlib.util.spec_from_file_location("predict_accuracy", BENCHMARK)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["predict_accuracy"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def scored(accuracy: ModuleType) -> tuple[list, np.ndarray]:
    points = accuracy.points()
    return points, accuracy.errors(points, constants())


def test_the_page_of_constants_is_current(accuracy):
    page = BENCHMARK.parents[1] / "docs" / "predict" / "constants.md"
    assert page.read_text(encoding="utf-8") == accuracy.constants_page()


def size(log: np.ndarray) -> np.ndarray:
    return np.abs(np.expm1(log))


def test_training_rows_are_within_the_goals(scored):
    _, log = scored
    assert len(log) > 550
    assert size(log).mean() <= 0.075
    assert np.median(size(log)) <= 0.06
    assert np.percentile(size(log), 90) <= 0.15
    assert abs(log.mean()) <= 0.02  # no bias as a whole


def test_every_large_group_beats_half_the_naive_baseline(accuracy, scored):
    points, log = scored
    floor = size(accuracy.naive(points, lambda p: p.group))
    groups = defaultdict(list)
    for index, point in enumerate(points):
        groups[point.group].append(index)
    for group, indices in groups.items():
        if len(indices) >= 10:
            assert size(log[indices]).mean() <= 0.5 * floor[indices].mean(), group


def test_korthikanti_points_beat_calculon(scored):
    points, log = scored
    chosen = [e for p, e in zip(points, log, strict=True) if p.row["id"].startswith("korth")]
    assert len(chosen) == 6
    assert size(np.array(chosen)).mean() <= 0.0365


def test_sweeps_are_ranked_as_published(accuracy, scored):
    ranks = accuracy.sweeps(*scored)
    assert len(ranks) >= 15
    assert np.mean(list(ranks.values())) >= 0.9


def test_the_80_percent_interval_covers_about_80_percent_of_the_rows(accuracy, scored):
    points, _ = scored
    inside = 0
    for point in points:
        made, rate, took = accuracy.predicted(point, constants())
        low, high = accuracy.interval(rate, made, took)
        assert low < rate < high
        inside += low <= point.truth <= high
    assert 0.76 <= inside / len(points) <= 0.90


def test_nine_in_ten_dense_rows_are_covered(accuracy):
    dense = [
        row
        for row in accuracy.read("published_training.csv")
        if measured(row) and "quality=C" not in row["notes"] and not is_moe(row)
    ]
    covered = sum(setup_of(row, constants()).setup is not None for row in dense)
    assert covered / len(dense) >= 0.9


def is_moe(row: dict[str, str]) -> bool:
    names = ("moe", "deepseek", "oss", "_a3b", "_a22b", "kimi", "nemotron_3", "nemotron v3", "maverick", "grok")
    return any(name in row["model"].lower() for name in names) or row["ep"] not in ("", "1")


def test_collectives_are_within_the_goals(accuracy):
    from trainwright.predict.published.rows_collectives import answer_collective

    log = []
    for row in accuracy.read("published_collectives.csv"):
        made = answer_collective(row)
        if made["covered"] and row["busbw_gbps"] and row["bytes"] and "quality=C" not in row["notes"]:
            log.append(math.log(made["busbw_gb_s"] / float(row["busbw_gbps"])))
    assert len(log) > 200
    assert np.median(size(np.array(log))) <= 0.10
    assert np.percentile(size(np.array(log)), 90) <= 0.30


def test_memory_is_near_what_was_published(accuracy):
    from trainwright.predict.memory import memory

    log = []
    for row in accuracy.read("published_training.csv"):
        made = setup_of(row, constants()).setup
        if made is not None and row["mem_gib_per_gpu"] and "quality=C" not in row["notes"]:
            log.append(math.log(memory(made, constants()).gib / float(row["mem_gib_per_gpu"])))
    assert len(log) > 60
    assert np.median(size(np.array(log))) <= 0.08
    assert size(np.array(log)).mean() <= 0.12


@pytest.mark.slow
def test_a_source_left_out_is_predicted_within_the_goals(accuracy):
    points = accuracy.points()
    log = np.zeros(len(points))
    for group in sorted({p.group for p in points}):
        held = np.array([p.group == group for p in points])
        best = accuracy.fit([p for p in points if p.group != group], rounds=3)
        log[held] = accuracy.errors([p for p in points if p.group == group], best)
    assert size(log).mean() <= 0.10
    assert np.median(size(log)) <= 0.065
    assert np.percentile(size(log), 90) <= 0.22
