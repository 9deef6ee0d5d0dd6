"""Chaos: ranks are killed at random moments, again and again. Every restart finds a whole checkpoint, every sample is
seen once, and the weights at the end are, to the bit, those of a run that nobody disturbed."""

import json
import os
import random
import resource
import signal
import time
from pathlib import Path

import pytest
import torch
from ranks import run_ranks, start_ranks
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load

from trainwright.train.checkpoint.stores import FolderStore, step_name
from trainwright.train.config import TrainConfig
from trainwright.train.data.prepare import prepare
from trainwright.train.loop import train
from trainwright.train.metrics import read_lines

WORLD = 2
BATCH = 4
# How a rank dies. `count` is drawn from 1..most, so that the same moment is met early and late in a start.
MOMENTS = {
    "mid-step": 12,
    "staged": 4,
    "mid-save": 4,
    "written": 4,
    "before-rename": 4,
    "after-rename": 4,
    "mid-remove": 3,
    "disk full": 1,
    "any time": 1,
}


def life(config: TrainConfig, full: bool) -> int:
    """One start of one rank; `full` lets no file grow past a few kilobytes, as a full disk would."""
    if full:
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
    return train(config)


def settings(data: str, folder: Path, steps: int) -> TrainConfig:
    return TrainConfig(
        model="gpt2-124m-debug", data=(data,), steps=steps, folder=str(folder), sequence=16, batch=BATCH,
        checkpoint_every="2", keep_last=2, log_samples=True, watchdog=30.0, log_every=1000,
    )  # fmt: skip


def one_life(config: TrainConfig, moment: str, chance: random.Random) -> bool:
    """Start every rank and let one die as requested; True when the run came to its end instead."""
    victim = chance.randrange(WORLD)
    count = chance.randint(1, MOMENTS[moment])
    rank = 0 if moment in ("before-rename", "after-rename", "mid-remove") else victim
    fault = {"TRAINWRIGHT_FAULT": f"{rank}:{moment}:{count}"} if moment not in ("disk full", "any time") else {}
    processes, answers, meeting = start_ranks(life, WORLD, config, moment == "disk full", **fault)
    try:
        if moment == "any time":
            processes[victim].join(chance.uniform(0.1, 2.0))
            if processes[victim].is_alive():
                os.kill(processes[victim].pid, signal.SIGKILL)
        deadline = time.monotonic() + 60
        while all(p.is_alive() for p in processes) and time.monotonic() < deadline:
            processes[victim].join(0.05)
        # As torchrun does: when one rank is gone, the others are ended. A good end of all takes but a moment longer.
        for process in processes:
            process.join(5 if all(p.exitcode in (0, None) for p in processes) else 0.2)
            if process.is_alive():
                os.kill(process.pid, signal.SIGKILL)
                process.join()
        codes = [p.exitcode for p in processes]
        done = [answers.get(timeout=5)[1] for _ in range(WORLD)] if codes == [0] * WORLD else []
        return done == [0] * WORLD
    finally:
        meeting.unlink(missing_ok=True)


def final_weights(folder: Path, step: int) -> dict[str, torch.Tensor]:
    store = folder / "checkpoints" / step_name(step)
    reader = FileSystemReader(store)
    entries = reader.read_metadata().state_dict_metadata
    state = {name: torch.empty(e.size, dtype=e.properties.dtype) for name, e in entries.items()}
    load(state, storage_reader=reader, no_dist=True)
    return state


def seen_samples(folder: Path) -> dict[int, list[tuple[int, ...]]]:
    """The samples of each step as it was done for good: the last time counts."""
    steps: dict[int, dict[int, list]] = {}
    for path in folder.glob("samples-rank*.jsonl"):
        for row in read_lines(path):
            steps.setdefault(row["step"], {})[row["data_rank"]] = [tuple(s) for s in row["samples"]]
    return {step: [s for r in sorted(ranks) for s in ranks[r]] for step, ranks in sorted(steps.items())}


def survive(tmp_path: Path, kills: int, steps: int, seed: int) -> list[str]:
    chance = random.Random(seed)
    texts = tmp_path / "a.jsonl"
    texts.write_text("".join(json.dumps({"text": f"line {i} " * (3 + i % 9)}) + "\n" for i in range(400)), "utf-8")
    prepare([str(texts)], tmp_path / "data", workers=1, quiet=True)
    data = str(tmp_path / "data")
    straight, shaken = tmp_path / "straight", tmp_path / "shaken"
    assert run_ranks(life, WORLD, settings(data, straight, steps), False) == [0, 0]

    config, deaths, newest = settings(data, shaken, steps), [], 0
    store = FolderStore(shaken / "checkpoints")
    while True:
        kill = len(deaths) < kills
        moment = chance.choice(list(MOMENTS)) if kill else "any time"
        done = one_life(config, moment, chance) if kill else run_ranks(life, WORLD, config, False) == [0, 0]
        whole = store.complete_steps()
        assert not newest or (whole and whole[0] >= newest), f"after {deaths}: {whole}, but {newest} was whole before"
        newest = whole[0] if whole else 0
        if whole:
            assert all(store.digest(newest, file) == file.sha256 for file in store.manifest(newest).files)
        if done:
            break
        deaths.append(f"{moment}@{newest}")

    ours, theirs = final_weights(shaken, steps), final_weights(straight, steps)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    seen = seen_samples(shaken)
    assert seen == seen_samples(straight)
    everything = [s for step in seen.values() for s in step]
    assert len(everything) == len(set(everything)) == steps * BATCH
    return deaths


def test_three_kills(tmp_path):
    survive(tmp_path, kills=3, steps=14, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_fifty_kills(tmp_path):
    deaths = survive(tmp_path, kills=50, steps=140, seed=20)
    print(f"{len(deaths)} deaths: {deaths}")
    assert len(deaths) >= 50
