"""Time a grid of operators and small models on one GPU: the predictor's constants are based on these measurements.

Run on a machine with an NVIDIA GPU: `python benchmarks/device_operators.py OUT.csv`. Needs only torch."""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

Row = dict[str, object]
DEVICE = "cuda"


def seconds(work: Callable[[], object], budget: float = 0.12) -> float:
    """Mean seconds of one call, over enough calls to fill `budget` (so that power limits have set in)."""
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    once = max(time.perf_counter() - start, 1e-6)
    calls = max(3, min(400, int(budget / once)))
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(calls):
        work()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1e3 / calls


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, device=DEVICE, dtype=torch.bfloat16)


def matmuls() -> Iterator[Row]:
    shapes = [(h, n * h) for h in (1024, 2048, 4096, 8192, 16384) for n in (1, 4)]
    shapes += [
        (4096, 768),
        (4096, 1792),
        (512, 4096),
        (1792, 4096),
        (8192, 1280),
        (8192, 7168),
        (1024, 8192),
        (3584, 8192),
    ]
    shapes += [(4096, 28672), (14336, 4096), (4096, 128256), (8192, 57344), (28672, 8192)]
    for tokens in (2048, 4096, 8192, 16384):
        for k, n in shapes:
            a, b, g = random(tokens, k), random(n, k), random(tokens, n)
            for name, work in {
                "forward": lambda a=a, b=b: a @ b.T,
                "input-grad": lambda g=g, b=b: g @ b,
                "weight-grad": lambda g=g, a=a: g.T @ a,
            }.items():
                took = seconds(work, 0.05)
                yield (
                    {
                        "op": "matmul",
                        "kind": name,
                        "precision": "bf16",
                        "m": tokens,
                        "n": n,
                        "k": k,
                        "seconds": took,
                        "tflops": 2 * tokens * n * k / took / 1e12,
                    }
                )


def scaled_matmuls() -> Iterator[Row]:
    one = torch.tensor(1.0, device=DEVICE)
    for tokens in (4096, 16384):
        for k, n in (
            (2048, 8192),
            (4096, 4096),
            (4096, 28672),
            (14336, 4096),
            (8192, 7168),
            (8192, 57344),
            (28672, 8192),
        ):
            a = random(tokens, k).to(torch.float8_e4m3fn)
            b = random(n, k).to(torch.float8_e4m3fn).T
            rowscale, colscale = torch.ones(tokens, 1, device=DEVICE), torch.ones(1, n, device=DEVICE)
            for recipe, x, y in (("tensorwise", one, one), ("rowwise", rowscale, colscale)):
                for fast in (True, False):
                    took = seconds(
                        lambda a=a, b=b, x=x, y=y, fast=fast: torch._scaled_mm(
                            a, b, scale_a=x, scale_b=y, out_dtype=torch.bfloat16, use_fast_accum=fast
                        ),
                        0.05,
                    )
                    yield (
                        {
                            "op": "matmul",
                            "kind": "fast-accum" if fast else "full-accum",
                            "precision": f"fp8-{recipe}",
                            "m": tokens,
                            "n": n,
                            "k": k,
                            "seconds": took,
                            "tflops": 2 * tokens * n * k / took / 1e12,
                        }
                    )


def attention() -> Iterator[Row]:
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
        for heads, width in ((32, 128), (64, 64)):
            for seq in (512, 1024, 2048, 4096, 8192, 16384, 32768):
                batch = max(1, 16384 // seq)
                q, k, v = (random(batch, heads, seq, width).requires_grad_() for _ in range(3))
                with sdpa_kernel(backend):
                    forward = seconds(lambda q=q, k=k, v=v: F.scaled_dot_product_attention(q, k, v, is_causal=True))
                    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
                    grad = torch.randn_like(out)
                    backward = seconds(
                        lambda out=out, q=q, k=k, v=v, grad=grad: torch.autograd.grad(
                            out, (q, k, v), grad, retain_graph=True
                        )
                    )
                work = 2 * batch * heads * seq * seq * width
                for kind, took, flops in (("forward", forward, work), ("backward", backward, 2.5 * work)):
                    yield (
                        {
                            "op": "attention",
                            "kind": kind,
                            "precision": backend.name.split("_")[0].lower(),
                            "m": batch,
                            "n": seq,
                            "k": width,
                            "seconds": took,
                            "tflops": flops / took / 1e12,
                        }
                    )


def rms_norm(x: Tensor, w: Tensor) -> Tensor:
    y = x.float()
    return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * w


def gated(x: Tensor, y: Tensor) -> Tensor:
    return F.silu(x) * y


def loss(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits.float(), labels)


def memory_bound() -> Iterator[Row]:
    tokens, h, f, vocab = 16384, 4096, 14336, 128256
    x, w, u, g = (
        random(tokens, h).requires_grad_(),
        random(h),
        random(tokens, f).requires_grad_(),
        random(tokens, f).requires_grad_(),
    )
    logits, labels = random(8192, vocab).requires_grad_(), torch.randint(vocab, (8192,), device=DEVICE)
    cases: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...], tuple[Tensor, ...], int]] = {
        "rmsnorm": (rms_norm, (x, w), (x,), tokens * h),
        "swiglu": (gated, (u, g), (u, g), tokens * f),
        "cross-entropy": (loss, (logits, labels), (logits,), 8192 * vocab),
        "layernorm": (lambda a, b: F.layer_norm(a, (h,), b), (x, w), (x,), tokens * h),
    }
    for mode in ("eager", "compiled"):
        for name, (function, inputs, leaves, elements) in cases.items():
            call = torch.compile(function) if mode == "compiled" else function
            forward = seconds(lambda call=call, inputs=inputs: call(*inputs))
            out = call(*inputs)
            grad = torch.randn_like(out)

            def both(call=call, inputs=inputs, leaves=leaves, grad=grad) -> object:
                return torch.autograd.grad(call(*inputs), leaves, grad)

            total = seconds(both)
            for kind, took in (("forward", forward), ("forward+backward", total)):
                yield (
                    {
                        "op": name,
                        "kind": kind,
                        "precision": mode,
                        "m": elements,
                        "n": 0,
                        "k": 0,
                        "seconds": took,
                        "tflops": 0.0,
                    }
                )
    parameters = [nn.Parameter(torch.randn(64 * 1024 * 1024, device=DEVICE)) for _ in range(8)]
    for p in parameters:
        p.grad = torch.randn_like(p)
    for mode in ("fused", "foreach"):
        optimizer = torch.optim.AdamW(parameters, **{mode: True})
        took = seconds(optimizer.step)
        yield (
            {
                "op": "adamw",
                "kind": mode,
                "precision": "fp32",
                "m": sum(p.numel() for p in parameters),
                "n": 0,
                "k": 0,
                "seconds": took,
                "tflops": 0.0,
            }
        )
        del optimizer


