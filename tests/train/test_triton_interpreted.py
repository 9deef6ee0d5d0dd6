"""The Triton kernels without a GPU, by Triton's interpreter, against their plain forms:

    pip install triton==3.9.0 && TRITON_INTERPRET=1 pytest tests/train/test_triton_interpreted.py

Skipped elsewhere: with the variable set, Triton compiles nothing, and it is no part of torch for CPUs. The interpreter
holds bf16 as integers, which it cannot multiply as matrices, so attention runs in fp16 here."""

import os

import pytest
import torch
import torch.nn.functional as F

from trainwright.train.data.batch import IGNORED
from trainwright.train.kernels.adamw import adamw_split, join, split
from trainwright.train.kernels.image_attention import _attend_plain

pytestmark = pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="needs TRITON_INTERPRET=1 and Triton")


@pytest.fixture
def truth_values(monkeypatch):
    """The interpreter gives a comparison of floats as floats, and cannot combine them by `&`."""
    from triton.language import int1
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    both = InterpreterBuilder.create_and

    def create_and(self, left, right):
        if "f" in (left.data.dtype.kind, right.data.dtype.kind):
            left, right = (TensorHandle(x.data.astype(bool), int1) for x in (left, right))
        return both(self, left, right)

    monkeypatch.setattr(InterpreterBuilder, "create_and", create_and)


@pytest.mark.parametrize(("vocab", "columns"), [(1000, 1024), (4096, 4096), (9001, 9024), (100, 128)])
def test_the_loss_is_cross_entropy(vocab, columns):
    from trainwright.train.kernels.cross_entropy_triton import score

    torch.manual_seed(0)
    logits = (torch.randn(5, columns) * 3).bfloat16()
    logits[:, vocab:] = 1e4
    targets = torch.tensor([0, vocab - 1, IGNORED, vocab // 2, 1])
    exact = logits[:, :vocab].double().requires_grad_()
    wanted = F.cross_entropy(exact, targets, ignore_index=IGNORED, reduction="sum") / 4
    (right,) = torch.autograd.grad(wanted, exact)
    loss, grad = score(logits, targets, torch.tensor(0.25), vocab, 0, None)
    assert float(loss) == pytest.approx(float(wanted.detach()), rel=1e-5)
    assert float((grad[:, :vocab].double() - right).norm() / right.norm()) < 1e-2
    assert not grad[:, vocab:].any()


def test_an_update_is_its_plain_form(truth_values):
    from trainwright.train.kernels.adamw_triton import launch

    torch.manual_seed(0)
    value, grad, clip = torch.randn(5003), torch.randn(5003).bfloat16(), torch.tensor(0.5)
    states = []
    for plain in (True, False):
        high, low = torch.empty(5003, dtype=torch.bfloat16), torch.empty(5003, dtype=torch.int16)
        split(value, high, low)
        state = high, low, torch.zeros(5003), torch.zeros(5003)
        for step in (1, 2, 3):
            if plain:
                named = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "decay": 0.1, "step": step}
                adamw_split((*state, grad), clip, **named)
            else:
                launch((*state, grad), clip, 1e-3, 0.9, 0.95, 1e-8, 0.1, 1 - 0.9**step, (1 - 0.95**step) ** 0.5)
        states.append((join(high, low), *state[2:]))
    for one, other in zip(*states, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)
    before = [x.clone() for x in state]
    launch((*state, grad), torch.tensor(torch.nan), 1e-3, 0.9, 0.95, 1e-8, 0.1, 0.1, 0.1)
    assert all(torch.equal(one, other) for one, other in zip(state, before, strict=True))


@pytest.mark.parametrize("out", [torch.float32, torch.bfloat16])
def test_a_scaled_tensor_is_the_tensor_times_the_number(out):
    from trainwright.train.kernels.scale_triton import scaled

    x = torch.randn(9001)
    torch.testing.assert_close(scaled(x.clone(), torch.tensor(1.7), out).float(), 1.7 * x, rtol=2**-7, atol=1e-6)


def test_attention_within_images_is_its_plain_form():
    from trainwright.train.kernels.image_attention_triton import backward, forward

    torch.manual_seed(0)
    groups, images, tokens = ((2, 37), (1, 70)), [2, 1], [37, 70]
    qkv = torch.randn(2 * 37 + 70, 3, 3, 16, dtype=torch.float16)
    out, sums = forward(qkv, images, tokens)
    upstream, exact = torch.randn_like(out), qkv.double().requires_grad_()
    wanted = _attend_plain(exact, groups)
    (right,) = torch.autograd.grad(wanted, exact, upstream.double())
    for got, one in ((out, wanted), (backward(qkv, out, sums, upstream, images, tokens), right)):
        assert float((got.double() - one).detach().norm() / one.detach().norm()) < 2e-3
