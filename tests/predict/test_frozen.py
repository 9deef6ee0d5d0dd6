"""Frozen weights: the predictor counts what the trainer computes and keeps where only adapters are trained, beside a
teacher (DINO) or beside a reference (DPO), and refuses what the trainer cannot do."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from click.testing import CliRunner
from torch.utils.flop_counter import FlopCounterMode

from trainwright.cli.predict import command
from trainwright.errors import UserError
from trainwright.predict import PredictRequest, predict
from trainwright.predict.constants import constants
from trainwright.predict.hardware import cluster
from trainwright.predict.layout import lay_out
from trainwright.predict.memory import activation_bytes, state_bytes
from trainwright.predict.objective import model_flops, objective_of
from trainwright.predict.operators import mean_layer
from trainwright.predict.optimizers import saved_bytes, update_time
from trainwright.predict.profiles import profile
from trainwright.predict.setup import Batch, Setup
from trainwright.predict.step import groups_of, owned_parameters, sharded_weights, step_time
from trainwright.train.config import TrainConfig
from trainwright.train.data.batch import Batch as Tokens
from trainwright.train.engine import Engine, EngineOptions
from trainwright.train.flops import flops_per_token, matmul_parameters
from trainwright.train.lora import LoRAOptions
from trainwright.train.models.adapter_shape import adapter_parameters
from trainwright.train.models.adapters import adapter_sizes
from trainwright.train.models.moe import Experts
from trainwright.train.models.shape import ModelShape, lookup, parameter_count, shapes
from trainwright.train.objectives import objective_for
from trainwright.train.optimizer import AdamWOptions
from trainwright.train.parallel.plan import ParallelPlan

RANK, SAMPLES, LENGTH = 4, 2, 16
G5 = ["--model", "llama3.1-8b", "--instance", "g5.xlarge", "--sequence", "2048"]
KINDS = ["llama3.2-1b-debug", "mixtral-8x7b-debug", "deepseek-v2-lite-debug", "gpt-oss-20b-debug"]


@pytest.fixture(autouse=True)
def one_thread():
    """Models of this size only wait for each other's threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def said(*words: str) -> str:
    result = CliRunner().invoke(command, [*G5, *words])
    return f"{result.output} {result.exception or ''}"


# What the trainer cannot do.


@pytest.mark.parametrize("bits", ["4", "8"])
def test_our_trainer_has_no_quantised_base(bits):
    with pytest.raises(UserError, match=f"no frozen weights in {bits} bits") as caught:
        predict(PredictRequest("llama3.1-8b", "g5.xlarge", sequence=2048, adapter_rank=16, base_bits=int(bits)))
    assert "--trainer torch" in (caught.value.fix or "")
    assert "--base-bits 16" in (caught.value.fix or "")
    assert "MFU" in said("--lora-rank", "16", "--base-bits", bits, "--trainer", "torch")


@pytest.mark.parametrize("trainer", ["megatron", "neuronx"])
def test_trainers_without_it_are_refused_too(trainer):
    with pytest.raises(UserError, match="no frozen weights in 4 bits"):
        predict(PredictRequest("llama3-8b", "p5.48xlarge", adapter_rank=16, base_bits=4, trainer=trainer))


def test_codes_without_adapters_are_refused_wherever_they_are_asked_for():
    with pytest.raises(UserError, match="--base-bits goes with --lora-rank"):
        predict(PredictRequest("llama3-8b", "p5.48xlarge", base_bits=4, trainer="torch"))


@pytest.mark.parametrize("model", ["llama3.1-8b", "deepseek-v2-lite"])
def test_a_rank_above_every_width_is_refused_as_by_the_trainer(model):
    from trainwright.train.setup import refuse_adapters

    with pytest.raises(UserError) as trainer:
        refuse_adapters(lookup(model), 100_000, "sft")
    with pytest.raises(UserError) as caught:
        predict(PredictRequest(model, "p5.48xlarge", adapter_rank=100_000))
    assert (caught.value.what, caught.value.fix) == (trainer.value.what, trainer.value.fix)
    assert "at most" in caught.value.what
    with pytest.raises(UserError, match="at most"):
        predict(PredictRequest(model, "p5.48xlarge", adapter_rank=100_000, trainer="trainwright-eager"))
    predict(PredictRequest(model, "p5.48xlarge", sequence=4096, adapter_rank=max(lookup(model).ffn, 64)))


