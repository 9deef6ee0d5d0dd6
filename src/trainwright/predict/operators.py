"""How long one transformer layer, the output head and the optimizer take on one GPU: matrix products by shape,
attention by kernel, everything else by the bytes it moves."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from trainwright.predict.constants import Constants
from trainwright.predict.hardware import Device
from trainwright.predict.profiles import Profile
from trainwright.predict.setup import Setup
from trainwright.train.models.shape import ModelShape

Pair = tuple[float, float]  # forward, backward

TILES = ((256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.9), (128, 64, 0.75))  # rows, columns, share of the best rate
RATE_OF_FILL = 5.2e12  # FLOP/s of one H200 multiprocessor, where matmul_k_half was measured
KERNELS = {"eager": (38, 80), "native": (24, 48)}  # launches per layer; other fusion levels: FUSED_KERNELS
FUSED_KERNELS = (16, 30)


@dataclass(frozen=True, slots=True)
class LayerWork:
    """What one rank computes in one layer for one microbatch. Equal work is timed once."""

    shape: ModelShape
    tokens: float
    attended: int  # tokens back that attention reaches
    tp: int
    sequence_parallel: bool  # norms and residuals are split over the tensor-parallel ranks too
    device: Device
    profile: Profile
    precision: str
    rowwise: bool
    frozen: bool

    @property
    def q(self) -> float:
        """Width of the queries on this rank."""
        return self.shape.heads * self.shape.width_per_head / self.tp

    @property
    def kv(self) -> float:
        """Width of the keys (and of the values) on this rank."""
        return max(self.shape.kv_heads, self.tp) * self.shape.width_per_head / self.tp

    @property
    def gates(self) -> int:
        """Up projections of the MLP."""
        return 2 if self.shape.activation == "swiglu" else 1


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


def layer_work(s: Setup) -> LayerWork:
    split = s.profile.sequence and s.plan.tp > 1
    return LayerWork(
        s.shape, s.local_tokens, s.attended, s.plan.tp, split, s.cluster.device, s.profile, s.precision, s.rowwise,
        s.frozen,
    )  # fmt: skip


@lru_cache(maxsize=200_000)
def layer_time(work: LayerWork, c: Constants) -> LayerTime:
    """One layer, forward and backward, on one rank."""
    products = layer_matmuls(work, c)
    attention = layer_attention(work, c)
    moved = elementwise_bytes(work, c)
    if work.precision in ("fp8", "fp4"):
        cast = cast_bytes(work, c)
        moved = (moved[0] + cast * 0.5, moved[1] + cast * 0.5)
    rate = work.device.bandwidth * c.memory_efficiency
    kernels = KERNELS.get(work.profile.fusion, FUSED_KERNELS)
    return LayerTime(*products, *attention, moved[0] / rate, moved[1] / rate, kernels)


def matmul_time(m: float, n: float, k: float, rate: float, sms: int, c: Constants) -> float:
    """Seconds of an m x k by k x n product: whole waves of tiles over the multiprocessors, plus pipeline fill."""
    best = min(
        math.ceil(math.ceil(m / a) * math.ceil(n / b) / sms) * sms * a * b / (speed * m * n) for a, b, speed in TILES
    )
    fill = c.matmul_k_half * rate / sms / RATE_OF_FILL
    return 2.0 * m * n * k * best * (1.0 + fill / k) / rate + c.matmul_start


def linear_time(tokens: float, out: float, deep: float, rate: float, sms: int, c: Constants) -> Pair:
    """One linear layer: the backward computes the gradients of the input and of the weight."""
    backward = matmul_time(tokens, deep, out, rate, sms, c) + matmul_time(out, deep, tokens, rate, sms, c)
    return matmul_time(tokens, out, deep, rate, sms, c), backward


def trainer_matmul_rate(device: Device, profile: Profile, precision: str, rowwise: bool, c: Constants) -> float:
    """The matmul rate this trainer can reach: old libraries and row-wise scales reach less of the device's."""
    rate = device.matmul_rate(precision, c)
    if profile.early and device.family != "sm_80":
        rate *= c.early_kernels
    return rate * c.fp8_rowwise if rowwise else rate


def layer_matmuls(work: LayerWork, c: Constants) -> Pair:
    """All matrix products of a layer but those of attention scores."""
    hidden, ffn, sms = work.shape.hidden, work.shape.ffn, work.device.sms
    rate = trainer_matmul_rate(work.device, work.profile, work.precision, work.rowwise, c)
    linears = [(work.q + 2 * work.kv, hidden), (hidden, work.q)]
    if not work.shape.experts:
        linears += [(work.gates * ffn / work.tp, hidden), (hidden, ffn / work.tp)]
    forward = backward = 0.0
    for out, deep in linears:
        ahead, back = linear_time(work.tokens, out, deep, rate, sms, c)
        forward += ahead
        backward += matmul_time(work.tokens, deep, out, rate, sms, c) if work.frozen else back
    if work.shape.experts:
        ahead, back = expert_matmuls(work, rate, c)
        forward, backward = forward + ahead, backward + back
    return forward, backward


