"""GELU of compiled code, the interpolation matrix, and which steps share a recording."""

import torch
import torch.nn.functional as F

from trainwright.train.data.batch import Batch
from trainwright.train.models.mlp import _Gelu
from trainwright.train.models.shape import lookup
from trainwright.train.models.vision import interpolation
from trainwright.train.objectives.causal_lm import CausalLM


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


def test_a_recording_serves_batches_with_the_same_kernels():
    rows = torch.zeros(8, 4, dtype=torch.int64)
    objective = CausalLM(lookup("gpt2-124m-debug"))
    keys = [objective.replay_key(Batch(rows, rows, rows, rows, mixed_rows=n)) for n in (0, 1, 2, 3)]
    assert keys[1] == keys[2] != keys[3] != keys[0]  # rounded up to quarters of the rows
    assert objective.replay_key(Batch(rows, rows, rows)) == keys[0]
    assert CausalLM(lookup("mixtral-8x7b-debug")).replay_key(Batch(rows, rows, rows)) is None