def test_adapters_of_dino_are_refused_as_by_the_trainer():
    with pytest.raises(UserError, match="heads have to be trained as a whole"):
        predict(PredictRequest("vit-b-16", "p5.48xlarge", objective="dino", adapter_rank=16))


# What is trained.


def test_the_explanation_names_frozen_weights_and_adapters():
    words = said("--lora-rank", "16", "--explain")
    assert "2 bytes each, 41.9 M of adapters" in words
    assert "products, one layer: 4 x" in words


def test_adapters_are_counted_as_the_trainer_builds_them():
    """Every published shape at its debug size: latent attention, shared experts, T5's cross-attention, images."""
    wrong = {}
    for name in shapes():
        shape = lookup(f"{name}-debug")
        built = sum(size.numel() for size in adapter_sizes(shape, LoRAOptions(RANK)).values())
        if adapter_parameters(shape, RANK) != built:
            wrong[name] = built
    assert not wrong


def engine_of(
    model: str, rank: int = 0, objective: str = "causal_lm", optimizer: str = "adamw", **options: str
) -> Engine:
    shape = lookup(model)
    settings = TrainConfig(model=model, objective=objective, sequence=LENGTH, base="x", lora_rank=rank)
    options = EngineOptions(
        lora=LoRAOptions(rank) if rank else None, optimizer=AdamWOptions(optimizer), **{"precision": "bf16", **options}
    )
    return Engine(shape, ParallelPlan(), options, "cpu", objective_for(settings, shape))


def batch_of(vocab: int) -> Tokens:
    tokens = torch.randint(0, vocab, (SAMPLES, LENGTH + 1), generator=torch.Generator().manual_seed(0))
    return Tokens(tokens[:, :-1], tokens[:, 1:], torch.arange(LENGTH)[None].expand(SAMPLES, -1))


def counted(engine: Engine) -> float:
    """FLOPs of the matrix products of one forward and backward pass, per token."""
    with FlopCounterMode(display=False) as counter:
        engine.forward_backward([batch_of(engine.shape.vocab)])
    products = ("mm", "addmm", "bmm", "baddbmm")
    flops = sum(n for op, n in counter.get_flop_counts()["Global"].items() if op.__name__.split(".")[0] in products)
    return flops / SAMPLES / LENGTH


@pytest.mark.parametrize("model", KINDS[:3])
def test_model_flops_are_those_that_the_trainer_computes(model):
    """Attention scores apart. The first layer's queries, keys and values need no gradient of the frozen embedding."""
    shape = lookup(model)
    scores = flops_per_token(shape, LENGTH) - 6.0 * matmul_parameters(shape)
    frozen = counted(engine_of(model, RANK, precision="fp32"))
    assert frozen == pytest.approx(flops_per_token(shape, LENGTH, RANK) - scores, rel=0.1)
    assert frozen < 0.8 * counted(engine_of(model, precision="fp32"))


@pytest.mark.parametrize("model", KINDS)
def test_only_adapters_have_gradients_and_optimizer_state(model):
    fast, engine = engine_of(model, RANK, precision="fp32"), engine_of(model, RANK)
    fast.forward_backward([batch_of(engine.shape.vocab)])
    trained = adapter_parameters(engine.shape, RANK)
    assert sum(p.grad.numel() for p in fast.runner.stages[0].parameters() if p.grad is not None) == trained
    assert sum(slot.first.numel() for slot in engine.optimizer.states.values()) == trained
    assert all(p.element_size() == 2 for p in engine.frozen.values())  # what predict counts for a frozen weight
    adapters = state_bytes(setup(model, RANK))[0] - 2 * parameter_count(engine.shape)
    held = sum(kept(slot) for slot in engine.optimizer.states.values())
    assert adapters == pytest.approx(held, rel=0.01)


def kept(slot) -> int:
    """Bytes of a parameter and its state. On a GPU the fp32 copy is the other half of each bf16 number."""
    return slot.param.numel() * 4 + slot.first.numel() * 4 + slot.second.numel() * 4


def setup(model: str, rank: int = 0, objective: str = "", **changes) -> Setup:
    shape = lookup(model)
    return Setup(
        shape, cluster("p5en.48xlarge", 1, 1), ParallelPlan(), Batch(4096, 1, 1), profile("trainwright"), zero=0,
        frozen=rank > 0, adapter_rank=rank, objective=objective_of(shape, objective), **changes,
    )  # fmt: skip


# MFU.


