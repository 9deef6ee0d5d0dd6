"""Encoders, T5, vision transformers and fine-tuning: the predictor counts a sample's tokens and FLOPs as the
trainer does, and every shipped recipe of those models is predicted from its spec."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from trainwright.cli.predict import command
from trainwright.predict import PredictRequest, predict
from trainwright.predict.evidence import UNMEASURED
from trainwright.predict.objective import model_flops, objective_of, tokens_per_sample
from trainwright.predict.setup_record import from_record
from trainwright.train.config import TrainConfig
from trainwright.train.models.shape import lookup
from trainwright.train.objectives import objective_for

CASES = [
    ("roberta-large", "mlm", 512), ("esm2-650m", "mlm", 1024), ("t5-v1.1-large", "span_corruption", 512),
    ("t5-small", "span_corruption", 100), ("vit-s-16", "dino", 197), ("vit-h-14", "dino", 257),
    ("vit-s-16-debug", "dino", 17), ("vit-b-16", "classify", 197), ("llama3-8b", "causal_lm", 8192),
    ("llama3-8b", "sft", 4096), ("llama3-8b", "dpo", 4096),
]  # fmt: skip
SPEC = """
name: families
platform: parallelcluster
region: us-east-1
queues: [{name: train, instance: p4de.24xlarge, count: 4}]
storage: [{mount: /fsx, lustre: {capacity: 4.8TiB, throughput: 500}}]
head: {instance: m5.2xlarge, key: my-key}
jobs: [{name: pretrain, recipe: RECIPE, nodes: 2}]
"""


@pytest.mark.shows("predict", families=("dino", "classify", "sft", "dpo"))
@pytest.mark.parametrize(("model", "name", "sequence"), CASES)
def test_tokens_and_flops_are_those_of_the_trainer(model, name, sequence):
    shape = lookup(model)
    trained = objective_for(TrainConfig(model=model, objective=name, sequence=sequence, base="weights"), shape)
    own = objective_of(shape, name)
    assert tokens_per_sample(shape, sequence, own) == trained.tokens_per_sample
    assert model_flops(shape, sequence, own) == pytest.approx(trained.flops_per_token(), rel=1e-9)


@pytest.mark.parametrize(
    ("recipe", "tokens_per_gpu", "sample"),
    [("roberta-large", 75_000, 512), ("esm2-650m", 36_000, 1024), ("t5-v1.1-large", 58_000, 626),
     ("dino-vit-b-16", 180_000, 690), ("dino-vit-s-16", 400_000, 690)],
)  # fmt: skip
def test_the_recipes_of_other_families_are_predicted(tmp_path, recipe, tokens_per_gpu, sample):
    """Step time, memory and cost, with an interval that says why it is wide."""
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC.replace("RECIPE", recipe), encoding="utf-8")
    result = CliRunner().invoke(command, [str(spec), "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert record["tokens_per_s_per_gpu"] == pytest.approx(tokens_per_gpu, rel=0.1)
    assert record["fits"] == "yes"
    assert record["train_usd"] > 500
    assert record["high"] / record["low"] > 1.5
    assert "a model that is not a decoder" in record["outside_evidence"]
    assert from_record(record).sample_tokens == sample


def test_images_take_microbatches_that_fill_the_gpu():
    """A cap of 16 images gave ViT-B 0.11 of the peak."""
    p = predict(PredictRequest("vit-b-16", "p5.48xlarge", 1, "replicate=8", batch_tokens=2**20))
    assert p.micro_batch >= 64
    assert 0.2 < p.mfu < 0.4


def test_the_crops_of_an_image_cost_what_they_hold():
    many, few = (
        predict(PredictRequest("vit-b-16", "p5.48xlarge", 1, "replicate=8", sequences=512, objective=objective))
        for objective in ("dino", "classify")
    )
    assert many.tokens_per_step / few.tokens_per_step == pytest.approx(690 / 197)
    assert 1.5 < many.step_time_s / few.step_time_s < 6


def test_preference_pairs_cost_two_answers_and_the_forward_pass_of_the_reference():
    request = PredictRequest("llama3-8b", "p5.48xlarge", 1, "shard=8", sequence=2048, sequences=32, micro_batch=1,
                             recompute="full")  # fmt: skip
    tuned, pairs = (predict(replace(request, objective=name)) for name in ("sft", "dpo"))
    assert tuned.step_time_s == pytest.approx(predict(request).step_time_s)
    same = predict(replace(request, objective="sft", sequences=64, micro_batch=2))  # as many answers
    assert 1.2 < pairs.step_time_s / same.step_time_s < 1.3  # forward, backward, forward again: a fifth pass
    reference = pairs.memory_parts_gib["state"] - tuned.memory_parts_gib["state"]
    assert reference == pytest.approx(4 * 8.03e9 / 8 / 2**30, rel=0.01)
    assert UNMEASURED in pairs.outside_evidence
    assert UNMEASURED not in tuned.outside_evidence
