"""The micro-batch that is chosen by memory: the largest that fits, the same after a resume; 1 on a CPU."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from single import corpus, run, settings

from trainwright.train import micro_batch
from trainwright.train.micro_batch import (
    available_host_memory,
    choose_micro_batch,
    earlier_choice,
    largest_fit,
    measured_choice,
)
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


def test_host_memory_limits_the_choice_of_an_offloading_run(monkeypatch):
    """The GPU has room for 8 samples, the host for the activations of 2."""
    gib = 2**30
    peaks = {1: (10 * gib, 4 * gib), 2: (11 * gib, 8 * gib)}
    monkeypatch.setattr(micro_batch, "peak_memory", lambda engine, samples, size: peaks[size])
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (100 * gib, 140 * gib))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    engine = SimpleNamespace(layout=SimpleNamespace(sharded=True), params={}, offload=object())
    world = World(0, 1, 0, torch.device("cuda"))
    for host, size in ((100 * gib, 8), (11 * gib, 2)):
        monkeypatch.setattr(micro_batch, "available_host_memory", lambda host=host: host)
        chosen, facts = measured_choice(engine, None, 8, world)
        assert chosen == size
        assert facts["host_limit"] == pytest.approx(0.8 * host / gib)


def test_available_host_memory_is_read():
    assert 0 < available_host_memory() < 2**50


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
