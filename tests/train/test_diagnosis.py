"""What a hang leaves behind: the last collectives of every rank, as torch's own reader takes them; and garbage that is
collected at fixed steps only."""

import gc
import os
import pickle
from pathlib import Path

import torch
import torch.distributed as dist
from ranks import run_ranks

from trainwright.train.diagnosis import COLLECT_EVERY, GarbageCollector, dump_collectives, record_collectives


def collectives(folder: str) -> str:
    for _ in range(3):
        dist.all_reduce(torch.ones(5))
    return str(dump_collectives(Path(folder), dist.get_rank()))


def test_the_last_collectives_of_every_rank_are_written_without_warnings(tmp_path, capfd):
    settings: dict[str, str] = {}
    record_collectives(settings)
    paths = run_ranks(collectives, 2, str(tmp_path), **settings)
    assert "deprecated" not in "".join(capfd.readouterr())
    assert len(set(paths)) == 2
    for path in paths:
        entries = pickle.loads(Path(path).read_bytes())["entries"]
        sums = [entry for entry in entries if "all" in entry["profiling_name"]]
        assert len(sums) >= 3
        assert sums[-1]["input_sizes"] == [[5]]


def test_a_setting_of_the_user_is_kept():
    settings = {"TORCH_FR_BUFFER_SIZE": "7"}
    record_collectives(settings)
    assert settings == {"TORCH_FR_BUFFER_SIZE": "7"}
    former = {"TORCH_NCCL_TRACE_BUFFER_SIZE": "7"}
    record_collectives(former)
    assert former == {"TORCH_NCCL_TRACE_BUFFER_SIZE": "7"}
    assert "TORCH_FR_BUFFER_SIZE" not in os.environ


def test_garbage_waits_for_its_step():
    class Cycle:
        alive = 0

        def __init__(self):
            self.me = self
            Cycle.alive += 1

        def __del__(self):
            Cycle.alive -= 1

    collector = GarbageCollector()
    with collector.controlled():
        assert not gc.isenabled()
        Cycle()
        for _ in range(COLLECT_EVERY - 1):
            collector.step()
        assert Cycle.alive == 1
        collector.step()
        assert Cycle.alive == 0
    assert gc.isenabled()
