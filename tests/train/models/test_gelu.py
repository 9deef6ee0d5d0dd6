"""GELU of compiled code, the interpolation matrix, and which steps share a recording."""

import torch
import torch.nn.functional as F

from trainwright.train.models.mlp import _Gelu
from trainwright.train.models.vision import interpolation


def test_gelu_of_compiled_code():
    x = torch.linspace(-12, 12, 4001, requires_grad=True)
    ours, theirs = _Gelu.apply(x), F.gelu(x)
    torch.testing.assert_close(ours, theirs, atol=2e-6, rtol=1e-6)
    gradients = [torch.autograd.grad(y.sum(), x)[0] for y in (ours, theirs)]
    torch.testing.assert_close(*gradients, atol=2e-6, rtol=1e-6)


def test_interpolation_is_bicubic():
    table = torch.randn(49, 5, generator=torch.Generator().manual_seed(0))
    grid = table.view(1, 7, 7, 5).permute(0, 3, 1, 2)
    wanted = F.interpolate(grid, size=(3, 4), mode="bicubic", align_corners=False).flatten(2)[0].t()
    torch.testing.assert_close(interpolation(7, 3, 4, torch.device("cpu")) @ table, wanted, atol=1e-5, rtol=1e-5)
