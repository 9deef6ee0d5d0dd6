"""Every dense decoder: the loss curve of transformers, step by step, on the same data, with torch's own AdamW. Those
of mixtures of experts are in test_moe.py."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from families import LR, engine_of, export_engine, peer_curve

from trainwright.train.config import TrainConfig
from trainwright.train.data.batch import Batch
from trainwright.train.models.shape import lookup, shapes

STEPS, LENGTH = 4, 80  # longer than the windows of the small models, which are 64
DENSE = {s.family: f"{s.name}-debug" for s in shapes().values() if s.kind == "decoder" and not s.experts}


def batch(step: int, vocab: int) -> Batch:
    tokens = torch.randint(0, vocab, (2, LENGTH + 1), generator=torch.Generator().manual_seed(step))
    return Batch(tokens[:, :-1], tokens[:, 1:], torch.arange(LENGTH).expand(2, -1))


def loss_of(data: Batch):
    return lambda model: F.cross_entropy(model(input_ids=data.tokens).logits.flatten(0, 1), data.targets.flatten())


@pytest.mark.shows("curve")
@pytest.mark.parametrize("model", DENSE.values())
def test_the_loss_curve_is_that_of_transformers(model, tmp_path):
    transformers = pytest.importorskip("transformers")
    shape = replace(lookup(model), vocab=130)
    engine = engine_of(shape, TrainConfig(model=model))
    export_engine(engine, tmp_path / "hf")
    eager = {"dtype": torch.float32, "attn_implementation": "eager"}
    judge = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf", **eager).train()
    judge.get_input_embeddings().padding_idx = None  # the random tokens include it, and it would not be learned
    batches = [batch(step, shape.vocab) for step in range(STEPS)]
    ours = [float(engine.train_step([one], LR).loss) for one in batches]
    assert ours == pytest.approx(peer_curve(judge, [loss_of(one) for one in batches]), abs=2e-5)
    assert len(set(ours)) == STEPS
