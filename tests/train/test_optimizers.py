"""Muon beside torch's own, 8-bit AdamW beside AdamW and its paper; both through a stopped run, bit for bit."""

from dataclasses import replace

import pytest
import torch
from single import corpus, interrupt_at, metrics, run, same, settings, weights
from torch import nn

from trainwright.errors import UserError
from trainwright.train.adamw8bit import BLOCK, AdamW8bit, Codes, code_values
from trainwright.train.config import TrainConfig
from trainwright.train.muon import Muon, orthogonal
from trainwright.train.optimizer import AdamW, AdamWOptions
from trainwright.train.setup import engine_options

CPU = torch.device("cpu")


def gradients(step: int, size: tuple[int, ...]) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(step))


def trained(kind: type[AdamW], name: str, size: tuple[int, ...], steps: int = 6) -> torch.Tensor:
    param = nn.Parameter(gradients(99, size))
    optimizer = kind({name: param}, AdamWOptions())
    for step in range(steps):
        optimizer.step(0.02, {name: gradients(step, size)}, torch.tensor(1.0))
    optimizer.step(0.02, {name: gradients(7, size)}, torch.tensor(torch.nan))  # a step that must change nothing
    return param.detach()


@pytest.mark.parametrize("size", [(24, 40), (40, 24)])
def test_muon_is_that_of_torch(size):
    """Torch's iterates in bf16, ours on a CPU in fp32."""
    param = nn.Parameter(gradients(99, size))
    theirs = torch.optim.Muon([param], lr=0.02, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw")
    for step in range(6):
        param.grad = gradients(step, size)
        theirs.step()
    ours, start = trained(Muon, "blocks.0.mlp.up.weight", size), gradients(99, size)
    moved = param.detach() - start
    assert float((ours - param.detach()).norm() / moved.norm()) < 1e-2


def test_muon_updates_each_expert_by_itself_and_leaves_the_rest_to_adamw():
    grads = gradients(0, (3, 2, 8, 6))
    whole = orthogonal(grads)
    assert all(torch.allclose(whole[i, j], orthogonal(grads[i, j]), atol=1e-6) for i in range(3) for j in range(2))
    values = torch.linalg.svdvals(orthogonal(gradients(1, (16, 30))))
    assert float(values.min()) > 0.5
    assert float(values.max()) < 1.3
    for name in ("embed.weight", "head.weight", "blocks.0.mlp.router.weight", "blocks.0.mlp.experts.gate_up_bias"):
        assert torch.equal(trained(Muon, name, (8, 6)), trained(AdamW, name, (8, 6)))


def test_biases_of_experts_do_not_decay():
    """They are rows of one tensor, as matrices are."""
    params = {name: nn.Parameter(torch.ones(4, 6)) for name in ("mlp.experts.down_bias", "mlp.experts.down")}
    optimizer = AdamW(params, AdamWOptions(weight_decay=0.1))
    optimizer.set_weight_decay(0.2)
    assert [slot.decay for slot in optimizer.states.values()] == [0.0, 0.2]


def test_epsilon_is_an_option_that_adamw_follows():
    options = engine_options(TrainConfig(eps=0.05, beta2=0.98)).optimizer
    ours, theirs = (nn.Parameter(gradients(99, (8, 6))) for _ in range(2))
    optimizer, judge = AdamW({"w": ours}, options), torch.optim.AdamW([theirs], 0.02, (0.9, 0.98), 0.05, 0.1)
    for step in range(3):
        theirs.grad = gradients(step, (8, 6))
        optimizer.step(0.02, {"w": theirs.grad}, torch.tensor(1.0))
        judge.step()
    assert torch.allclose(ours, theirs, atol=1e-6)
    assert TrainConfig().eps == AdamWOptions().eps == 1e-8
    with pytest.raises(UserError, match="--eps is 0"):
        TrainConfig(eps=0.0)


def test_codes_of_8_bits_are_those_of_the_paper():
    for signed in (True, False):
        values = code_values(signed, CPU)
        assert len(values.unique()) == 256
        assert values.max() == 1
        assert 0 in values
        numbers = torch.logspace(-1, 0, 1000)  # a decade with 64 (128) equal steps
        nearest = values[(numbers[:, None] - values).abs().argmin(1)]
        assert float((nearest - numbers).abs().max()) <= 0.9 / (64 if signed else 128)


@pytest.mark.parametrize("signed", [True, False])
def test_numbers_that_were_codes_become_the_same_codes(signed):
    numbers = gradients(5, (7, BLOCK + 3)) * torch.logspace(-9, 3, 7)[:, None]
    numbers = numbers if signed else numbers.square()
    first, second = (Codes.zeros(numbers.numel(), signed, CPU) for _ in range(2))
    first.write(numbers)
    second.write(first.read(numbers.shape))
    assert torch.equal(first.numbers, second.numbers)
    assert torch.equal(first.read(numbers.shape), second.read(numbers.shape))
    blocks = numbers.abs().flatten().split(BLOCK)
    largest = torch.cat([block.max().expand(len(block)) for block in blocks]).view_as(numbers)
    assert float(((first.read(numbers.shape) - numbers).abs() / largest).max()) < 0.01


def test_adamw_in_8_bits_stays_near_adamw():
    """Each number's step differs by the rounding of its moments; small parameters are not rounded at all."""
    exact, rounded = (trained(kind, "w", (64, 100), steps=20) for kind in (AdamW, AdamW8bit))
    moved = exact - gradients(99, (64, 100))
    assert 1e-4 < float((rounded - exact).norm() / moved.norm()) < 0.05
    assert torch.equal(trained(AdamW, "w", (8, 9)), trained(AdamW8bit, "w", (8, 9)))


@pytest.mark.parametrize("kind", ["adamw8bit", "muon"])
def test_a_stopped_run_resumes_exactly(kind, tmp_path, monkeypatch):
    config = replace(settings(corpus(tmp_path), tmp_path / "whole"), optimizer=kind, steps=6, lr=3e-3)
    _, whole = run(config)
    with monkeypatch.context() as patch:
        interrupt_at(patch, 3)
        assert run(replace(config, folder=str(tmp_path / "parts")))[0] == 75
    _, resumed = run(replace(config, folder=str(tmp_path / "parts")))
    assert same(weights(whole), weights(resumed))
    losses = [row["loss"] for row in metrics(config)]
    assert losses[-1] < losses[0]
    if kind == "muon":
        with pytest.raises(UserError, match="trained with --optimizer muon"):
            run(replace(config, folder=str(tmp_path / "parts"), optimizer="adamw", steps=8))