@pytest.mark.parametrize(("model", "objective", "sequence"), [
    ("llama3-8b", "sft", 4096), ("llama3-8b", "dpo", 4096), ("mixtral-8x7b", "causal_lm", 4096),
    ("roberta-large", "mlm", 512), ("t5-v1.1-large", "span_corruption", 512), ("vit-b-16", "classify", 197),
])  # fmt: skip
def test_trainer_and_predictor_count_the_same_flops_of_frozen_weights(model, objective, sequence):
    shape = lookup(model)
    config = TrainConfig(model=model, objective=objective, sequence=sequence, base="x", lora_rank=16)
    counted, all_trained = (objective_for(replace(config, lora_rank=n), shape).flops_per_token() for n in (16, 0))
    assert model_flops(shape, sequence, objective_of(shape, objective), 16) == pytest.approx(counted, rel=1e-9)
    assert 0.6 * all_trained < counted < 0.85 * all_trained


def test_the_mfu_of_adapters_counts_four_flops_per_frozen_weight():
    p = predict(PredictRequest("llama3.1-8b", "p5.48xlarge", sequence=4096, adapter_rank=16))
    shape = lookup("llama3.1-8b")
    attention = 6 * 32 * 4096 * 4096
    flops = 4 * matmul_parameters(shape) + 6 * 41_943_040 + attention
    assert p.mfu == pytest.approx(p.tokens_per_s_per_gpu * flops / 989e12)


def test_a_preference_pair_with_adapters_adds_the_forward_pass_of_the_reference():
    shape = lookup("llama3-8b")
    both = model_flops(shape, 4096, objective_of(shape, "dpo"), 16)
    assert both == pytest.approx(flops_per_token(shape, 4096, 16) + flops_per_token(shape, 4096) / 3)


# Time.


@pytest.mark.parametrize("model", ["mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v2-lite", "t5-v1.1-large"])
def test_frozen_products_have_no_weight_gradients(model):
    """Stacked experts and cross-attention too: the backward pass has one product per product of the forward pass."""
    frozen, trained = (mean_layer(setup(model, rank), constants()) for rank in (16, 0))
    assert frozen.products_forward == trained.products_forward
    assert trained.products_backward > 1.8 * trained.products_forward
    assert frozen.products_backward < 1.2 * frozen.products_forward


def test_the_head_of_a_frozen_encoder_has_no_weight_gradients():
    encoder = setup("roberta-large", 16, "mlm")
    frozen, trained = (step_time(s, constants()).parts["head"] for s in (encoder, setup("roberta-large")))
    assert 0.5 * trained < frozen < 0.9 * trained


@pytest.mark.parametrize("optimizer", ["muon", "adamw8bit"])
def test_the_other_optimizers_update_adapters_only(optimizer):
    s, whole = (setup("llama3-8b", rank, optimizer=optimizer) for rank in (16, 0))
    times = [update_time(one, owned_parameters(one), groups_of(one)[2], constants()) for one in (s, whole)]
    assert times[0] < 0.05 * times[1]
    held = engine_of("llama3.2-1b-debug", RANK, optimizer="muon").optimizer.states
    assert all(slot.second.numel() == 0 for slot in held.values())  # every adapter is a matrix of a block
    assert saved_bytes(s) == (4.0 if optimizer == "muon" else pytest.approx(5.97, abs=0.01))


def test_frozen_experts_do_not_keep_their_inputs():
    """What autograd saves in the experts of a layer, in fp32: the predictor counts 16 bits."""
    shape = lookup("mixtral-8x7b-debug")
    tokens, k = 16, shape.experts_per_token
    kept = {frozen: saved_by_experts(shape, tokens * k, frozen) for frozen in (False, True)}
    said = {
        frozen: activation_bytes(replace(setup(shape.name, RANK * frozen), batch=Batch(tokens, 1, 1)), "none")
        for frozen in (False, True)
    }
    assert said[False] - said[True] == pytest.approx((kept[False] - kept[True]) / 2)


