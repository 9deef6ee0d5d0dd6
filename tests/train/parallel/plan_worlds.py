"""Runs plans on real gloo processes, several plans to one start of the processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from unittest.mock import patch

import torch
from ranks import run_ranks
from torch.distributed.checkpoint import load, save

from trainwright.train.data.batch import IGNORED, Batch
from trainwright.train.engine import Engine, EngineOptions
from trainwright.train.models.shape import lookup
from trainwright.train.optimizer import AdamWOptions
from trainwright.train.parallel import context, offload
from trainwright.train.parallel.plan import ParallelPlan
from trainwright.train.parallel.ring import GroupRing

STEPS, SAMPLES, LENGTH, MICROBATCHES = 20, 4, 32, 2
VOCABULARY = 255  # odd, so that no slice of it is even


def global_batch(step: int, vocab: int, documents: bool) -> Batch:
    """The global batch of one step, the same on every rank, with some targets ignored unevenly over the samples."""
    generator = torch.Generator().manual_seed(step)
    tokens = torch.randint(0, vocab, (SAMPLES, LENGTH + 1), generator=generator)
    targets = tokens[:, 1:].clone()
    for row in range(SAMPLES):
        targets[row, : 2 * row] = IGNORED
    index = torch.arange(LENGTH)[None].expand(SAMPLES, -1)
    if not documents:
        return Batch(tokens[:, :-1], targets, index)
    borders = torch.randint(0, 6, (SAMPLES, LENGTH), generator=generator) == 0
    number = borders.long().cumsum(1)
    starts = torch.where(borders, index, 0).cummax(1).values
    return Batch(tokens[:, :-1], targets, index - starts, number)


def microbatches(batch: Batch, rank: int, world: int) -> list[Batch]:
    """This data rank's samples, cut into micro-batches."""
    own = slice(rank * SAMPLES // world, (rank + 1) * SAMPLES // world)
    columns = (batch.tokens, batch.targets, batch.positions, batch.documents)
    count = min(MICROBATCHES, SAMPLES // world)
    parts = zip(*(c[own].chunk(count) if c is not None else [None] * count for c in columns), strict=True)
    return [Batch(*part) for part in parts]


def build(case: dict, plan: str, seed: int = 7) -> Engine:
    shape, parsed = replace(lookup(case["model"]), vocab=VOCABULARY), ParallelPlan.parse(plan)
    parsed.check(shape, parsed.world, LENGTH, SAMPLES)
    options = {**case.get("options", {})}
    if "optimizer" in options:
        options["optimizer"] = AdamWOptions(options["optimizer"])
    return Engine(shape, parsed, EngineOptions(seed=seed, max_norm=1.0, **options), "cpu")


@patch.object(offload, "SMALLEST", 0)  # tensors of debug sizes, too
def steps(engine: Engine, case: dict, span: range) -> dict:
    """Loss and gradient norm of each step, and the evaluation after the last."""
    losses, norms, tokens = [], [], 0
    rank, world, documents = engine.data_rank, engine.data_world, case.get("documents", False)
    for step in span:
        out = engine.train_step(microbatches(global_batch(step, VOCABULARY, documents), rank, world), lr=3e-4)
        losses.append(float(out.loss))
        norms.append(float(out.grad_norm))
        tokens += int(out.tokens)
    evaluation = engine.evaluate(microbatches(global_batch(99, VOCABULARY, documents), rank, world))
    return {"loss": losses, "norm": norms, "evaluation": evaluation, "tokens": tokens}


def curve(case: dict) -> dict:
    with counted_ways() as ways:
        return {**steps(build(case, case["plan"]), case, range(case.get("steps", STEPS))), "ways": ways}


@contextmanager
def counted_ways() -> Iterator[dict[str, int]]:
    """How often context ranks met each other's keys in which way, so that a test sees which one was executed."""
    ways: dict[str, int] = {}
    places = {"gather": (context, "gather"), "all-to-all": (context, "exchange"), "ring": (GroupRing, "start")}

    def counting(way: str, function: Callable) -> Callable:
        def call(*args):
            ways[way] = ways.get(way, 0) + 1
            return function(*args)

        return call

    with ExitStack() as stack:
        for way, (owner, name) in places.items():
            stack.enter_context(patch.object(owner, name, counting(way, getattr(owner, name))))
        yield ways


def move(case: dict) -> list[dict]:
    """Train under one plan, save, and continue: under that plan, and under another that loads the checkpoint."""
    first = build(case, case["plan"])
    steps(first, case, range(2))
    save(first.state_dict(), checkpoint_id=case["folder"])
    second = build(case, case["then"], seed=8)
    state = second.state_dict()
    load(state, checkpoint_id=case["folder"])
    second.load_state_dict(state)
    return [steps(engine, case, range(2, 5)) for engine in (first, second)]


def run_world(world: int, cases: list[dict]) -> list[dict]:
    """Start `world` processes, run every case in each, and return rank 0's results."""
    return run_ranks(results, world, cases, limit=240)[0]


def results(cases: list[dict]) -> list[dict]:
    return [move(case) if "then" in case else curve(case) for case in cases]
