"""Runs of one process for tests of the loop: a small corpus, a configuration, and what can be read off afterwards."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import torch

from trainwright.train.config import TrainConfig
from trainwright.train.data.prepare import prepare
from trainwright.train.engine import Engine
from trainwright.train.loop import Trainer
from trainwright.train.metrics import read_lines
from trainwright.train.world import World

MODEL = "gpt2-124m-debug"


def corpus(folder: Path) -> str:
    path = folder / "a.jsonl"
    path.write_text("".join(json.dumps({"text": f"line {i} " * (3 + i % 9)}) + "\n" for i in range(400)), "utf-8")
    prepare([str(path)], folder / "data", workers=1, quiet=True)
    return str(folder / "data")


def settings(data: str, folder: Path) -> TrainConfig:
    return TrainConfig(
        model=MODEL, data=(data,), steps=8, folder=str(folder), sequence=32, batch=4, micro_batch=2, lr=1e-2,
        checkpoint_every="3", log_samples=True, watchdog=0,
    )  # fmt: skip


def start(config):
    return Trainer(config, World(0, 1, 0, torch.device("cpu")))


def run(config):
    trainer = start(config)
    status = trainer.run()
    return status, trainer


def weights(trainer):
    return {k: v.clone() for k, v in trainer.engine.state_dict()["model"].items()}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def metrics(config):
    return read_lines(Path(config.folder) / "metrics.jsonl")


def events(config, kind):
    return [e for e in read_lines(Path(config.folder) / "events.jsonl") if e["event"] == kind]


def interrupt_at(monkeypatch, step, number=signal.SIGTERM):
    """Send a real signal to this process while it is in a step."""
    original = Trainer._log_step

    def tell(self, done):
        original(self, done)
        if done.step == step:
            signal.raise_signal(number)

    monkeypatch.setattr(Trainer, "_log_step", tell)


def poison(monkeypatch, at, value, until=None):
    """Make the loss of one step (or of those from `at` to `until`) what it should not be."""
    true = Engine.forward_backward
    calls = {"n": 0}

    def forward_backward(self, microbatches):
        loss, tokens = true(self, microbatches)
        calls["n"] += 1
        return (torch.full_like(loss, value), tokens) if at <= calls["n"] <= (until or at) else (loss, tokens)

    monkeypatch.setattr(Engine, "forward_backward", forward_backward)
