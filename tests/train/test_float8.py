"""Float8 products on the CPU, which torch computes too: their error is that of the format, in all three products."""

import pytest
import torch

from trainwright.train.float8 import apply_float8, float8_linear
from trainwright.train.models.decoder import Decoder, Linear
from trainwright.train.models.shape import lookup

E4M3, E5M2 = 2**-4, 2**-3  # half of the last place, relative


def error(got: torch.Tensor, right: torch.Tensor) -> float:
    return float((got.detach().double() - right).norm() / right.norm())


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e4])
def test_products_are_as_exact_as_the_format(size):
    torch.manual_seed(0)
    x = (torch.randn(2, 64, 128) * size).bfloat16().requires_grad_()
    weight = (torch.randn(96, 128) / 50).bfloat16().requires_grad_()
    y = float8_linear(x, weight, None)
    upstream = torch.randn_like(y) / size
    y.backward(upstream)
    left, right, grad = x.detach().double(), weight.detach().double(), upstream.detach().double()
    assert 0 < error(y, left @ right.t()) < E4M3
    assert 0 < error(x.grad, grad @ right) < E5M2
    assert 0 < error(weight.grad, torch.einsum("bto,bti->oi", grad, left)) < E5M2


def test_zeros_stay_zeros():
    x = torch.zeros(16, 32, dtype=torch.bfloat16)
    assert float8_linear(x, torch.ones(16, 32, dtype=torch.bfloat16), None).eq(0).all()


def test_blocks_are_in_float8_and_the_head_is_not():
    with torch.device("meta"):
        model = Decoder(lookup("llama3.1-8b-debug"))
    apply_float8(model)
    swapped = {name for name, m in model.named_modules() if isinstance(m, Linear) and m.product is float8_linear}
    assert "head" not in swapped
    assert len(swapped) == 5 * len(model.layers())
