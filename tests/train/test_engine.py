"""The engine in one process: accumulation, documents, guards' skip, precision, offload, resume, and its words."""

from dataclasses import replace

import pytest
import torch

from trainwright.errors import UserError
from trainwright.train.data.batch import IGNORED, Batch
from trainwright.train.engine import Engine, EngineOptions
from trainwright.train.kernels.adamw import join, split
from trainwright.train.models.shape import lookup
from trainwright.train.parallel.plan import ParallelPlan

LLAMA = replace(lookup("llama3.1-8b-debug"), vocab=256)


def engine(shape=LLAMA, **options) -> Engine:
    return Engine(shape, ParallelPlan(), EngineOptions(**options), "cpu")


def batch(rows: int = 4, length: int = 40, seed: int = 0, vocab: int = LLAMA.vocab) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, vocab, (rows, length + 1), generator=generator)
    targets = tokens[:, 1:].clone()
    targets[0, :30] = IGNORED
    return Batch(tokens[:, :-1], targets, torch.arange(length).expand(rows, -1))


def rows(whole: Batch, part: slice) -> Batch:
    documents = None if whole.documents is None else whole.documents[part]
    return Batch(whole.tokens[part], whole.targets[part], whole.positions[part], documents)


def curve(built: Engine, steps: int = 3) -> list[tuple[float, float]]:
    outs = [built.train_step([batch(seed=s)], 1e-3) for s in range(steps)]
    return [(float(o.loss), float(o.grad_norm)) for o in outs]


def test_microbatches_are_weighed_by_their_tokens():
    """The first row has far fewer targets than the others; the mean is over tokens, not over micro-batches."""
    whole, one, four = batch(), engine(), engine()
    wanted = one.train_step([whole], 1e-3)
    got = four.train_step([rows(whole, slice(i, i + 1)) for i in range(4)], 1e-3)
    assert int(got.tokens) == int(wanted.tokens) == 4 * 40 - 30
    assert float(got.loss) == pytest.approx(float(wanted.loss), rel=1e-6)
    assert float(got.grad_norm) == pytest.approx(float(wanted.grad_norm), rel=1e-5)


@pytest.mark.parametrize("name", ["llama3-8b-debug", "mistral-7b-v0.1-debug", "mpt-7b-debug"])
def test_documents_see_nothing_of_each_other(name):
    """Two documents packed into one row give the loss of the two apart."""
    shape = lookup(name)
    tokens = torch.randint(0, shape.vocab, (1, 121))
    targets = tokens[:, 1:].clone()
    targets[0, 49] = IGNORED
    index = torch.arange(120)[None]
    number = (index >= 50).long()
    packed = Batch(tokens[:, :-1], targets, index - 50 * number, number)
    apart = [
        Batch(tokens[:, :50], targets[:, :50], index[:, :50]),
        Batch(tokens[:, 50:120], targets[:, 50:], index[:, :70]),
    ]
    judge = engine(shape)
    assert judge.evaluate([packed]) == pytest.approx(judge.evaluate(apart), rel=1e-6)
    leaky = Batch(packed.tokens, packed.targets, packed.positions)
    assert judge.evaluate([leaky]) != pytest.approx(judge.evaluate(apart), rel=1e-6)


def test_a_discarded_step_leaves_no_trace():
    built = engine()
    built.forward_backward([batch(seed=9)])
    built.discard()
    assert curve(built) == curve(engine())


@pytest.mark.parametrize("mode", ["selective", "full"])
def test_recomputation_changes_nothing(mode):
    assert curve(engine(recompute=mode)) == curve(engine())


def test_offloaded_optimizer_changes_nothing():
    assert curve(engine(offload_optimizer=True)) == curve(engine())


def test_bf16_follows_fp32_and_keeps_its_masters():
    low, full = engine(precision="bf16"), engine()
    for got, wanted in zip(curve(low), curve(full), strict=True):
        assert got == pytest.approx(wanted, rel=0.02)
    name = "blocks.0.mlp.up.weight"
    master = low.state_dict()["model"][name]
    assert master.dtype == torch.float32
    assert not torch.equal(master, low.params[name].detach().float())
    assert torch.all((low.params[name].detach().float() - master).abs() <= 2**-8 * master.abs())


def test_split_master_is_exact():
    value = torch.randn(10_000) * torch.logspace(-20, 20, 10_000)
    high, low = torch.empty(10_000, dtype=torch.bfloat16), torch.empty(10_000, dtype=torch.int16)
    split(value, high, low)
    assert torch.equal(join(high, low), value)
    assert float(((high.float() - value) / value).abs().max()) <= 2**-8


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_state_resumes_bit_for_bit(precision):
    first = engine(precision=precision)
    curve(first, 2)
    saved = {
        k: ({n: t.clone() for n, t in v.items()} if isinstance(v, dict) else v) for k, v in first.state_dict().items()
    }
    second = engine(precision=precision, seed=1)
    second.load_state_dict(saved)
    assert curve(second) == curve(first)


def test_clipping_scales_the_gradient_not_its_reported_norm():
    """Adam forgets a constant factor, so the moments show the clipping: they are smaller by the factor itself."""
    free, tight = engine(max_norm=0.0), engine(max_norm=0.1)
    norms = [float(built.train_step([batch()], 1e-3).grad_norm) for built in (free, tight)]
    assert norms[0] == pytest.approx(norms[1])
    whole, cut = (built.state_dict()["exp_avg"]["norm.weight"] for built in (free, tight))
    assert torch.allclose(cut, whole * 0.1 / norms[0], rtol=1e-4)


def test_same_seed_same_model_other_seed_another():
    name = "blocks.1.attention.qkv.weight"
    one, two, three = engine(), engine(), engine(seed=1)
    assert torch.equal(one.params[name], two.params[name])
    assert not torch.equal(one.params[name], three.params[name])
    out = one.params["blocks.0.mlp.down.weight"]
    assert float(out.detach().std()) == pytest.approx(0.02 / (2 * LLAMA.layers) ** 0.5, rel=0.05)


def test_description_says_what_runs():
    text = "\n".join(engine(recompute="selective").description())
    assert "attention" in text
    assert "fp32" in text
    assert "selective" in text


@pytest.mark.parametrize("wrong", [{"precision": "fp16"}, {"attention": "fast"}])
def test_options_that_cannot_be_had(wrong):
    with pytest.raises(UserError):
        engine(**wrong)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_step_that_is_not_finite_leaves_the_weights_alone(precision):
    """Decided on the device: the host learns of it only later."""
    built = engine(precision=precision)
    built.train_step([batch()], 1e-3)
    before = {
        kind: {k: v.clone() for k, v in values.items()} for kind, values in built.state_dict().items() if kind != "step"
    }
    built.forward_backward([batch(seed=1)])
    next(iter(built.params.values())).grad.fill_(torch.inf)
    assert not torch.isfinite(built.optimizer_step(1e-3))
    after = built.state_dict()
    assert all(torch.equal(after[kind][k], v) for kind, values in before.items() for k, v in values.items())


def test_the_loss_of_an_evaluation_does_not_depend_on_the_micro_batch():
    """Three of four rows are without targets: as micro-batches of their own they add nothing to the mean."""
    whole, built = batch(), engine()
    whole.targets[1:] = IGNORED
    parts = [rows(whole, slice(i, i + 1)) for i in range(4)]
    assert built.evaluate(parts) == pytest.approx(built.evaluate([whole]), rel=1e-6)
    assert built.evaluate(parts[1:]) == 0