def expert_matmuls(work: LayerWork, rate: float, c: Constants) -> Pair:
    """Grouped products: each token visits a few experts, whose products have few rows."""
    shape, sms = work.shape, work.device.sms
    visits = work.tokens * shape.experts_per_token
    rows = max(128.0, visits / shape.experts)
    up = linear_time(rows, work.gates * shape.ffn / work.tp, shape.hidden, rate, sms, c)
    down = linear_time(rows, shape.hidden, shape.ffn / work.tp, rate, sms, c)
    groups = visits / rows
    return (up[0] + down[0]) * groups, (up[1] + down[1]) * groups


def attention_rates(device: Device, kernel: str, width: int, seq: float, c: Constants) -> Pair:
    """FLOP/s of the attention kernel on causal sequences of this length."""
    exact, family = c.attention.get((kernel, device.arch)), c.attention.get((kernel, device.family))
    rates = exact or family or c.attention.get(("flash2", device.family))
    forward, backward = rates or c.attention[("flash2", "sm_80")]
    narrow = 1.0 if width >= 96 else c.attention_narrow_head
    peak = device.bf16 * narrow
    return (
        peak * forward * seq / (seq + c.attention_seq_half_forward),
        peak * backward * seq / (seq + c.attention_seq_half_backward),
    )


def layer_attention(work: LayerWork, c: Constants) -> Pair:
    """Scores and their product with the values. Causal masks halve the work; a window limits it."""
    if work.profile.attention == "unfused":
        return unfused_attention(work, c)
    shape = work.shape
    causal = shape.kind == "decoder"
    span = min(work.attended, 2 * shape.window) if shape.window and causal else work.attended
    scores = work.tokens * span * work.q * (2.0 if causal else 4.0)
    rates = attention_rates(work.device, work.profile.attention, shape.width_per_head, span, c)
    return scores / rates[0], 2.5 * scores / rates[1]


def unfused_attention(work: LayerWork, c: Constants) -> Pair:
    """Scores in memory: two batched products over the full square, and a softmax and dropout that read and write it."""
    flops = 4.0 * work.tokens * work.attended * work.q
    rate = work.device.matmul_rate("bf16", c) * 0.55
    elements = work.shape.heads / work.tp * work.tokens * work.attended
    moved = elements * c.unfused_bytes / (work.device.bandwidth * c.memory_efficiency)
    return flops / rate + moved, 2.0 * flops / rate + 1.3 * moved


def elementwise_bytes(work: LayerWork, c: Constants) -> Pair:
    """Bytes that norms, residuals, rotary embeddings and activations move in one layer."""
    shape, fusion = work.shape, work.profile.fusion
    traffic = c.traffic[fusion]
    hidden = shape.hidden / (work.tp if work.sequence_parallel else 1)
    inner = shape.ffn / work.tp * (shape.experts_per_token or 1)
    norm = traffic.norm if shape.norm == "rmsnorm" else c.traffic["native" if fusion == "eager" else fusion].norm
    activation = traffic.gated if shape.activation == "swiglu" else traffic.plain
    rotary = traffic.rope if shape.position == "rope" else (0.0, 0.0)

    def one_way(i: int) -> float:
        around = 2 * hidden * (norm[i] + traffic.residual[i])
        return work.tokens * (around + (work.q + work.kv) * rotary[i] + inner * activation[i])

    return one_way(0), one_way(1)


def cast_bytes(work: LayerWork, c: Constants) -> float:
    """Bytes moved to quantise the inputs of the products, forward and backward together."""
    hidden, ffn = work.shape.hidden, work.shape.ffn
    each = c.fp8_cast_bytes if work.profile.fusion == "engine" else c.fp8_cast_bytes_compiled
    outputs = work.q + 2 * work.kv + work.gates * ffn / work.tp + 2 * hidden
    return each * work.tokens * (2 * hidden + work.q + ffn / work.tp + 0.5 * outputs)


@lru_cache(maxsize=50_000)
def head_time(shape: ModelShape, tokens: float, split: int, device: Device, profile: Profile, c: Constants) -> Pair:
    """The output product and the loss. The head stays in 16 bits in every trainer we know."""
    vocab = shape.vocab / split
    forward, backward = linear_time(
        tokens, vocab, shape.hidden, trainer_matmul_rate(device, profile, "bf16", False, c), device.sms, c
    )
    loss = c.traffic[profile.loss_fusion].loss
    stream = device.bandwidth * c.memory_efficiency
    return forward + tokens * vocab * loss[0] / stream, backward + tokens * vocab * loss[1] / stream


def optimizer_time(parameters: float, device: Device, profile: Profile, c: Constants) -> float:
    """One AdamW step over the parameters this rank owns."""
    moved = c.optimizer_bytes_fused if profile.optimizer == "fused" else c.optimizer_bytes_foreach
    return parameters * moved / (device.bandwidth * c.memory_efficiency)
