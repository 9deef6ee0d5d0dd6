"""A run that falls behind its prediction says so once, with the likely cause; noise and one slow step say nothing."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from trainwright.train.expectation import WARM_UP, WINDOW, Behind, BehindWatch

TOKENS = 1000
ENOUGH = WARM_UP + 3 * WINDOW


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    facts = {
        "tokens_per_s": 1000.0,
        "low": 200.0,
        "high": 300.0,
        "gpus": 4,
        "step_time_s": 1.0,
        "goodput": {"effective": 1.0},
    }
    (tmp_path / "prediction.json").write_text(json.dumps(facts))
    return tmp_path


def line(step: int, step_s: float, **more: Any) -> dict[str, Any]:
    return {"step": step, "step_s": step_s, "tokens_per_s": TOKENS / step_s, "goodput": 1.0, **more}


def said(watch: BehindWatch, *rows: dict[str, Any]) -> list[Behind]:
    return [behind for row in rows if (behind := watch.take(row)) is not None]


@pytest.mark.parametrize(
    ("more", "cause", "words"),
    [
        ({"data_wait_s": 0.5}, "data wait", "waits 0.5 s of 1.6 s for data"),
        ({"checkpoint_stall_s": 0.4}, "checkpoint stall", "for checkpoints"),
        ({}, "slow step", "compute and communication take 1.6 s per step, predicted 1 s"),
    ],
)
def test_a_slow_run_says_so_once_with_its_cause(folder: Path, more: dict[str, Any], cause: str, words: str) -> None:
    rows = [line(step, 1.6, **more) for step in range(ENOUGH)]
    first, *rest = said(BehindWatch(folder), *rows)
    assert rest == []
    assert (first.cause, first.predicted, first.low) == (cause, 1000.0, 800.0)
    assert words in first.why
    assert first.measured == pytest.approx(625)
    assert said(BehindWatch(folder, [cause]), *rows) == []  # said before, in an earlier start


def test_a_straggler_or_a_slow_clock_is_named(folder: Path) -> None:
    rows = [line(step, 1.6) for step in range(ENOUGH)]
    (clock,) = said(BehindWatch(folder, clocks=lambda: "the clocks of GPU 3 are slowed"), *rows)
    assert clock.cause == "throttled clock"
    straggler = {"rank": 7, "host": "train-2", "cause": "compute", "message": "computes 1.9 times slower"}
    (folder / "timings.jsonl").write_text('{"stragglers": []}\n' + json.dumps({"stragglers": [straggler]}) + "\n")
    (slow,) = said(BehindWatch(folder), *rows)
    assert (slow.cause, slow.why) == ("straggler", "rank 7 on train-2 computes 1.9 times slower")


def test_restarts_are_a_cause_even_where_steps_are_fast(folder: Path) -> None:
    (folder / "events.jsonl").write_text('{"event": "start"}\n{"event": "start"}\n')
    (behind,) = said(BehindWatch(folder), *(line(step, 1.0, goodput=0.5) for step in range(ENOUGH)))
    assert (behind.cause, behind.measured) == ("restarts", 500)
    (folder / "events.jsonl").write_text('{"event": "start"}\n')
    assert said(BehindWatch(folder), *(line(step, 1.0, goodput=0.5) for step in range(ENOUGH))) == []


def test_noise_one_slow_step_a_warm_up_and_an_unpredicted_run_say_nothing(folder: Path) -> None:
    noise = random.Random(0)
    within = [line(step, noise.uniform(0.9, 1.2)) for step in range(10 * WINDOW)]
    assert said(BehindWatch(folder), *within) == []
    hiccup = [line(step, 60.0 if step == 50 else 1.0) for step in range(10 * WINDOW)]
    assert said(BehindWatch(folder), *hiccup) == []
    warm = [line(step, 30.0 if step < WARM_UP else 1.0) for step in range(10 * WINDOW)]
    assert said(BehindWatch(folder), *warm) == []
    (folder / "prediction.json").write_text('{"unavailable": "no such model"}')
    assert said(BehindWatch(folder), *(line(step, 9.0) for step in range(ENOUGH))) == []
