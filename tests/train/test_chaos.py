"""Chaos: ranks are killed at random moments, again and again. Every restart finds a whole checkpoint, every sample is
seen once, and the weights at the end are, to the bit, those of a run that nobody disturbed."""

import random
from dataclasses import replace

import pytest
from chaos import CASES, one_life, settings, survive


def test_three_kills(tmp_path):
    survive(tmp_path, CASES[0], kills=3, steps=14, seed=1)


def test_an_error_is_not_taken_for_a_kill(tmp_path):
    config = replace(settings(CASES[1], "builtin:stdlib", tmp_path, 2), model="no-such-model")
    with pytest.raises(AssertionError, match=r"nobody was killed.*no-such-model"):
        one_life(config, 1, "mid-remove", random.Random(1))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_fifty_kills(tmp_path):
    deaths = survive(tmp_path, CASES[0], kills=50, steps=140, seed=20)
    print(f"{len(deaths)} deaths: {deaths}")
    assert len(deaths) >= 50


@pytest.mark.slow
@pytest.mark.parametrize("case", [CASES[2], CASES[5], CASES[17]], ids=str)
def test_kills_of_other_families_and_plans(case, tmp_path):
    """The rest is in benchmarks/kills.py."""
    survive(tmp_path, case, kills=4, steps=16, seed=3)


@pytest.mark.slow
@pytest.mark.parametrize("case", [CASES[15], CASES[19]], ids=str)
def test_kills_of_pipelines(case, tmp_path):
    """A decoder under the zero-bubble schedule, and an encoder."""
    survive(tmp_path, case, kills=2, steps=8, seed=4)