def saved_by_experts(shape: ModelShape, visits: int, frozen: bool) -> int:
    """Bytes of the activations that the backward of all experts needs, weights apart."""
    experts = Experts(shape)
    experts.requires_grad_(not frozen)
    weights = {p.untyped_storage().data_ptr() for p in experts.parameters()}
    rows = torch.randn(visits, shape.hidden, requires_grad=True)
    counts = torch.full((shape.experts,), visits // shape.experts)
    saved: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if tensor.is_floating_point() and storage.data_ptr() not in weights:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = experts(rows, torch.rand(visits, 1, requires_grad=True), counts)
    assert out.requires_grad
    return sum(saved.values())


# Teacher and reference.


def test_a_reference_is_not_recomputed():
    added = {}
    for name in ("dpo", "sft"):
        plain, again = (
            counted(engine_of("llama3.2-1b-debug", objective=name, precision="fp32", recompute=policy))
            for policy in ("none", "full")
        )
        added[name] = again - plain
    assert added["dpo"] == added["sft"] > 0
    pair, single = (
        step_time(replace(setup("llama3.2-1b", objective=name, recompute="full"), batch=Batch(4096, n, 1)), constants())
        for name, n in (("dpo", 1), ("sft", 2))
    )
    assert pair.parts["recompute"] == pytest.approx(single.parts["recompute"])


def test_the_weights_of_a_reference_are_gathered_too():
    """FSDP shards and gathers its layers as those of the model: where nothing hides that, half as much again."""
    shape, machines = lookup("llama3-8b"), cluster("g5.48xlarge", 2)
    plan, c = ParallelPlan(shard=16), constants()
    alone = Setup(shape, machines, plan, Batch(64, 1, 1), profile("trainwright"))
    pair = replace(alone, objective=objective_of(shape, "dpo"))
    frozen, frozen_pair = (replace(s, frozen=True, adapter_rank=16) for s in (alone, pair))
    shard = groups_of(alone)[2]
    nothing = (0.0, 0.0)
    more = sharded_weights(pair, shard, nothing, c)[0] / sharded_weights(alone, shard, nothing, c)[0]
    assert more == pytest.approx(4 / 3, rel=0.2)  # two gathers and a reduction of fp32 gradients, and now three
    with_adapters = sharded_weights(frozen_pair, shard, nothing, c)[0] / sharded_weights(frozen, shard, nothing, c)[0]
    assert with_adapters == pytest.approx(3 / 2)


def test_the_reference_of_dpo_is_kept_as_the_trainer_keeps_it():
    """One GPU: 16 bits, without an fp32 copy; with adapters there is none."""
    engine = engine_of("llama3.2-1b-debug", objective="dpo")
    assert sum(p.numel() * p.element_size() for p in engine.frozen.values()) == 2 * parameter_count(engine.shape)
    pair, plain = (state_bytes(setup("llama3.2-1b", objective=name))[0] for name in ("dpo", "sft"))
    assert pair - plain == pytest.approx(2 * parameter_count(lookup("llama3.2-1b")), rel=1e-3)
    assert not [name for name in engine_of("llama3.2-1b-debug", RANK, "dpo").frozen if "reference" in name]
    assert state_bytes(setup("llama3.2-1b", 16, "dpo")) == state_bytes(setup("llama3.2-1b", 16, "sft"))


def test_a_sharded_reference_is_kept_in_fp32():
    plain, pair = (
        lay_out(PredictRequest("llama3-8b", "p5.48xlarge", 1, "shard=8", sequence=4096, objective=name), constants())
        for name in ("sft", "dpo")
    )
    more = state_bytes(pair)[0] - state_bytes(plain)[0]
    assert more == pytest.approx(4 * parameter_count(pair.shape) / 8, rel=1e-3)


def test_the_teacher_of_dino_is_kept_in_16_bits_beside_its_fp32_average():
    s = setup("vit-s-16-debug", objective="dino")
    engine = engine_of("vit-s-16-debug", objective="dino")
    shown = sum(p.numel() * p.element_size() for p in engine.frozen.values())
    average = engine.objective.teacher.whole
    students = sum(p.numel() for p in engine.params.values())
    held = 12.0 * students + shown + average.numel() * average.element_size()
    assert state_bytes(s)[0] == pytest.approx(held, rel=0.02)


def test_replicas_hold_fp32_weights_and_their_gathered_copies():
    """As two ranks of the trainer did on a CPU: 4.0 bytes per frozen weight, and 2.0 gathered after the forward."""
    request = PredictRequest("llama3-8b", "p5.48xlarge", 1, "replicate=8", sequence=4096, adapter_rank=16)
    s = lay_out(request, constants())
    weights, adapters = parameter_count(s.shape), adapter_parameters(s.shape, 16)
    assert state_bytes(s) == pytest.approx((4 * weights + 16 * adapters, 2 * weights), rel=1e-3)


def test_weights_frozen_in_fp32_take_four_bytes():
    half, whole = (state_bytes(setup("llama3-8b", 16, precision=p))[0] for p in ("bf16", "fp32"))
    assert whole - half == pytest.approx(2 * parameter_count(lookup("llama3-8b")), rel=0.05)
