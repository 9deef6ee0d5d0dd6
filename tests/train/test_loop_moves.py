"""One run through many machines: other world sizes, plans, batches and micro-batches, over a mixture of packed
documents. Every sample comes once, in the order that was fixed before, and where the batch stays, so do the losses."""

import json
from pathlib import Path

import pytest
from ranks import run_ranks

from trainwright.train.config import TrainConfig
from trainwright.train.data.loader import Options
from trainwright.train.data.named import open_samples
from trainwright.train.data.prepare import prepare
from trainwright.train.loop import train
from trainwright.train.metrics import read_lines

SEQUENCE = 24


@pytest.fixture(scope="module")
def mixture(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mixture")
    for name, count, size in (("a", 400, 9), ("b", 90, 5)):
        path = folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps({"text": f"{name}{i} " * (2 + i % size)}) + "\n" for i in range(count)))
        prepare([str(path)], folder / name, workers=1, quiet=True, shard_bytes=3000)
    return (f"{folder / 'a'}:3", f"{folder / 'b'}:1")


def leg(config: TrainConfig) -> int:
    return train(config)


def in_order(folder: Path) -> list[tuple[int, ...]]:
    """The samples of every step, all data ranks, in the order of the job."""
    steps: dict[int, dict[int, list]] = {}
    for path in folder.glob("samples-rank*.jsonl"):
        for row in read_lines(path):
            steps.setdefault(row["step"], {})[row["data_rank"]] = [tuple(s) for s in row["samples"]]
    return [s for step in sorted(steps) for rank in sorted(steps[step]) for s in steps[step][rank]]


LEGS = [  # ranks, plan, until step, batch, micro-batch
    (2, "shard=2", 3, 8, 2),
    (1, "", 5, 8, 1),
    (4, "replicate=2,tp=2", 7, 8, 2),
    (2, "cp=2", 9, 8, 4),
    (2, "pp=2", 11, 8, 2),
]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["gpt2-124m-debug", "llama3.2-1b-debug"])
def test_a_run_moves_through_plans_without_a_trace(mixture, tmp_path, model):
    base = {"model": model, "data": mixture, "sequence": SEQUENCE, "holdout": 0.05, "schedule": "wsd", "decay": 3}
    base |= {"log_samples": True, "checkpoint_every": "2", "eval_every": 4, "lr": 1e-3, "warmup": 2}
    straight, moved = tmp_path / "straight", tmp_path / "moved"
    last = LEGS[-1][2]
    assert run_ranks(leg, 1, TrainConfig(**base, steps=last, folder=str(straight), batch=8, micro_batch=8)) == [0]
    for world, plan, until, batch, micro in LEGS:
        # The schedule ends with the run, so a leg is cut short and not made shorter.
        config = TrainConfig(**base, steps=last, folder=str(moved), batch=batch, micro_batch=micro, parallel=plan)
        assert run_ranks(leg_until, world, config, until) == [0 if until == last else 75] * world
    losses = [[line["loss"] for line in read_lines(folder / "metrics.jsonl")] for folder in (straight, moved)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    assert in_order(moved) == in_order(straight)


def leg_until(config: TrainConfig, until: int) -> int:
    """Stop as a signal would, so that the last step done is `until`."""
    from trainwright.train.loop import Trainer

    act = Trainer._train_step

    def one(self, steps):
        if self.state.step >= until - 1 - (self.world.size > 1) and until < config.steps:
            self.request("the end of this leg")  # among ranks the vote is a step late
        return act(self, steps)

    Trainer._train_step = one
    return train(config)


def test_other_batches_skip_and_repeat_nothing(mixture, tmp_path):
    base = {"model": "gpt2-124m-debug", "data": mixture, "sequence": SEQUENCE, "log_samples": True}
    seen = 0
    for world, steps, batch, micro in ((2, 2, 6, 1), (1, 4, 5, 5), (2, 6, 12, 3)):
        config = TrainConfig(**base, steps=steps, folder=str(tmp_path), batch=batch, micro_batch=micro)
        assert run_ranks(leg, world, config) == [0] * world
        seen += 2 * batch
    samples = open_samples(mixture, Options(SEQUENCE))
    assert in_order(tmp_path) == [tuple(samples.locate(n)) for n in range(seen)]
