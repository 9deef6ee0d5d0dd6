"""`--base` of a mixture of experts: the bias of each router is a buffer, and belongs to the weights all the same."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from single import corpus, metrics, run, settings
from test_finetuning import pair_data
from test_finetuning import settings as finetuning

from trainwright.train.config import TrainConfig
from trainwright.train.models import convert
from trainwright.train.models.hf_config import config_of
from trainwright.train.models.shape import lookup
from trainwright.train.parallel.expert import BIAS_STEP

SHAPE = replace(lookup("deepseek-v3-debug"), layers=2, vocab=300)
ROUTER = "model.layers.1.mlp.gate.e_score_correction_bias"


@pytest.fixture
def judge(tmp_path):
    """A DeepSeek V3 of transformers whose router prefers some experts, saved as `base`."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(3)
    config = transformers.DeepseekV3Config(**config_of(SHAPE, "float32"))
    model = transformers.DeepseekV3ForCausalLM(config).eval()
    model.state_dict()[ROUTER].normal_(0.0, 0.5)
    model.save_pretrained(tmp_path / "base")
    return model


def pretraining(folder: Path, **more) -> TrainConfig:
    plain = settings(corpus(folder), folder / "run")
    base = str(folder / "base")
    return replace(plain, model=base, base=base, steps=1, lr=0.0, checkpoint_every="1", **more)


@pytest.mark.parametrize("rank", [0, 4])
def test_the_router_starts_with_the_bias_of_the_base(rank, judge, tmp_path):
    config = pretraining(tmp_path, lora_rank=rank)
    _, trainer = run(config)
    batches = trainer.parts.loader.step(0).microbatches
    with torch.no_grad():
        losses = [F.cross_entropy(judge(b.tokens).logits.flatten(0, 1), b.targets.flatten()) for b in batches]
    assert metrics(config)[0]["loss"] == pytest.approx(float(sum(losses)) / len(losses), abs=2e-5)
    (bias,) = trainer.engine.balance.biases().values()
    moved = 0.0 if rank else BIAS_STEP  # adapters leave the routers as they are
    assert float((bias - judge.state_dict()[ROUTER]).abs().max()) == pytest.approx(moved, abs=1e-6)
    assert convert.export_main([config.folder, config.folder + "-hf"]) == 0
    again = type(judge).from_pretrained(config.folder + "-hf", dtype=torch.float32)
    assert torch.equal(again.state_dict()[ROUTER], bias)


def test_policy_and_reference_have_the_bias_of_the_base(judge, tmp_path):
    config = finetuning(tmp_path / "run", tmp_path / "base", pair_data(tmp_path), objective="dpo", sequence=64, steps=1,
                        lr=0.0, checkpoint_every="1")  # fmt: skip
    _, trainer = run(config)
    assert metrics(config)[0]["loss"] == pytest.approx(0.6931472, abs=1e-6)
    biases = trainer.engine.balance.biases()
    wanted = judge.state_dict()[ROUTER]
    assert torch.equal(biases["reference.blocks.1.mlp.router.bias"], wanted)
    assert torch.allclose(biases["policy.blocks.1.mlp.router.bias"], wanted, atol=2 * BIAS_STEP)
