"""Other frameworks really train here: two processes through `trainwright submit`, then further through `resume`. The
same model on the same data gives the loss curve of one process, whichever framework holds it, before and after."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

import pytest
from framework_runs import Trained, frameworks_venv, resume, train

from trainwright import run as helper
from trainwright.recipes import framework

pytestmark = pytest.mark.slow
FIRST, LAST = 6, 9


@pytest.fixture(scope="session")
def venv() -> str:
    return frameworks_venv()


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path))
    monkeypatch.delenv("PYTHONPATH", raising=False)  # what a rank needs travels with the run


@pytest.fixture(scope="module")
def one_process() -> list[float]:
    """The losses of the debug Llama in one process, without any framework."""
    patch = pytest.MonkeyPatch()
    patch.syspath_prepend(str(framework.FOLDER))
    patch.setitem(sys.modules, "run", helper)
    import entry_common  # type: ignore[import-not-found]
    import hf_models  # type: ignore[import-not-found]
    import torch

    given = Namespace(
        model="llama-debug", data="builtin:stdlib", steps=LAST, sequence=128, batch=8, lr=1e-3, warmup=2,
        schedule="constant", final=0.1, seed=0, recompute="none",
    )  # fmt: skip
    data = hf_models.sequences(given, hf_models.tokenizer(given.model))
    model = hf_models.new_model(given)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.1)
    losses = []
    for step in range(1, LAST + 1):
        optimizer.param_groups[0]["lr"] = entry_common.learning_rate(step, given)
        batch = torch.tensor([data[index]["input_ids"] for index in entry_common.samples_of(step, len(data), given)])
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    patch.undo()
    return losses


@pytest.mark.proves("cpu")
@pytest.mark.parametrize(
    "recipe",
    [
        "fsdp2-llama3.2-1b", "accelerate-llama3.2-1b", "lightning-llama3.2-1b", "deepspeed-llama3.1-8b-zero1",
        pytest.param("deepspeed-llama3.1-8b-zero2", marks=pytest.mark.long),
    ],
)  # fmt: skip
def test_a_framework_gives_the_losses_of_one_process(recipe: str, venv: str, one_process: list[float]) -> None:
    first = train(f"{recipe}-debug", venv, "--steps", str(FIRST))
    assert first.steps == list(range(1, FIRST + 1))
    assert first.losses == pytest.approx(one_process[:FIRST], abs=2e-4)
    further = resume(first, venv, "--steps", str(LAST))
    assert further.steps == list(range(FIRST + 1, LAST + 1))
    assert further.losses == pytest.approx(one_process[FIRST:], abs=2e-4)


@pytest.mark.proves("cpu")
@pytest.mark.parametrize(
    "recipe",
    [
        "ddp-mnist", "jax-bytes", "nanovlm",
        *(pytest.param(name, marks=pytest.mark.long) for name in ("deepspeed-llama3.1-8b-zero3", "hf-distillation")),
    ],
)  # fmt: skip
def test_a_framework_trains_and_goes_on(recipe: str, venv: str) -> None:
    _falls_and_goes_on(recipe, venv)


@pytest.mark.proves("cpu")
@pytest.mark.long
@pytest.mark.parametrize("recipe", ["hf-esm2-150m-ddp", "trl-llama3.1-8b-lora"])
def test_the_trainers_own_log_is_understood(recipe: str, venv: str) -> None:
    first = _falls_and_goes_on(recipe, venv, within=0.1 if "esm2" in recipe else 2e-4)  # masks are drawn anew
    records = first.log()
    assert [record.step for record in records] == first.steps
    assert {record.framework for record in records} == {"hf-trainer"}
    assert [record.loss for record in records] == pytest.approx(first.losses, rel=1e-2)
    assert {record.total for record in records} == {FIRST}


@pytest.mark.long
@pytest.mark.proves("trl-grpo-qwen2.5-0.5b", "cpu")
def test_answers_are_rewarded(venv: str) -> None:
    trained = train("trl-grpo-qwen2.5-0.5b-debug", venv, "--steps", "30")
    rewards = [row["reward"] for row in trained.rows]
    assert trained.steps == list(range(1, 31))
    assert all(0 <= reward <= 2 for reward in rewards)
    assert sum(rewards[-10:]) > 2 * sum(rewards[:10]), "answers that were rewarded come more often"


def _falls_and_goes_on(recipe: str, venv: str, within: float = 2e-4) -> Trained:
    """A run that was interrupted has the losses of one that was not, and one that has ended takes no step more."""
    first = train(f"{recipe}-debug", venv, "--steps", str(FIRST))
    further = resume(first, venv, "--steps", str(LAST))
    whole = train(f"{recipe}-debug", venv, "--steps", str(LAST))
    assert first.steps + further.steps == whole.steps == list(range(1, LAST + 1))
    assert first.losses + further.losses == pytest.approx(whole.losses, abs=within)
    assert min(whole.losses[FIRST:]) < whole.losses[0]
    assert resume(further, venv, "--steps", str(LAST)).steps == []
    return first
