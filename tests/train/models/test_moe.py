"""Mixtures of experts: dispatch, balance, and the loss curve of transformers, step by step, with the same optimizer."""

import copy

import pytest
import torch
import torch.nn.functional as F
import transformers
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

from trainwright.train.data.batch import Batch
from trainwright.train.engine import Engine, EngineOptions
from trainwright.train.models import huggingface, moe
from trainwright.train.models.shape import lookup
from trainwright.train.parallel.expert import BIAS_STEP
from trainwright.train.parallel.plan import ParallelPlan

CURVES = [
    "mixtral-8x7b-debug",
    "qwen3-30b-a3b-debug",
    "deepseek-v2-lite-debug",
    "deepseek-v3-debug",
    "gpt-oss-20b-debug",
]
STEPS, LR = 8, 5e-4


def batch(step: int, vocab: int) -> Batch:
    tokens = torch.randint(0, vocab, (3, 33), generator=torch.Generator().manual_seed(step))
    return Batch(tokens[:, :-1], tokens[:, 1:], torch.arange(32).expand(3, -1))


class Judge:
    """transformers' model, trained as the papers describe: cross-entropy, the balance loss of each sequence and layer,
    AdamW with decay on matrices only, clipping, and the router's bias moved by the load."""

    def __init__(self, engine: Engine, folder) -> None:
        shape = self.shape = engine.shape
        state = engine.state_dict()["model"]
        huggingface.write_folder(shape, state.__getitem__, folder)
        eager = {"attn_implementation": "eager", "experts_implementation": "eager"}
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **eager).train()
        matrices = [p for p in self.model.parameters() if p.ndim > 1]
        others = [p for p in self.model.parameters() if p.ndim == 1]
        groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=LR, betas=(0.9, 0.95), eps=1e-8)
        self.routed: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.routers = [m for name, m in self.model.named_modules() if name.endswith((".mlp.gate", ".mlp.router"))]
        for router in self.routers:
            router.register_forward_hook(lambda _m, _x, out: self.routed.append((out[0], out[2])))

    def step(self, data: Batch) -> tuple[float, float]:
        self.routed.clear()
        logits = self.model(input_ids=data.tokens).logits
        loss = F.cross_entropy(logits.flatten(0, 1), data.targets.flatten())
        (loss + self.shape.balance_loss * self.balance(len(data.tokens))).backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.shape.router_bias:
            for router, (_, chosen) in zip(self.routers, self.routed, strict=True):
                load = torch.bincount(chosen.flatten(), minlength=self.shape.experts).float()
                router.e_score_correction_bias += BIAS_STEP * torch.sign(load.mean() - load)
        return float(loss.detach()), float(norm)

    def balance(self, samples: int) -> torch.Tensor:
        rows = (row for pair in self.routed for row in zip(*(x.chunk(samples) for x in pair), strict=True))
        losses = [self.sequence_loss(*row) for row in rows]
        return torch.stack(losses).mean()

    def sequence_loss(self, logits: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        experts, k = self.shape.experts, self.shape.experts_per_token
        if self.shape.router == "softmax":
            return load_balancing_loss_func((logits,), experts, k)
        # DeepSeek V3 (arXiv 2412.19437), equations 17 to 20
        share = logits.sigmoid() / logits.sigmoid().sum(dim=-1, keepdim=True)
        load = torch.bincount(chosen.flatten(), minlength=experts) * experts / (k * len(logits))
        return (load * share.mean(dim=0)).sum()


@pytest.mark.shows("curve")
@pytest.mark.parametrize("model", CURVES)
def test_the_loss_curve_is_that_of_transformers(model, tmp_path):
    shape = lookup(model)
    ours = Engine(shape, ParallelPlan(), EngineOptions(max_norm=1.0), "cpu")
    judge = Judge(ours, tmp_path / "hf")
    for step in range(STEPS):
        data = batch(step, shape.vocab)
        out = ours.train_step([data], LR)
        loss, norm = judge.step(data)
        assert float(out.loss) == pytest.approx(loss, rel=1e-5), step
        assert float(out.grad_norm) == pytest.approx(norm, rel=1e-4), step
    theirs = judge.model.state_dict()
    for name, bias in ours.balance.biases().items():
        layer = name.split(".")[1]
        assert torch.allclose(bias, theirs[f"model.layers.{layer}.mlp.gate.e_score_correction_bias"])
        assert float(bias.abs().max()) > 0


@pytest.mark.parametrize("name", ["mixtral-8x7b-debug", "deepseek-v3-debug"])
def test_micro_batches_and_recomputation_change_nothing(name):
    shape = lookup(name)
    whole = batch(0, shape.vocab)
    parts = [Batch(*(x[i : i + 1] for x in (whole.tokens, whole.targets, whole.positions))) for i in range(3)]
    one = Engine(shape, ParallelPlan(), EngineOptions(), "cpu")
    wanted = [one.train_step([whole], LR) for _ in range(3)]
    for options, data in (({}, parts), ({"recompute": "full"}, parts), ({"recompute": "selective"}, [whole])):
        other = Engine(shape, ParallelPlan(), EngineOptions(**options), "cpu")
        for right in wanted:
            got = other.train_step(data, LR)
            assert float(got.loss) == pytest.approx(float(right.loss), rel=1e-5)
            assert float(got.grad_norm) == pytest.approx(float(right.grad_norm), rel=1e-4)


def test_a_biased_router_spreads_its_load():
    """All tokens prefer two experts; the bias moves until the others get their share."""
    shape = lookup("deepseek-v3-debug")
    engine = Engine(shape, ParallelPlan(), EngineOptions(), "cpu")
    routers = engine.balance.routers()
    for router in routers.values():
        router.bias[:4] = 0.02
    spread = []
    for step in range(30):
        engine.forward_backward([batch(step, shape.vocab)])
        spread.append(float(engine.balance.load_per_layer()[1:].std()))
        engine.optimizer_step(0.0)
    assert spread[-1] < 0.7 * spread[0]


def test_an_expert_without_tokens_gets_no_gradient():
    torch.manual_seed(0)
    experts = moe.Experts(lookup("mixtral-8x7b-debug"))
    for param in experts.parameters():
        torch.nn.init.normal_(param)
    rows = torch.randn(6, experts.down.shape[1], requires_grad=True)
    counts = torch.tensor([2, 0, 0, 3, 0, 0, 1, 0])
    out = experts(rows, torch.ones(6, 1), counts)
    out.square().sum().backward()
    for expert, (row, count) in enumerate(zip(experts.gate_up.grad, counts, strict=True)):
        assert (float(row.abs().max()) > 0) == bool(count), expert
    alone = copy.deepcopy(experts)
    assert torch.allclose(alone(rows[2:5], torch.ones(3, 1), torch.tensor([0, 0, 0, 3, 0, 0, 0, 0])), out[2:5])


def test_nothing_is_dropped_when_all_tokens_choose_one_expert():
    shape = lookup("mixtral-8x7b-debug")
    layer = moe.MoE(shape)
    for param in layer.parameters():
        torch.nn.init.normal_(param, std=0.1)
    with torch.no_grad():
        layer.router.weight[:] = 0
        layer.router.weight[3] = 1
        layer.router.weight[5] = 0.5
    x = torch.rand(2, 9, shape.hidden) + 0.1
    y, _, load = layer(x)
    assert load.tolist() == [0, 0, 0, 18, 0, 18, 0, 0]
    _, chosen, weights = layer.router(x)
    right = torch.zeros_like(x)
    for k in range(2):
        for row in range(2):
            for at in range(9):
                expert = int(chosen[row, at, k])
                gate, up = layer.experts.gate_up[expert]
                inner = F.silu(gate @ x[row, at]) * (up @ x[row, at])
                right[row, at] += weights[row, at, k] * (layer.experts.down[expert] @ inner)
    assert torch.allclose(y, right, atol=1e-5)
