"""The GPU's kernels in the ring: every rank's blocks in bf16 against attention over the whole sequence in fp32."""

import importlib.util
from pathlib import Path

import pytest
import torch

from trainwright.train.models.attention import alibi_slopes

spec = importlib.util.spec_from_file_location("ring_cases", Path(__file__).with_name("test_ring.py"))
cases = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cases)

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")]
PLAIN = {
    "rows": 2,
    "heads": 8,
    "kv_heads": 2,
    "width": 64,
    "value": 0,
    "window": 0,
    "cap": 0,
    "alibi": False,
    "sinks": False,
}
FEATURES = {
    "plain": {},
    "wide": {"width": 128, "rows": 1, "kv_heads": 8},
    "latent": {"width": 192, "value": 128, "kv_heads": 8},
    "odd width": {"width": 60},
    "window": {"window": 300},
    "soft cap": {"cap": 5.0, "window": 300},
    "ALiBi": {"alibi": True},
    "sinks": {"sinks": True},
}


def check(case: dict, documents: torch.Tensor | None) -> None:
    q, k, v, grad = (x.cuda().bfloat16() for x in cases.tensors(case, 0))
    slopes = alibi_slopes(case["heads"]).cuda() if case["alibi"] else None
    sinks = torch.randn(case["heads"], device="cuda") if case["sinks"] else None
    leaves = [x.float().requires_grad_() for x in (q, k, v)] + ([sinks.requires_grad_()] if case["sinks"] else [])
    wanted = cases.right(case, *leaves[:3], documents, slopes, sinks)
    wanted = [wanted, *torch.autograd.grad(wanted, leaves, grad.float())]
    with torch.no_grad():
        got = cases.play(case, q, k, v, grad, documents, slopes, sinks)
    for name, one, other in zip(("out", "q", "k", "v", "sinks"), got, wanted, strict=False):
        error = float((one.float() - other).norm() / other.norm())
        assert error < 0.015, f"{name}: {error}"


@pytest.mark.parametrize("share", [None, 1 / 20, 1 / 300, 1 / 3000], ids=["whole", "short", "middle", "long"])
@pytest.mark.parametrize(
    ("kernel", "feature"), [*(("cudnn", feature) for feature in FEATURES), ("flash", "plain"), ("flash", "latent")]
)
def test_kernels_of_the_gpu(kernel, feature, share):
    case = {**PLAIN, **FEATURES[feature], "ranks": 3, "half": 200, "length": 1200, "device": "cuda"}
    rolls = torch.rand(case["rows"], 1200, generator=torch.Generator().manual_seed(1))
    documents = None if share is None else (rolls < share).long().cumsum(1).cuda()
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(kernel == "cudnn")
    try:
        check(case, documents)
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


def test_documents_that_begin_at_the_chunks():
    case = {**PLAIN, "ranks": 4, "half": 128, "length": 1024, "device": "cuda"}
    check(case, (torch.arange(1024, device="cuda") // 128).expand(2, -1).contiguous())
