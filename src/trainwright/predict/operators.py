"""How long one transformer layer, the loss head and the optimizer take on one GPU: products by shape, attention by
kernel, the rest by the bytes it moves."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from trainwright.predict.constants import Constants
from trainwright.predict.hardware import Device
from trainwright.predict.profiles import Profile
from trainwright.train.models.shape import ModelShape

TILES = ((256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.9), (128, 64, 0.75))


RATE_OF_FILL = 5.2e12  # FLOP/s of one H200 multiprocessor, where matmul_k_half was measured


@dataclass(frozen=True, slots=True)
class LayerTime:
    """Seconds for one microbatch through one layer. `kernels` counts launches, forward and backward."""

    products_forward: float
    products_backward: float
    attention_forward: float
    attention_backward: float
    elementwise_forward: float
    elementwise_backward: float
    kernels: tuple[int, int]

    @property
    def forward(self) -> float:
        return self.products_forward + self.attention_forward + self.elementwise_forward

    @property
    def backward(self) -> float:
        return self.products_backward + self.attention_backward + self.elementwise_backward


def product(m: float, n: float, k: float, roof: float, sms: int, c: Constants) -> float:
    """Seconds of an m x k by k x n product: whole waves of tiles over the multiprocessors, and filling the pipeline."""
    best = min(
        math.ceil(math.ceil(m / a) * math.ceil(n / b) / sms) * sms * a * b / (speed * m * n) for a, b, speed in TILES
    )
    fill = c.matmul_k_half * roof / sms / RATE_OF_FILL
    return 2.0 * m * n * k * best * (1.0 + fill / k) / roof + c.matmul_start


def three_products(tokens: float, out: float, deep: float, roof: float, sms: int, c: Constants) -> tuple[float, float]:
    """(forward, backward) of one linear layer: the backward makes the input's and the weight's gradient."""
    backward = product(tokens, deep, out, roof, sms, c) + product(out, deep, tokens, roof, sms, c)
    return product(tokens, out, deep, roof, sms, c), backward


def product_roof(device: Device, profile: Profile, precision: str, rowwise: bool, c: Constants) -> float:
    """The roof for this stack's products: old libraries and row-wise scales reach less of it."""
    roof = device.roof(precision, c)
    if profile.early and device.family != "sm_80":
        roof *= c.early_kernels
    return roof * c.fp8_rowwise if rowwise else roof


def attention_rates(device: Device, kernel: str, width: int, seq: float, c: Constants) -> tuple[float, float]:
    """FLOP/s of the attention kernel, forward and backward, on causal sequences of this length."""
    exact, family = c.attention.get((kernel, device.arch)), c.attention.get((kernel, device.family))
    rates = exact or family or c.attention.get(("flash2", device.family))
    forward, backward = rates or c.attention[("flash2", "sm_80")]
    narrow = 1.0 if width >= 96 else c.attention_narrow_head
    peak = device.bf16 * narrow
    return (
        peak * forward * seq / (seq + c.attention_seq_half_forward),
        peak * backward * seq / (seq + c.attention_seq_half_backward),
    )


@lru_cache(maxsize=200_000)
def layer_time(
    shape: ModelShape,
    tokens: float,
    seq: int,
    tp: int,
    split_norms: bool,
    device: Device,
    profile: Profile,
    precision: str,
    c: Constants,
    frozen: bool = False,
    rowwise: bool = False,
) -> LayerTime:
    """One layer for `tokens` tokens of sequences `seq` long, on one of `tp` tensor-parallel ranks."""
    h, f = shape.hidden, shape.ffn
    width = shape.width_per_head
    q, kv = shape.heads * width / tp, max(shape.kv_heads, tp) * width / tp
    gates = 2 if shape.activation == "swiglu" else 1
    roof = product_roof(device, profile, precision, rowwise, c)
    linears = [(q + 2 * kv, h), (h, q), (gates * f / tp, h), (h, f / tp)]
    if shape.experts:
        linears = [(q + 2 * kv, h), (h, q)]
    forward = backward = 0.0
    for out, deep in linears:
        ahead, back = three_products(tokens, out, deep, roof, device.sms, c)
        forward += ahead
        backward += product(tokens, deep, out, roof, device.sms, c) if frozen else back
    if shape.experts:
        ahead, back = expert_products(shape, tokens, tp, roof, device.sms, c)
        forward, backward = forward + ahead, backward + back
    causal = shape.kind == "decoder"
    span = min(seq, 2 * shape.window) if shape.window and causal else seq
    scores = tokens * span * q * (2.0 if causal else 4.0)
    if profile.attention == "unfused":
        attend = unfused_attention(tokens, seq, shape.heads / tp, q, device, c)
    else:
        rates = attention_rates(device, profile.attention, width, span, c)
        attend = (scores / rates[0], 2.5 * scores / rates[1])
    moved = elementwise_bytes(shape, tokens, q, kv, tp, split_norms, profile, c)
    if precision in ("fp8", "fp4"):
        wide = c.fp8_cast_bytes if profile.fusion == "engine" else c.fp8_cast_bytes_compiled
        cast = wide * tokens * (2 * h + q + f / tp + 0.5 * (q + 2 * kv + gates * f / tp + 2 * h))
        moved = (moved[0] + cast * 0.5, moved[1] + cast * 0.5)
    rate = device.bandwidth * c.memory_efficiency
    count = {"eager": (38, 80), "native": (24, 48)}.get(profile.fusion, (16, 30))
    return LayerTime(forward, backward, attend[0], attend[1], moved[0] / rate, moved[1] / rate, count)