class Block(nn.Module):
    """A Llama block of the given width; the grid trains a short stack of it."""

    def __init__(self, h: int, heads: int, kv: int, f: int) -> None:
        super().__init__()
        self.heads, self.kv, self.d = heads, kv, h // heads
        self.qkv = nn.Linear(h, (heads + 2 * kv) * self.d, bias=False)
        self.out = nn.Linear(h, h, bias=False)
        self.up = nn.Linear(h, 2 * f, bias=False)
        self.down = nn.Linear(f, h, bias=False)
        self.n1, self.n2 = nn.RMSNorm(h), nn.RMSNorm(h)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        b, s, h = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, s, -1, self.d).transpose(1, 2).split((self.heads, self.kv, self.kv), 1)
        a = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True, enable_gqa=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, s, h))
        gate, up = self.up(self.n2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Stack(nn.Module):
    def __init__(self, layers: int, h: int, heads: int, kv: int, f: int, vocab: int) -> None:
        super().__init__()
        self.embed, self.head, self.norm = nn.Embedding(vocab, h), nn.Linear(h, vocab, bias=False), nn.RMSNorm(h)
        self.blocks = nn.ModuleList(Block(h, heads, kv, f) for _ in range(layers))
        self.recompute = False

    def forward(self, tokens: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            if self.recompute:
                x = torch.utils.checkpoint.checkpoint(block, x, cos, sin, use_reentrant=False)
            else:
                x = block(x, cos, sin)
        return self.head(self.norm(x))


SMALL_MODELS = {
    "125m": (12, 768, 12, 12, 2048, 50304),
    "1b": (16, 2048, 32, 8, 8192, 128256),
    "3b": (28, 3072, 24, 8, 8192, 128256),
    "8b/4": (8, 4096, 32, 8, 14336, 128256),
    "70b/40": (2, 8192, 64, 8, 28672, 128256),
}


def small_models() -> Iterator[Row]:
    for name, (layers, h, heads, kv, f, vocab) in SMALL_MODELS.items():
        for seq, batch, mode, recompute in (
            (2048, 8, "eager", False),
            (2048, 8, "compiled", False),
            (8192, 2, "compiled", False),
            (4096, 4, "compiled", True),
            (4096, 1, "compiled", False),
            (2048, 1, "eager", False),
        ):
            torch._dynamo.reset()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            model = Stack(layers, h, heads, kv, f, vocab).to(DEVICE)
            model.recompute = recompute
            optimizer = torch.optim.AdamW(model.parameters(), fused=True)
            tokens = torch.randint(vocab, (batch, seq), device=DEVICE)
            angle = torch.randn(seq, h // heads // 2, device=DEVICE)
            cos, sin = angle.cos().bfloat16(), angle.sin().bfloat16()
            if mode == "compiled":
                for block in model.blocks:
                    block.compile()
            criterion = torch.compile(loss) if mode == "compiled" else loss

            def step(model=model, optimizer=optimizer, tokens=tokens, cos=cos, sin=sin, criterion=criterion) -> None:
                with torch.autocast("cuda", torch.bfloat16):
                    logits = model(tokens, cos, sin)
                criterion(logits.flatten(0, 1), tokens.flatten()).backward()
                optimizer.step()
                optimizer.zero_grad()

            took = seconds(step, 2.0)
            yield (
                {
                    "op": "train",
                    "kind": f"{name} recompute={recompute}",
                    "precision": mode,
                    "m": batch,
                    "n": seq,
                    "k": layers,
                    "seconds": took,
                    "tflops": batch * seq / took,
                    "gib": torch.cuda.max_memory_allocated() / 2**30,
                }
            )
            del model, optimizer


def main() -> None:
    wanted = set(sys.argv[2:])
    with open(sys.argv[1], "w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, ["op", "kind", "precision", "m", "n", "k", "seconds", "tflops", "gib"])
        writer.writeheader()
        for part in (matmuls, scaled_matmuls, attention, memory_bound, small_models):
            if wanted and part.__name__ not in wanted:
                continue
            try:
                writer.writerows(part())
            except torch.OutOfMemoryError as error:
                print(f"{part.__name__}: stopped, {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
