"""The picture of a step draws the schedule that runs: the trainer's own actions, each after what it waits for."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

from trainwright.predict import PredictRequest, predict
from trainwright.predict.timeline import bars, played, svg
from trainwright.train.parallel.pipeline_schedule import StageTime, bubble

REQUEST = PredictRequest(
    "llama3-70b", "p5.48xlarge", 4, "tp=8,pp=4", sequence=8192, sequences=16, micro_batch=1, recompute="none",
)  # fmt: skip


@pytest.mark.parametrize(("chunks", "zero_bubble"), [(1, False), (2, False), (1, True), (2, True)])
def test_the_drawn_step_has_the_predicted_bubble(chunks, zero_bubble):
    stage = StageTime(1.0, 1.1, 0.9)
    drawn = played(4, chunks, 16, stage, zero_bubble)
    end = max(stop for _, _, stop, _ in drawn)
    assert end - 16 * chunks * stage.total == pytest.approx(bubble(4, chunks, 16, stage, zero_bubble), rel=0.02)
    for lane in range(4):
        mine = sorted(bar for bar in drawn if bar[0] == lane)
        assert all(a[2] <= b[1] + 1e-9 for a, b in pairwise(mine))  # one thing at a time


def test_a_zero_bubble_job_is_drawn_as_one():
    plain, zero = predict(REQUEST), predict(replace(REQUEST, pipeline_schedule="zero-bubble"))
    assert Counter(kind for *_, kind in bars(plain))["weights"] == 0
    kinds = Counter(kind for *_, kind in bars(zero))
    assert kinds["forward"] == kinds["backward"] == kinds["weights"] == 4 * 16
    assert "weight gradients" in svg(zero)
    assert "weight gradients" not in svg(plain)


def test_an_interleaved_job_is_drawn_as_one():
    drawn = bars(predict(replace(REQUEST, plan="tp=8,pp=4,virtual_stages=2")))
    assert Counter(kind for *_, kind in drawn)["forward"] == 4 * 16 * 2
