"""The micro-batch that is chosen by memory: the largest that fits, the same after a resume; 1 on a CPU."""

from dataclasses import replace

import pytest
import torch
from single import corpus, run, settings

from trainwright.train import micro_batch
from trainwright.train.micro_batch import choose_micro_batch, earlier_choice, largest_fit
from trainwright.train.world import World


@pytest.mark.parametrize(
    ("share", "limit", "size"), [(8, 100, 8), (8, 79, 4), (8, 30, 2), (8, 5, 1), (6, 59, 3), (7, 69, 1), (12, 110, 6)]
)
def test_the_largest_divisor_that_fits(share, limit, size):
    assert largest_fit(share, lambda samples: 10.0 * samples, limit) == size


def test_a_cpu_takes_one_sample_at_a_time(tmp_path):
    config = replace(settings(corpus(tmp_path), tmp_path / "run"), micro_batch=0, steps=1)
    _, trainer = run(config)
    assert trainer.config.micro_batch == 1
    assert not (tmp_path / "run" / micro_batch.FILE).exists()


class Plan:
    pp = 1


class Engine:
    plan, data_world = Plan(), 1


def test_the_choice_is_measured_once_and_kept_for_the_same_situation(tmp_path, monkeypatch):
    measured = []
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "H200")
    monkeypatch.setattr(
        micro_batch, "measured_choice", lambda *given: (measured.append(given) or 4, {"one_sample": 9.5})
    )
    config = replace(settings("data", tmp_path), micro_batch=0, batch=8)
    world = World(0, 1, 0, torch.device("cuda"))
    for _ in range(2):
        assert choose_micro_batch(config, Engine(), None, world, tmp_path) == 4
    assert len(measured) == 1
    assert choose_micro_batch(replace(config, micro_batch=2), Engine(), None, world, tmp_path) == 2
    assert choose_micro_batch(replace(config, sequence=64), Engine(), None, world, tmp_path) == 4
    assert len(measured) == 2, "another sequence is measured anew"
    assert earlier_choice(tmp_path / "nowhere", {}) == 0
