"""Every family of decoders on a GPU, in bf16 with its kernels (grouped products, FlexAttention, cuDNN), follows fp32 on
the CPU: documents in some rows, windows, capped scores, latent attention, experts."""

import pytest
import torch

from trainwright.train.data.batch import Batch
from trainwright.train.engine import Engine, EngineOptions
from trainwright.train.models.shape import lookup
from trainwright.train.parallel.plan import ParallelPlan

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
COMPILED = ("mixtral-8x7b-debug", "deepseek-v3-debug", "gemma2-2b-debug", "gpt-oss-20b-debug")
EAGER = (
    "qwen3-30b-a3b-debug", "deepseek-v2-lite-debug", "gemma3-4b-debug", "olmo-2-7b-debug", "phi-3-mini-debug",
    "pythia-1.4b-debug",
)  # fmt: skip


def batch(step: int, documents: bool) -> Batch:
    tokens = torch.randint(0, 2048, (4, 257), generator=torch.Generator().manual_seed(step))
    index = torch.arange(256).expand(4, -1)
    number = (index >= 100).long() * (torch.arange(4)[:, None] < 2)
    rows = 2 if documents else None
    return Batch(tokens[:, :-1], tokens[:, 1:], index - 100 * number, number if documents else None, rows)


def curve(engine: Engine) -> list[tuple[float, float]]:
    outs = [engine.train_step([batch(step, step > 0)], 1e-3) for step in range(3)]
    return [(float(out.loss), float(out.grad_norm)) for out in outs]


@pytest.mark.parametrize(
    ("model", "compiled"), [*((name, True) for name in COMPILED), *((name, False) for name in EAGER)]
)
def test_it_follows_the_cpu(model, compiled):
    exact = Engine(lookup(model), ParallelPlan(), EngineOptions(), "cpu")
    fast = Engine(lookup(model), ParallelPlan(), EngineOptions(precision="bf16", compile=compiled), "cuda")
    fast.load_state_dict(exact.state_dict())
    for got, wanted in zip(curve(fast), curve(exact), strict=True):
        assert got[0] == pytest.approx(wanted[0], rel=3e-3)
        assert got[1] == pytest.approx(wanted[1], rel=5e-2)
