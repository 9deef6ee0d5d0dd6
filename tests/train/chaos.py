"""A run whose ranks are killed at random moments, again and again, beside one that nobody disturbs. Used by
test_chaos.py and by benchmarks/kills.py."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import random
import resource
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from ranks import run_ranks, start_ranks
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load

from trainwright.train.checkpoint.stores import FolderStore, step_name
from trainwright.train.config import TrainConfig
from trainwright.train.data.prepare import prepare
from trainwright.train.loop import train
from trainwright.train.metrics import read_lines

BATCH = 4
LIMIT = 900.0  # seconds of a run that nobody disturbs, on a busy machine


@dataclass(frozen=True)
class Case:
    """A family under a plan."""

    model: str
    plan: str = ""
    world: int = 2
    data: str = ""  # a built-in corpus; empty: a small text
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        words = [self.options[name] for name in ("objective", "pipeline_schedule") if name in self.options]
        words += ["LoRA"] if "lora_rank" in self.options else []
        return " ".join([self.model.removesuffix("-debug"), *words, self.plan or "single"])


LORA = {"objective": "sft", "lora_rank": 4, "base": "random"}
DINO = {"local_crops": 2, "prototypes": 64}
CASES = [
    Case("gpt2-124m-debug", "shard=2"),
    Case("llama3.2-1b-debug", world=1),
    Case("llama3.1-8b-debug", "tp=2"),
    Case("qwen3-8b-debug", "pp=2"),
    Case("gemma2-2b-debug", "cp=2"),
    Case("mixtral-8x7b-debug", "shard=2,ep=2"),
    Case("deepseek-v3-debug", "replicate=2"),
    Case("gpt-oss-20b-debug", "shard=2"),
    Case("roberta-base-debug", "shard=2", options={"objective": "mlm"}),
    Case("esm2-8m-debug", world=1, data="builtin:proteins"),
    Case("t5-v1.1-small-debug", world=1),
    Case("vit-s-16-debug", "replicate=2", data="builtin:textures", options={"objective": "dino", **DINO}),
    Case("vit-s-16-debug", world=1, data="builtin:textures", options={"objective": "classify"}),
    Case("llama3.2-1b-debug", world=1, data="builtin:chats", options={**LORA, "sequence": 64}),
    Case("llama3.2-1b-debug", "shard=2", data="builtin:pairs",
         options={"objective": "dpo", "base": "random", "sequence": 64}),
    Case("llama3.2-1b-debug", "pp=2", options={"pipeline_schedule": "zero-bubble"}),
    Case("t5-v1.1-small-debug", "tp=2"),
    Case("vit-s-16-debug", "tp=2", data="builtin:textures", options={"objective": "dino", **DINO}),
    Case("vit-s-16-debug", "tp=2", data="builtin:textures", options={"objective": "classify"}),
    Case("roberta-base-debug", "pp=2", options={"objective": "mlm"}),
    Case("bert-base-debug", "pp=2", options={"objective": "mlm", "pipeline_schedule": "zero-bubble"}),
    Case("esm2-8m-debug", "pp=2", data="builtin:proteins"),
]  # fmt: skip
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


def settings(case: Case, data: str, folder: Path, steps: int) -> TrainConfig:
    values = {
        "model": case.model, "parallel": case.plan, "data": (data,), "steps": steps, "folder": str(folder),
        "sequence": 16, "batch": BATCH, "checkpoint_every": "2", "keep_last": 2, "log_samples": True, "watchdog": 120.0,
        "log_every": 1000, "device": "cpu", **case.options,
    }  # fmt: skip
    return TrainConfig(**values)


def kill(process: Any) -> None:
    with contextlib.suppress(ProcessLookupError):  # it may just have ended by itself
        os.kill(process.pid, signal.SIGKILL)


def one_life(config: TrainConfig, world: int, moment: str, chance: random.Random) -> bool:
    """Start every rank and let one die as requested; True when the run came to its end instead."""
    victim = chance.randrange(world)
    count = chance.randint(1, MOMENTS[moment])
    rank = 0 if moment in ("before-rename", "after-rename", "mid-remove") else victim
    fault = {"TRAINWRIGHT_FAULT": f"{rank}:{moment}:{count}"} if moment not in ("disk full", "any time") else {}
    processes, answers, meeting = start_ranks(life, world, config, moment == "disk full", **fault)
    try:
        if moment == "any time":
            processes[victim].join(chance.uniform(0.1, 2.0))
            if processes[victim].is_alive():
                kill(processes[victim])
        deadline = time.monotonic() + 240
        while all(p.is_alive() for p in processes) and time.monotonic() < deadline:
            processes[victim].join(0.05)
        struck = end_others(processes)
        results = received(answers, sum(p.exitcode == 0 for p in processes))
        done = [value for value, _ in results] == [0] * world
        # An error or a hang that nobody caused is a defect of the trainer, not one more kill.
        assert done or struck or moment == "disk full", f"nobody was killed ({moment}), yet it failed: {results}"
        return done
    finally:
        for process in processes:
            if process.is_alive():
                kill(process)
        meeting.unlink(missing_ok=True)


def end_others(processes: list[Any]) -> bool:
    """End the ranks that are left when one is gone, as torchrun does; whether one was killed before that. A good end of
    all takes but a moment longer."""
    ended = []
    for process in processes:
        process.join(5 if all(p.exitcode in (0, None) for p in processes) else 0.2)
        if process.is_alive():
            ended.append(process)
            kill(process)
            process.join()
    return any(p.exitcode == -signal.SIGKILL for p in processes if p not in ended)


def received(answers: Any, count: int) -> list[tuple[Any, str | None]]:
    """What `count` ranks that ended by themselves gave: a value, or an error."""
    results = []
    with contextlib.suppress(queue.Empty):
        for _ in range(count):
            results.append(answers.get(timeout=10)[1:])
    return results


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


def corpus(folder: Path) -> str:
    texts = folder / "a.jsonl"
    texts.write_text("".join(json.dumps({"text": f"line {i} " * (3 + i % 9)}) + "\n" for i in range(400)), "utf-8")
    prepare([str(texts)], folder / "data", workers=1, quiet=True)
    return str(folder / "data")


def survive(
    folder: Path, case: Case, kills: int, steps: int, seed: int, goes_on: Callable[[], bool] = lambda: True
) -> list[str]:
    """Train to the end through that many kills (fewer, where the end comes first or killing does not go on) and
    compare; what killed it."""
    chance = random.Random(seed)
    data, good = case.data or corpus(folder), [0] * case.world
    straight, shaken = folder / "straight", folder / "shaken"
    assert run_ranks(life, case.world, settings(case, data, straight, steps), False, limit=LIMIT) == good

    config, deaths, newest = settings(case, data, shaken, steps), [], 0
    store = FolderStore(shaken / "checkpoints")
    while True:
        moment = chance.choice(list(MOMENTS))
        if len(deaths) < kills and goes_on():
            done = one_life(config, case.world, moment, chance)
        else:
            done = True
            assert run_ranks(life, case.world, config, False, limit=LIMIT) == good
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
