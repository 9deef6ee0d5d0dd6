"""Float8 products on the CPU, which torch computes too. Each recipe is judged by its definition written once more with
plain arithmetic, and by the error that its format allows, in all three products."""

import math

import pytest
import torch

from trainwright.train.float8.layers import JOINED, LAYERS, apply_float8
from trainwright.train.float8.mxfp8 import swizzle
from trainwright.train.float8.recipes import RECIPES, lacking
from trainwright.train.models.decoder import Decoder, Linear
from trainwright.train.models.shape import lookup

E4M3, E5M2 = 2**-4, 2**-3  # half of the last place, relative
# Rows and columns of a part with its own scale, of what is contracted along its rows; and of a weight.
PARTS = {"rowwise": ((1, 0), (1, 0)), "blockwise": ((1, 128), (128, 128)), "mxfp8": ((1, 32), (1, 32))}


def error(got: torch.Tensor, right: torch.Tensor) -> float:
    return float((got.detach().double() - right).norm() / right.norm())


def rounded(x: torch.Tensor, part: tuple[int, int]) -> torch.Tensor:
    """What a matrix becomes: in each part, the 3 bits after the leading one at a scale that is a power of two."""
    out = x.double().clone()
    rows, columns = part[0], part[1] or x.shape[1]
    for top in range(0, x.shape[0], rows):
        for left in range(0, x.shape[1], columns):
            here = out[top : top + rows, left : left + columns]
            scale = 2.0 ** math.floor(math.log2(448 / max(float(here.abs().max()), 1e-12)))
            _, exponent = torch.frexp(here * scale)
            unit = torch.exp2((exponent - 4).clamp(min=-9).double())  # below 2**-6 numbers are evenly spaced
            here.copy_(torch.round(here * scale / unit) * unit / scale)
    return out


def judged(recipe, x, weight, upstream):
    """The three products of a layer out of rounded matrices, each along what it contracts."""
    strip, block = PARTS[recipe]
    y = rounded(x, strip) @ rounded(weight, block).t()
    x_grad = rounded(upstream, strip) @ rounded(weight.t(), block).t()
    return y, x_grad, rounded(upstream.t(), strip) @ rounded(x.t(), strip).t()


def operands(tokens=256, size=1.0):
    torch.manual_seed(0)
    x = (torch.randn(2, tokens // 2, 256) * size).bfloat16()
    x[0, 3, 5] *= 300  # an outlier
    return x.requires_grad_(), (torch.randn(384, 256) / 50).bfloat16().requires_grad_()


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e4])
@pytest.mark.parametrize("recipe", PARTS)
def test_products_are_those_of_rounded_matrices(recipe, size):
    x, weight = operands(size=size)
    y = LAYERS[recipe](x, weight, None)
    upstream = (torch.randn_like(y) / size).bfloat16()
    y.backward(upstream)
    flat = [t.detach().reshape(-1, t.shape[-1]).double() for t in (x, weight, upstream)]
    for got, right in zip((y.flatten(0, 1), x.grad.flatten(0, 1), weight.grad), judged(recipe, *flat), strict=True):
        assert error(got, right) < 2e-3  # rounding of the result to bf16


def test_a_joined_gradient_has_the_same_product():
    x, weight = operands()
    grads = []
    for layer in (JOINED, LAYERS["tensorwise"]):
        y = layer(x, weight, None)
        grads.append(torch.autograd.grad(y, (x, weight), torch.ones_like(y) / 3))
    assert all(torch.equal(one, other) for one, other in zip(*grads, strict=True))


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e4])
def test_products_are_as_exact_as_the_format(recipe, size):
    torch.manual_seed(0)
    x = (torch.randn(2, 64, 128) * size).bfloat16().requires_grad_()
    weight = (torch.randn(256, 128) / 50).bfloat16().requires_grad_()
    y = LAYERS[recipe](x, weight, None)
    upstream = torch.randn_like(y) / size
    y.backward(upstream)
    left, right, grad = x.detach().double(), weight.detach().double(), upstream.detach().double()
    bound = E5M2 if recipe == "tensorwise" else E4M3
    assert 0 < error(y, left @ right.t()) < E4M3
    assert 0 < error(x.grad, grad @ right) < bound
    assert 0 < error(weight.grad, torch.einsum("bto,bti->oi", grad, left)) < bound


@pytest.mark.parametrize("recipe", PARTS)
def test_an_outlier_costs_less_than_with_one_scale(recipe):
    """One number 300,000 times the others: with one scale for all, the others are rounded to nothing."""
    torch.manual_seed(0)
    x, weight = torch.randn(128, 256).bfloat16(), torch.randn(128, 256).bfloat16()
    x[0, 0] = 3e5
    exact = (x.double() @ weight.double().t())[1:]
    assert error(LAYERS[recipe](x, weight, None)[1:], exact) < E4M3
    assert error(LAYERS["tensorwise"](x, weight, None)[1:], exact) > 2 * E4M3


@pytest.mark.parametrize("recipe", RECIPES)
def test_odd_numbers_of_tokens_bias_and_frozen_weights(recipe):
    torch.manual_seed(0)
    x, weight, bias = torch.randn(3, 25, 128).bfloat16(), torch.randn(128, 128).bfloat16(), torch.randn(128).bfloat16()
    x.requires_grad_()
    y = LAYERS[recipe](x, weight, bias)
    (x_grad,) = torch.autograd.grad(y, x, torch.ones_like(y))
    assert y.shape == (3, 25, 128)
    assert error(y, x.detach().double() @ weight.double().t() + bias.double()) < E4M3
    assert error(x_grad, torch.ones(3, 25, 128).double() @ weight.double()) < E4M3
    assert LAYERS[recipe](torch.zeros_like(x), weight, None).eq(0).all()


@pytest.mark.parametrize("recipe", RECIPES)
def test_blocks_are_in_float8_and_the_head_is_not(recipe):
    with torch.device("meta"):
        model = Decoder(lookup("llama3.1-8b-debug"))
    note = apply_float8(model, recipe)
    swapped = {name for name, m in model.named_modules() if isinstance(m, Linear) and m.product is not Linear.product}
    assert "head" not in swapped
    assert f"{len(swapped)} linear layers" in note
    assert recipe == "blockwise" or len(swapped) == 5 * len(model.layers())


def test_exponents_lie_as_the_tensor_cores_read_them():
    """The offset of a scale as cuBLAS documents it, for each one."""
    rows, columns = 160, 6
    exponents = torch.arange(rows * columns) % 200 - 100
    laid = swizzle(torch.exp2(exponents.float()).view(rows, columns)).view(torch.uint8)
    assert laid.numel() == 256 * 8
    for row in range(rows):
        for column in range(columns):
            tile = (row // 128) * 2 + column // 4
            at = tile * 512 + (row % 32) * 16 + (row % 128 // 32) * 4 + column % 4
            assert laid[at] == exponents[row * columns + column] + 127


@pytest.mark.parametrize(
    ("capability", "recipes"),
    [
        ((8, 0), []),
        ((8, 9), ["tensorwise", "rowwise"]),
        ((9, 0), ["tensorwise", "rowwise", "blockwise"]),
        ((10, 0), ["tensorwise", "rowwise", "mxfp8"]),
    ],
)
def test_recipes_of_a_card(capability, recipes):
    assert [name for name in RECIPES if not lacking(name, capability)] == recipes
