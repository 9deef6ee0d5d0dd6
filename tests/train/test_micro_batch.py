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

GIB = 2**30


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


@pytest.fixture
def gpu(monkeypatch):
    """A GPU with 100 GiB free, whose peaks a test gives; the sizes that were measured."""
    measured: list[int] = []

    def gives(peaks):
        def peak(engine, samples, size):
            measured.append(size)
            return peaks[size]

        monkeypatch.setattr(micro_batch, "peak_memory", peak)
        return measured

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (100 * GIB, 140 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    return gives


def choice(offload=None):
    engine = SimpleNamespace(layout=SimpleNamespace(sharded=True), params={}, offload=offload)
    return measured_choice(engine, None, 8, World(0, 1, 0, torch.device("cuda")))


@pytest.mark.parametrize(
    ("peaks", "size", "measured"),
    [
        ({1: 20, 2: 25}, 8, [1, 2]),  # all fit, by the first two
        ({1: 20, 2: 32, 4: 50}, 8, [1, 2, 4]),  # 106 by the first two, 88 by the last two
        ({1: 20, 2: 32, 4: 60}, 4, [1, 2, 4]),
        ({1: 20, 2: 36, 4: 95}, 2, [1, 2, 4]),  # more than it should need: 2 was seen to fit
        ({1: 80, 2: 100}, 1, [1, 2]),
    ],
)
def test_a_choice_below_the_whole_share_is_measured_and_asked_again(gpu, peaks, size, measured):
    seen = gpu({count: (gib * GIB, 0) for count, gib in peaks.items()})
    chosen, facts = choice()
    assert (chosen, seen) == (size, measured)
    assert facts["limit"] == 90
    assert facts["samples_1"] == peaks[1]


def test_host_memory_limits_the_choice_of_an_offloading_run(gpu, monkeypatch):
    """The GPU has room for 8 samples, the host for the activations of 2."""
    gpu({1: (10 * GIB, 4 * GIB), 2: (11 * GIB, 8 * GIB)})
    for host, size in ((100 * GIB, 8), (11 * GIB, 2)):
        monkeypatch.setattr(micro_batch, "available_host_memory", lambda host=host: host)
        chosen, facts = choice(offload=object())
        assert chosen == size
        assert facts["host_limit"] == pytest.approx(0.8 * host / GIB)


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
