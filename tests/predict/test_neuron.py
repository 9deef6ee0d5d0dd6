"""Trainium: one rank per NeuronCore. The published runs scatter by a factor of two, so the interval is wide."""

import csv
import math
import statistics
from pathlib import Path

import pytest

from trainwright.predict import PredictRequest, predict
from trainwright.predict.constants import constants
from trainwright.predict.hardware import cluster, device
from trainwright.predict.published.rows import answer

DATA = Path(__file__).parents[2] / "benchmarks" / "data" / "published_training.csv"


def rows() -> list[dict[str, str]]:
    with DATA.open(encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["id"].startswith("neuron")]


def test_a_rank_has_one_core_of_the_chip():
    core = device("trainium1")
    assert (core.ranks, core.bf16, core.memory) == (2, 95e12, 16 * 2**30)
    machines = cluster("trn1.32xlarge", 4)
    assert (machines.gpus, machines.per_node, machines.nodes) == (128, 32, 4)


def test_the_published_runs_are_predicted_by_chip():
    answers = [(answer(row, constants()), float(row["tokens_per_s_per_gpu"])) for row in rows()]
    known = [(said, truth) for said, truth in answers if said["covered"]]
    assert len(known) >= 9
    assert statistics.median(abs(said["tokens_per_s_per_gpu"] / truth - 1) for said, truth in known) < 0.2
    assert sum(said["low"] <= truth <= said["high"] for said, truth in known) >= 0.7 * len(known)


def test_llama_70b_on_sixteen_nodes_is_near_what_its_authors_measured():
    """Not among the fitted rows: 3.94 to 4.03 sequences/s on 16 trn1.32xlarge with TP 32, PP 8, DP 2."""
    plan = "shard=2,tp=32,pp=8"
    p = predict(PredictRequest("llama3-70b", "trn1.32xlarge", 16, plan, sequence=8192, sequences=1024, micro_batch=1))
    assert p.trainer == "neuronx"
    assert p.tokens_per_s / 8192 == pytest.approx(3.98, rel=0.3)
    assert p.fits == "yes"
    assert math.log(p.high / p.low) > 0.8
    assert p.cost is not None
