"""Options without effect are named in the log, once; those at their defaults never are."""

import json
from dataclasses import asdict, fields, replace

import pytest
from single import corpus, run, settings

from trainwright.train.config import TrainConfig
from trainwright.train.engine import Engine, EngineOptions
from trainwright.train.models.shape import lookup
from trainwright.train.objectives import names
from trainwright.train.parallel.plan import ParallelPlan
from trainwright.train.remarks import remarks

DECODER, ENCODER = lookup("llama3.2-1b-debug"), lookup("bert-base-debug")
ALONE = ParallelPlan()


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"context": "ring"}, "--context ring has no effect: cp is 1"),
        ({"pipeline_schedule": "zero-bubble"}, "--pipeline-schedule zero-bubble has no effect: pp is 1"),
        ({"attention": "cudnn"}, "--attention cudnn has no effect: a CPU has one kernel only"),
        ({"teacher_momentum": 0.9}, "--teacher-momentum 0.9 has no effect: the objective is causal_lm, not dino"),
        ({"prototypes": 64}, "--prototypes 64 has no effect: the objective is causal_lm, not dino"),
        ({"dpo_beta": 0.5}, "--dpo-beta 0.5 has no effect: the objective is causal_lm, not dpo"),
        ({"mask_rate": 0.3}, "--mask-rate 0.3 has no effect: the objective is causal_lm, not mlm or span_corruption"),
        ({"lora_alpha": 8.0}, "--lora-alpha 8 has no effect: --lora-rank is 0"),
        ({"decay": 3}, "--decay 3 has no effect: the schedule is cosine, not wsd"),
        ({"sequence": 102_400}, "sequences of 102,400 tokens are 100 times the model's context of 1,024"),
        ({"lora_rank": 1000}, "--lora-rank 1000 is above the model's width of 128, which gains nothing"),
    ],
)
def test_an_option_without_effect_is_named(options, line):
    config = TrainConfig(**{"objective": "causal_lm", "sequence": 64, **options})
    assert remarks(config, ALONE, DECODER, "cpu") == [f"note: {line}"]


@pytest.mark.parametrize("objective", names())
@pytest.mark.parametrize("shape", [DECODER, ENCODER, lookup("vit-s-16-debug"), lookup("t5-small-debug")])
def test_a_default_is_never_named(objective, shape):
    for schedule in ("cosine", "wsd"):
        config = TrainConfig(objective=objective, schedule=schedule, sequence=shape.longest_sequence)
        assert remarks(config, ALONE, shape, "cpu") == remarks(config, ALONE, shape, "cuda") == []


def test_an_option_with_an_effect_is_not_named():
    config = TrainConfig(objective="causal_lm", context="ring", pipeline_schedule="zero-bubble", attention="flash",
                         lora_rank=8, lora_alpha=8.0, schedule="wsd", decay=3)  # fmt: skip
    assert remarks(config, ParallelPlan(cp=2, pp=2), DECODER, "cuda") == []
    for objective, option in (("dpo", {"dpo_beta": 0.5}), ("mlm", {"mask_rate": 0.3}), ("dino", {"prototypes": 64})):
        assert remarks(TrainConfig(objective=objective, **option), ALONE, DECODER, "cuda") == []


def test_a_run_says_it_and_goes_on_and_so_does_its_own_record(tmp_path, capsys):
    """`config.json` of a run holds every option, and starts it again."""
    config = replace(settings(corpus(tmp_path), tmp_path / "run"), context="ring", dpo_beta=0.5, steps=2)
    assert run(config)[0] == 0
    assert capsys.readouterr().err.count("has no effect") == 2
    recorded = json.loads((tmp_path / "run" / "config.json").read_text())
    assert {name: recorded[name] for name in ("context", "dpo_beta")} == {"context": "ring", "dpo_beta": 0.5}
    again = TrainConfig(**{f.name: recorded[f.name] for f in fields(TrainConfig)} | {"data": config.data, "steps": 3})
    assert asdict(again)["context"] == "ring"
    assert run(again)[0] == 0


def test_float8_without_a_layer_does_not_call_itself_fp8():
    narrow = lookup("gpt2-124m-debug")  # 64 wide: no multiple of 128
    text = "\n".join(Engine(narrow, ALONE, EngineOptions("fp8", "blockwise"), "cpu").description())
    assert "precision: bf16 (asked for: fp8)" in text
    assert "note: float8 blockwise has no effect: none of 16 linear layers has widths that are multiples of 128" in text
    text = "\n".join(Engine(narrow, ALONE, EngineOptions("fp8", "tensorwise"), "cpu").description())
    assert "precision: fp8 with" in text
    assert "has no effect" not in text


@pytest.mark.parametrize(
    ("plan", "options", "words"),
    [
        ("cp=2", {"context": "ring"}, ", context by ring"),
        ("cp=2", {}, ", context by gather"),
        ("pp=2", {}, ", pipeline schedule 1f1b"),
        ("pp=2,virtual=2", {"pipeline_schedule": "zero-bubble"}, ", pipeline schedule interleaved zero-bubble"),
        ("shard=2", {}, ""),
    ],
)
def test_the_log_names_the_context_method_and_the_schedule(plan, options, words):
    from trainwright.train.build import _methods

    assert _methods(ParallelPlan.parse(plan), EngineOptions(**options)) == words
