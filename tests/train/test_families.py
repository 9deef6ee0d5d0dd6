"""Every family beside decoders: each plan gives the curve of one process, and a stopped run resumes exactly. The cases
are runs of the real trainer; what a family needs as data is made here."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from ranks import run_ranks
from single import corpus, interrupt_at, metrics, run, same, weights

from trainwright.train.config import TrainConfig
from trainwright.train.models.convert import export_main
from trainwright.train.models.vision import ClassifierInputs
from trainwright.train.parallel.plan import ParallelPlan

PLANS = ("shard=2", "replicate=2", "tp=2")
MORE_PLANS = {"classify": ("shard=2,tp=2",), "bert": ("pp=2",), "esm2": ("pp=2,tp=2",),
              "roberta": ("pp=2,virtual=2", "shard=2,pp=2")}  # fmt: skip
WITH = {"bert": {"pipeline_schedule": "zero-bubble"}}  # without a pipeline it changes nothing
LESS = {"dpo": ("tp=2",)}  # refused
CASES = {
    "roberta": {"model": "roberta-base-debug", "objective": "mlm"},
    "bert": {"model": "bert-base-debug", "objective": "mlm"},
    "esm2": {"model": "esm2-8m-debug", "objective": "mlm"},
    "t5": {"model": "t5-v1.1-large-debug", "objective": "span_corruption"},
    "dino": {
        "model": "vit-s-16-debug",
        "objective": "dino",
        "local_crops": 2,
        "clip": 3.0,
        "prototypes": 64,
        "drop_path": 0.4,
    },
    "classify": {"model": "vit-s-16-debug", "objective": "classify"},
    "sft": {"model": "llama3.2-1b-debug", "objective": "sft"},
    "lora": {"model": "llama3.2-1b-debug", "objective": "sft", "lora_rank": 4, "base": "random", "lr": 1e-2},
    "dpo": {"model": "llama3.2-1b-debug", "objective": "dpo", "base": "random"},
}
BUILT_IN = {
    "esm2": "builtin:proteins", "dino": "builtin:textures", "classify": "builtin:textures", "sft": "builtin:chats",
    "lora": "builtin:chats", "dpo": "builtin:pairs",
}  # fmt: skip


def cases(column: str, *fast: str) -> list:
    """All cases, for a column of the table of families; those that are not named run in the slow suite."""
    slow = {name: [] if name in fast else [pytest.mark.slow] for name in CASES}
    backbone = {name: [pytest.mark.shows(column, families=("vit",))] for name in ("dino", "classify")}
    return [pytest.param(name, marks=[*slow[name], *backbone.get(name, ())]) for name in CASES]


def data_for(name: str, folder: Path) -> str:
    return BUILT_IN.get(name) or corpus(folder)


def config(name: str, folder: Path, data: str, **more) -> TrainConfig:
    values = {
        "data": (data,), "steps": 6, "sequence": 64, "batch": 4, "micro_batch": 1, "lr": 1e-3, "checkpoint_every": "3",
        "watchdog": 0, "folder": str(folder), **CASES[name], **more,
    }  # fmt: skip
    return TrainConfig(**values)


def curve(values: dict) -> list:
    """One rank of a run; its losses and gradient norms."""
    from trainwright.train.loop import train

    settings = TrainConfig(**{**values, "data": tuple(values["data"])})
    assert train(settings) == 0
    return [(row["loss"], row["grad_norm"]) for row in metrics(settings)]


@pytest.mark.shows("resume")
@pytest.mark.parametrize("name", cases("resume", "roberta", "dino", "lora"))
def test_a_stopped_run_resumes_exactly(name, tmp_path, monkeypatch):
    whole = config(name, tmp_path / "whole", data_for(name, tmp_path))
    _, straight = run(whole)
    with monkeypatch.context() as patched:
        interrupt_at(patched, 3)
        assert run(replace(whole, folder=str(tmp_path / "parts")))[0] == 75
    _, resumed = run(replace(whole, folder=str(tmp_path / "parts")))
    assert resumed.state.step == 6
    assert same(weights(straight), weights(resumed))
    one, other = (trainer.engine.objective.state() for trainer in (straight, resumed))
    assert all(torch.equal(one[key], other[key]) for key in one)
    losses = [row["loss"] for row in metrics(whole)]
    assert losses[-1] < losses[0] or name in ("dino", "dpo")  # whose losses of single batches vary more


@pytest.mark.shows("plans")
@pytest.mark.parametrize("name", cases("plans", "dino"))
def test_every_plan_gives_the_curve_of_one_process(name, tmp_path):
    data = data_for(name, tmp_path)
    alone = config(name, tmp_path / "alone", data, checkpoint_every="never")
    run(alone)
    wanted = [(row["loss"], row["grad_norm"]) for row in metrics(alone)]
    for plan in (*(plan for plan in PLANS if plan not in LESS.get(name, ())), *MORE_PLANS.get(name, ())):
        folder = tmp_path / plan.replace("=", "")
        values = json.loads(
            replace(alone, folder=str(folder), parallel=plan, micro_batch=2, **WITH.get(name, {})).to_json()
        )
        got = run_ranks(curve, ParallelPlan.parse(plan).world, values)[0]
        assert [loss for loss, _ in got] == pytest.approx([loss for loss, _ in wanted], rel=1e-5), plan
        assert [norm for _, norm in got] == pytest.approx([norm for _, norm in wanted], rel=1e-4), plan


@pytest.mark.shows("export")
@pytest.mark.parametrize("name", ["dino", "classify"])
def test_transformers_computes_what_an_exported_vision_run_does(name, tmp_path, capsys):
    """The classifier, or of DINO the teacher's backbone, which is what its nearest neighbours are found with."""
    transformers = pytest.importorskip("transformers")
    settings = config(name, tmp_path / "run", data_for(name, tmp_path), steps=2, checkpoint_every="2")
    _, trainer = run(settings)
    assert export_main([settings.folder, str(tmp_path / "hf")]) == 0
    images = torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    model = trainer.engine.runner.stages[0]
    if name == "dino":
        judge = transformers.AutoModel.from_pretrained(tmp_path / "hf", add_pooling_layer=False)
        ours, theirs = model.teacher.backbone.features([images])[0], judge(images).last_hidden_state[:, 0]
    else:
        judge = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "hf")
        ours, theirs = model(images, ClassifierInputs()), judge(images).logits
    assert torch.allclose(ours, theirs, atol=1e-5)