def expert_products(
    shape: ModelShape, tokens: float, tp: int, roof: float, sms: int, c: Constants
) -> tuple[float, float]:
    """Grouped products: each token visits some experts, whose rows are short."""
    visits = tokens * shape.experts_per_token
    rows = max(128.0, visits / shape.experts)
    gates = 2 if shape.activation == "swiglu" else 1
    up = three_products(rows, gates * shape.ffn / tp, shape.hidden, roof, sms, c)
    down = three_products(rows, shape.hidden, shape.ffn / tp, roof, sms, c)
    groups = visits / rows
    return (up[0] + down[0]) * groups, (up[1] + down[1]) * groups


def unfused_attention(
    tokens: float, seq: int, heads: float, q: float, device: Device, c: Constants
) -> tuple[float, float]:
    """Scores in memory: two batched products over the full square, and a softmax and dropout that read and write it."""
    flops = 4.0 * tokens * seq * q
    rate = device.roof("bf16", c) * 0.55
    elements = heads * tokens * seq
    stream = device.bandwidth * c.memory_efficiency
    moved = elements * c.unfused_bytes / stream
    return flops / rate + moved, 2.0 * flops / rate + 1.3 * moved


def elementwise_bytes(
    shape: ModelShape,
    tokens: float,
    q: float,
    kv: float,
    tp: int,
    split_norms: bool,
    profile: Profile,
    c: Constants,
) -> tuple[float, float]:
    """Bytes that norms, residuals, rotations and activations move in one layer, forward and backward."""
    traffic = c.traffic[profile.fusion]
    wide = shape.hidden / (tp if split_norms else 1)
    inner = shape.ffn / tp * (shape.experts_per_token or 1)
    norm = (
        traffic.norm
        if shape.norm == "rmsnorm"
        else c.traffic["native" if profile.fusion == "eager" else profile.fusion].norm
    )
    act = traffic.gated if shape.activation == "swiglu" else traffic.plain
    turn = traffic.rope if shape.position == "rope" else (0.0, 0.0)

    def bytes_(i: int) -> float:
        return tokens * (2 * wide * (norm[i] + traffic.residual[i]) + (q + kv) * turn[i] + inner * act[i])

    return bytes_(0), bytes_(1)


@lru_cache(maxsize=50_000)
def head_time(
    shape: ModelShape, tokens: float, split: int, device: Device, profile: Profile, c: Constants
) -> tuple[float, float]:
    """(forward, backward) of the output product and the loss; the head stays in 16 bits in every stack we know."""
    vocab = shape.vocab / split
    forward, backward = three_products(
        tokens, vocab, shape.hidden, product_roof(device, profile, "bf16", False, c), device.sms, c
    )
    loss = c.traffic[profile.loss_fusion].loss
    stream = device.bandwidth * c.memory_efficiency
    return forward + tokens * vocab * loss[0] / stream, backward + tokens * vocab * loss[1] / stream


def optimizer_time(parameters: float, device: Device, profile: Profile, c: Constants) -> float:
    """One AdamW step over the parameters this rank owns."""
    moved = c.optimizer_bytes_fused if profile.optimizer == "fused" else c.optimizer_bytes_foreach
    return parameters * moved / (device.bandwidth * c.memory_efficiency)
