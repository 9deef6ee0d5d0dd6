"""Predictions for this machine's CPU: times add up, the probe is cached, ranks and pace have their effect."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwright.predict import local
from trainwright.predict.setup import Batch
from trainwright.train.models.shape import lookup
from trainwright.train.parallel.plan import ParallelPlan

pytest.importorskip("torch")
JOB = (lookup("llama3-8b-debug"), ParallelPlan(), Batch(64, 4, 1))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(local, "PROBE_SECONDS", 0.02)


def test_a_debug_model_is_predicted_from_a_probe(tmp_path: Path):
    prediction = local.predict_local(*JOB)
    assert prediction.tokens_per_step == 256
    assert prediction.step_time_s == pytest.approx(sum(prediction.parts.values()))
    assert list((tmp_path / "trainwright" / "probes").glob("*.json"))


def test_a_second_prediction_does_not_measure_again(monkeypatch: pytest.MonkeyPatch):
    first = local.predict_local(*JOB)
    monkeypatch.setattr(local, "measure", lambda *_: pytest.fail("measured again"))
    again = local.predict_local(*JOB)
    assert again.tokens_per_s == first.tokens_per_s


def test_replicas_sum_their_gradients_once_per_step():
    """Shards gather and scatter in every microbatch; replicas wait for one sum, however many microbatches there are."""
    shard, replicate = (local.exchange(10**6, 4, plan, 8, 1.0) for plan in (ParallelPlan(shard=2), ParallelPlan(2)))
    assert replicate < shard / 8
    assert replicate == local.exchange(10**6, 4, ParallelPlan(2), 1, 1.0)
    both = local.exchange(10**6, 4, ParallelPlan(replicate=2, shard=2), 8, 1.0)
    assert shard < both < shard + replicate + 4 * local.SUMS * local.GLOO_START


def test_ranks_exchange_gradients_and_share_the_optimizer():
    one, two = (local.predict_local(JOB[0], ParallelPlan(shard=n), Batch(64, 2, 2 // n)) for n in (1, 2))
    assert one.parts["gradients"] == 0
    assert two.parts["gradients"] > 0


def test_an_earlier_runs_pace_scales_the_prediction():
    plain = local.predict_local(*JOB)
    slowed = local.predict_local(*JOB, 0.5)
    assert slowed.tokens_per_s == pytest.approx(plain.tokens_per_s / 2)
