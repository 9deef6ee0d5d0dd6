"""What torch and cuBLAS demand of a float8 product on a GPU, checked without one. A stand-in for `torch._scaled_mm`
asserts each demand on types, strides and scales (ATen/native/cuda/ScaledBlas.cpp, torch 2.11 to 2.13) and multiplies
what cuBLAS would read: scales by their addresses, in the order that its manual gives, and not by torch's strides.
That the hardware accepts and computes the same is for tests/train/test_engine_gpu.py to show."""

import pytest
import torch

from trainwright.train.float8.layers import LAYERS
from trainwright.train.float8.recipes import RECIPES

FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
# How the recipe's two sorts of products are scaled; a row of one block has one scale, which torch takes as its row's.
KINDS = {
    "tensorwise": {"tensor"},
    "rowwise": {"rows"},
    "blockwise": {"strips and blocks", "strips", "rows"},
    "mxfp8": {"exponents"},
}


def up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def in_memory(scale: torch.Tensor, count: int) -> torch.Tensor:
    """So many numbers from the tensor's address on."""
    return scale.as_strided((count,), (1,), scale.storage_offset())


def strided(scale: torch.Tensor, shape: tuple[int, int], strides: tuple[int, int]) -> bool:
    """The stride of a dimension of one means nothing."""
    pairs = zip(shape, scale.stride(), strides, strict=True)
    return scale.shape == shape and all(size <= 1 or one == other for size, one, other in pairs)


def is_strips(scale: torch.Tensor, rows: int, width: int) -> bool:
    return strided(scale, (rows, width // 128), (1, rows))


def is_blocks(scale: torch.Tensor, rows: int, width: int) -> bool:
    """Rows of whole 16 bytes; torch 2.11 wants them unpadded, so both hold for multiples of four blocks alone."""
    blocks = width // 128
    return blocks % 4 == 0 and strided(scale, (rows // 128, blocks), (blocks, 1))


def of_strips(scale: torch.Tensor, rows: int, width: int) -> torch.Tensor:
    return in_memory(scale, rows * width // 128).view(width // 128, rows).t().repeat_interleave(128, 1)


def of_blocks(scale: torch.Tensor, rows: int, width: int) -> torch.Tensor:
    blocks = in_memory(scale, rows // 128 * width // 128).view(rows // 128, width // 128)
    return blocks.repeat_interleave(128, 0).repeat_interleave(128, 1)


def of_exponents(scale: torch.Tensor, rows: int, width: int) -> torch.Tensor:
    columns = width // 32
    row, column = torch.arange(rows)[:, None], torch.arange(columns)[None]
    tile = (row // 128) * (up(columns, 4) // 4) + column // 4
    at = tile * 512 + (row % 32) * 16 + (row % 128 // 32) * 4 + column % 4
    exponents = in_memory(scale, scale.numel()).view(torch.uint8)[at].int() - 127
    return torch.exp2(exponents.float()).repeat_interleave(32, 1)


def scales_of(a: torch.Tensor, b: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> tuple:
    """(kind, scale of each number of a, of each of b), by torch's order of precedence."""
    (m, k), n = a.shape, b.shape[0]
    if one.dtype == torch.float8_e8m0fnu:
        for scale, rows in ((one, m), (other, n)):
            assert scale.dtype == torch.float8_e8m0fnu
            assert scale.numel() == up(rows, 128) * up(-(-k // 32), 4)
            assert scale.is_contiguous()
        return "exponents", of_exponents(one, m, k), of_exponents(other, n, k)
    assert one.dtype == other.dtype == torch.float32
    if one.numel() == other.numel() == 1:
        return "tensor", in_memory(one, 1), in_memory(other, 1)
    other = other.t()
    if one.shape == (m, 1) and other.shape == (n, 1):
        assert one.is_contiguous()
        assert other.t().is_contiguous()
        assert one.stride(0) == other.stride(0) == 1  # for CUTLASS, on cards before and after Hopper
        return "rows", in_memory(one, m)[:, None], in_memory(other, n)[:, None]
    assert k % 128 == 0
    assert m % 4 == 0
    assert is_strips(one, m, k), (one.shape, one.stride())
    if is_blocks(other, n, k):
        return "strips and blocks", of_strips(one, m, k), of_blocks(other, n, k)
    assert is_strips(other, n, k), (other.shape, other.stride())
    return "strips", of_strips(one, m, k), of_strips(other, n, k)


class ScaledProduct:
    """The stand-in, and which kinds of scales it was given."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def __call__(self, a, b, scale_a, scale_b, *, out_dtype, use_fast_accum=False):
        (_, k), n = a.shape, b.shape[1]
        assert b.shape[0] == k
        assert a.stride() == (k, 1), "row-major"
        assert b.stride() == (1, k), "column-major"
        assert k % 16 == n % 16 == 0
        assert a.dtype in FLOAT8
        assert b.dtype in FLOAT8
        assert torch.float8_e4m3fn in (a.dtype, b.dtype)
        assert all(x.data_ptr() % 16 == 0 for x in (a, b, scale_a, scale_b))
        assert out_dtype == torch.bfloat16
        kind, one, other = scales_of(a, b.t(), scale_a, scale_b)
        assert kind in ("tensor", "rows") or not use_fast_accum
        self.kinds.append(kind)
        return ((a.float() * one) @ (b.t().float() * other).t()).bfloat16()


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """Float8 tensors say that they are on a GPU, and their product is the stand-in."""
    product, device = ScaledProduct(), torch._C.TensorBase.device
    claimed = property(lambda x: torch.device("cuda") if x.dtype in FLOAT8 else device.__get__(x))
    monkeypatch.setattr(torch, "_scaled_mm", product)
    monkeypatch.setattr(torch.Tensor, "device", claimed, raising=False)
    return product


def products(recipe: str, x: torch.Tensor, weight: torch.Tensor, upstream: torch.Tensor) -> list[torch.Tensor]:
    left, right = x.clone().requires_grad_(), weight.clone().requires_grad_()
    y = LAYERS[recipe](left, right, None)
    return [y.detach(), *torch.autograd.grad(y, (left, right), upstream)]


@pytest.mark.parametrize("recipe", RECIPES)
def test_products_meet_the_demands_of_a_gpu(recipe, request):
    """Widths of one, of few and of four blocks, odd numbers of tokens, and an outlier that shows where scales lie."""
    unit = RECIPES[recipe].multiple
    sizes = [(m, unit * k, unit * n) for m in (1, 200) for k, n in ((1, 3), (4, 5), (5, 4))]
    cases, wanted = [], []
    torch.manual_seed(0)
    for tokens, width, out in sizes:
        x, weight = torch.randn(tokens, width).bfloat16(), torch.randn(out, width).bfloat16()
        x[tokens // 2] *= 100
        weight[:, width // 2 :] *= 50
        cases.append((x, weight, torch.randn(tokens, out).bfloat16() * torch.rand(tokens, 1).bfloat16()))
        wanted.append(products(recipe, *cases[-1]))
    double = request.getfixturevalue("as_on_a_gpu")
    for case, right in zip(cases, wanted, strict=True):
        for got, one in zip(products(recipe, *case), right, strict=True):
            torch.testing.assert_close(got, one, rtol=2**-7, atol=1e-3 * float(one.abs().max()))
    assert set(double.kinds) == KINDS[recipe]
    assert len(double.kinds) == 3 * len(cases)
