"""How long one transformer layer and the optimizer take on one GPU: matrix products by shape, attention by kernel,
everything else by the bytes it moves."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import lru_cache

from trainwright.predict.constants import Constants
from trainwright.predict.hardware import Device
from trainwright.predict.objective import Pass, passes
from trainwright.predict.products import (
    MatmulRate,
    Pair,
    expert_matmul_rate,
    linear_time,
    trainer_matmul_rate,
)
from trainwright.predict.profiles import Profile
from trainwright.predict.setup import Setup
from trainwright.train.flops import score_width
from trainwright.train.models.shape import ModelShape, layer_kinds

MERGE_BYTES = 10.0  # context parallelism adds each part of the attention output (16 bits) to an fp32 sum
POWER_BOUND = 0.5  # share of peak from which an attention kernel draws enough power to meet the card's limit
KERNELS = {"eager": (38, 80), "native": (24, 48)}  # launches per layer; other fusion levels: FUSED_KERNELS
FUSED_KERNELS = (16, 30)


@dataclass(frozen=True, slots=True)
class LayerWork:
    """What one rank computes in one layer for one microbatch. Equal work is timed once."""

    shape: ModelShape
    tokens: float
    spans: tuple[tuple[float, float], ...]  # (share of the tokens, length of a sequence that costs as much)
    causal: bool
    memory: float  # tokens of an encoder that each sequence attends to as well; 0: none
    tp: int
    sequence_parallel: bool  # norms and residuals are split over the tensor-parallel ranks too
    device: Device
    profile: Profile
    precision: str
    scales: str  # of fp8 products
    frozen: bool
    expert_tp: int = 1  # tensor-parallel ranks that share one expert
    local_experts: float = 0.0
    cp: int = 1
    imbalance: float = 1.0  # visits to the busiest rank's experts over the mean
    context: str = "ring"
    timed: bool = False  # the trainer takes the fastest algorithm of each linear layer

    @property
    def visits(self) -> float:
        """Rows that this rank's experts receive; the ranks of one expert receive the same rows."""
        return self.tokens * self.shape.experts_per_token * self.expert_tp / self.tp * self.imbalance

    @property
    def chunks(self) -> int:
        """Kernels' parts of a sequence: two per rank where a ring is balanced, two over gathered keys, or the whole."""
        ring = self.cp * (2 if self.profile.balanced_context else 1)
        return 1 if self.cp == 1 else {"gather": 2, "all-to-all": 1}.get(self.context, ring)

    @property
    def q(self) -> float:
        """Width of the queries on this rank."""
        return self.shape.heads * self.shape.width_per_head / self.tp

    @property
    def kv(self) -> float:
        """Width of the keys (and of the values) on this rank."""
        return max(self.shape.kv_heads, self.tp) * self.shape.width_per_head / self.tp

    @property
    def out(self) -> float:
        """Width of the values that attention returns on this rank."""
        return self.shape.heads * (self.shape.value_dim or self.shape.width_per_head) / self.tp

    @property
    def ffn(self) -> float:
        """Columns of the MLPs that one token visits, on this rank."""
        shape = self.shape
        return (shape.ffn * shape.experts_per_token + shape.shared_ffn if shape.experts else shape.ffn) / self.tp

    @property
    def fused_experts(self) -> bool:
        """Whether grouped products gather, quantise and activate their rows themselves: kernels for Blackwell."""
        return self.profile.fused_experts and self.device.family == "sm_100" and bool(self.shape.experts)

    @property
    def bf16_experts(self) -> bool:
        """Whether routed experts and their router are not narrowed with the other products."""
        return bool(self.shape.experts) and self.profile.expert_precision(self.precision) != self.precision

    @property
    def gates(self) -> int:
        """Up projections of the MLP."""
        return 2 if self.shape.gated else 1


@dataclass(frozen=True, slots=True)
class LayerTime:
    """Seconds for one microbatch through one layer; kernels are launches."""

    products_forward: float
    products_backward: float
    attention_forward: float
    attention_backward: float
    elementwise_forward: float
    elementwise_backward: float
    kernels_forward: float
    kernels_backward: float

    @property
    def forward(self) -> float:
        return self.products_forward + self.attention_forward + self.elementwise_forward

    @property
    def backward(self) -> float:
        return self.products_backward + self.attention_backward + self.elementwise_backward


def mean_layer(s: Setup, c: Constants, trained: bool = False) -> LayerTime:
    """The mean over the kinds of layers of a model, for all passes of the objective, or for those that are `trained`;
    an encoder and a decoder layer of T5 count as one."""
    times = []
    for one in passes(s.shape, s.batch.sequence, s.objective):
        if trained and not one.backward:
            continue
        for layers, shape in layer_kinds(s.shape):
            time = layer_time(layer_work(s, shape, one, c), c)
            times.append((layers / s.shape.layers, time if one.backward else forward_only(time)))
    if len(times) == 1:
        return times[0][1]
    return LayerTime(*(sum(share * getattr(time, f.name) for share, time in times) for f in fields(LayerTime)))


def forward_only(time: LayerTime) -> LayerTime:
    """A teacher or a reference is not trained."""
    return replace(time, **{f.name: 0.0 for f in fields(LayerTime) if f.name.endswith("_backward")})


def layer_work(s: Setup, shape: ModelShape, one: Pass, c: Constants) -> LayerWork:
    """The work of one layer of that shape, a kind of the setup's model, in one pass."""
    split = s.splits_sequence and s.plan.tp > 1
    uneven = c.expert_imbalance if s.plan.ep > 1 and not s.balanced else 1.0
    spans: tuple[tuple[float, float], ...]
    spans = tuple((tokens / one.tokens, length) for tokens, length in one.spans)
    if shape.kind == "decoder":
        spans = tuple(window_spans(shape, s.attended))
    return LayerWork(
        shape, s.batch.micro * one.tokens / s.plan.cp, spans, one.causal, s.batch.micro * one.memory, s.plan.tp, split,
        s.cluster.device, s.profile, s.precision, s.scales, s.frozen, s.expert_tp, shape.experts / s.plan.ep,
        s.plan.cp, uneven, s.context, s.timed_products,
    )  # fmt: skip


@lru_cache(maxsize=200_000)
def layer_time(work: LayerWork, c: Constants) -> LayerTime:
    """One layer, forward and backward, on one rank."""
    products = layer_matmuls(work, c)
    attention = layer_attention(work, c)
    if work.memory:
        more, scores = cross_attention(work, c)
        products = (products[0] + more[0], products[1] + more[1])
        attention = (attention[0] + scores[0], attention[1] + scores[1])
    moved = elementwise_bytes(work, c)
    if work.precision in ("fp8", "fp4"):
        cast = cast_bytes(work, c)
        moved = (moved[0] + cast * 0.5, moved[1] + cast * 0.5)
    rate = work.device.bandwidth * c.memory_efficiency
    grown = 1.4 if work.memory else 1.0  # a norm, three products and attention more
    experts = c.expert_kernels if work.shape.experts else 0.0
    forward, backward = (count * grown + experts for count in KERNELS.get(work.profile.fusion, FUSED_KERNELS))
    return LayerTime(*products, *attention, moved[0] / rate, moved[1] / rate, forward, backward)


def layer_matmuls(work: LayerWork, c: Constants) -> Pair:
    """All matrix products of a layer but those of attention scores."""
    rate = trainer_matmul_rate(work.device, work.profile, work.precision, work.scales, c, work.timed)
    linears = [(*sizes, rate) for sizes in (*attention_linears(work), *mlp_linears(work))]
    forward = backward = 0.0
    if work.shape.experts:
        rate = expert_matmul_rate(work.device, work.profile, work.precision, work.scales, c)
        linears.append((work.shape.experts, work.shape.hidden, rate))  # the router
        forward, backward = expert_matmuls(work, rate, c)
    for out, deep, rate in linears:
        ahead, back = linear_time(work.tokens, out, deep, rate, c, frozen=work.frozen)
        forward, backward = forward + ahead, backward + back
    return forward, backward


def attention_linears(work: LayerWork) -> list[tuple[float, float]]:
    """(columns, depth) of the products around attention; latent attention has a narrow and a wide one on each side."""
    shape = work.shape
    if not shape.latent_kv:
        return [(work.q + 2 * work.kv, shape.hidden), (shape.hidden, work.q)]
    narrow = shape.latent_q + shape.latent_kv + shape.rope_dim
    wide = shape.heads * (shape.width_per_head - shape.rope_dim + shape.value_dim) / work.tp
    query = (work.q, shape.latent_q or shape.hidden)
    return [(narrow, shape.hidden), query, (wide, shape.latent_kv), (shape.hidden, work.out)]


def mlp_linears(work: LayerWork) -> list[tuple[float, float]]:
    """(columns, depth) of the plain MLP, or of the shared expert."""
    shape = work.shape
    width = (shape.shared_ffn if shape.experts else shape.ffn) / work.tp
    return [(work.gates * width, shape.hidden), (shape.hidden, width)] if width else []


def expert_matmuls(work: LayerWork, rate: MatmulRate, c: Constants) -> Pair:
    """Grouped products: each of this rank's experts multiplies the rows of the tokens that visit it."""
    shape, experts = work.shape, work.local_experts
    rows, width, rate = max(1.0, work.visits / experts), shape.ffn / work.expert_tp, rate.scaled(c.grouped_matmul)
    up = linear_time(rows, work.gates * width, shape.hidden, rate, c, experts, work.frozen)
    down = linear_time(rows, shape.hidden, width, rate, c, experts, work.frozen)
    return up[0] + down[0], up[1] + down[1]


def attention_rates(device: Device, kernel: str, width: int, seq: float, c: Constants) -> Pair:
    """FLOP/s of the attention kernel on causal sequences of this length."""
    exact, family = c.attention.get((kernel, device.arch)), c.attention.get((kernel, device.family))
    rates = exact or family or c.attention.get(("flash2", device.family))
    forward, backward = rates or c.attention[("flash2", "sm_80")]
    narrow = 1.0 if width >= 96 else c.attention_narrow_head
    limited = device.clock(c) if forward >= POWER_BOUND else 1.0
    peak = device.bf16 * narrow * limited
    return (
        peak * forward * seq / (seq + c.attention_seq_half_forward),
        peak * backward * seq / (seq + c.attention_seq_half_backward),
    )


def attention_kernel(work: LayerWork) -> str:
    """cuDNN has no kernel for T5's learned distances; torch's own reaches the rate of FlashAttention-2. Attention
    with sinks had no fused kernel for a while."""
    if work.shape.sinks and not work.profile.fused_sinks:
        return "unfused"
    return "flash2" if work.shape.position == "relative" else work.profile.attention


def layer_attention(work: LayerWork, c: Constants) -> Pair:
    """Scores and their product with the values. Causal masks halve the work; a window limits it."""
    if attention_kernel(work) == "unfused":
        return unfused_attention(work, c)
    shape = work.shape
    forward = backward = 0.0
    for share, span in work.spans:
        scores = work.tokens * span * shape.heads / work.tp * score_width(shape)
        scores *= share * (2.0 if work.causal else 4.0)
        rates = attention_rates(work.device, attention_kernel(work), shape.width_per_head, span / work.chunks, c)
        forward, backward = forward + scores / rates[0], backward + 2.5 * scores / rates[1]
    return forward, backward


def cross_attention(work: LayerWork, c: Constants) -> tuple[Pair, Pair]:
    """(products, scores) of a decoder's queries over the encoder's states: keys and values are computed of those."""
    shape = work.shape
    rate = trainer_matmul_rate(work.device, work.profile, work.precision, work.scales, c, work.timed)
    sides = [
        (work.tokens, work.q, shape.hidden),
        (work.memory, 2 * work.q, shape.hidden),
        (work.tokens, shape.hidden, work.q),
    ]
    times = [linear_time(tokens, out, deep, rate, c, frozen=work.frozen) for tokens, out, deep in sides]
    length = sum(share * span for share, span in work.spans)
    flops = 4.0 * work.memory * length * work.q
    rates = attention_rates(work.device, attention_kernel(work), shape.width_per_head, length, c)
    products = sum(time[0] for time in times), sum(time[1] for time in times)
    return products, (flops / rates[0], 2.5 * flops / rates[1])


def window_spans(shape: ModelShape, attended: int) -> list[tuple[float, int]]:
    """(share of the layers, length) of a causal sequence that costs as much as the layer's mask."""
    if not shape.window:
        return [(1.0, attended)]
    share = shape.window_layers / shape.layers if shape.window_layers else 1.0
    windowed = (share, min(attended, 2 * shape.window))
    return [windowed, (1.0 - share, attended)] if share < 1.0 else [windowed]


def unfused_attention(work: LayerWork, c: Constants) -> Pair:
    """Scores in memory: two batched products over the full square, and a softmax and dropout that read and write it."""
    attended = sum(share * span for share, span in work.spans)
    flops = 4.0 * work.tokens * attended * work.q
    rate = work.device.matmul_rate("bf16", c) * 0.55
    elements = work.shape.heads / work.tp * work.tokens * attended
    moved = elements * c.unfused_bytes / (work.device.bandwidth * c.memory_efficiency)
    return flops / rate + moved, 2.0 * flops / rate + 1.3 * moved


def elementwise_bytes(work: LayerWork, c: Constants) -> Pair:
    """Bytes that norms, residuals, rotary embeddings and activations move in one layer."""
    shape, fusion = work.shape, work.profile.fusion
    traffic = c.traffic[fusion]
    hidden = shape.hidden / (work.tp if work.sequence_parallel else 1)
    moved = 0.0 if work.fused_experts else c.expert_permute_bytes
    permuted = shape.experts_per_token * shape.hidden / work.tp * moved
    norm = traffic.norm if shape.norm == "rmsnorm" else c.traffic["native" if fusion == "eager" else fusion].norm
    activation = traffic.gated if shape.gated else traffic.plain
    rotary = traffic.rope if shape.position == "rope" else (0.0, 0.0)
    merged = (work.cp - 1) * MERGE_BYTES * work.q if work.context == "ring" else 0.0

    def one_way(i: int) -> float:
        around = 2 * hidden * (norm[i] + traffic.residual[i])
        return work.tokens * (around + (work.q + work.kv) * rotary[i] + work.ffn * activation[i] + permuted + merged)

    return one_way(0), one_way(1)


def cast_bytes(work: LayerWork, c: Constants) -> float:
    """Bytes moved to quantise the inputs of the products, forward and backward together. Our trainer's finer scales
    follow the dimension that a product contracts: what the weight's gradient needs is cast a second time."""
    hidden = work.shape.hidden / (work.tp if work.sequence_parallel else 1)  # quantised before it is gathered
    each = c.fp8_cast_bytes if work.profile.fusion == "engine" else c.fp8_cast_bytes_compiled
    ffn = work.shape.shared_ffn / work.tp if work.fused_experts or work.bf16_experts else work.ffn
    beside = hidden if ffn or not work.bf16_experts else 0.0  # what the MLP receives, and what it returns
    outputs = work.q + 2 * work.kv + hidden + work.gates * ffn + beside
    casts = 2.0 if work.profile.own and work.scales and not work.frozen else 1.0
    return casts * each * work.tokens * (hidden + work.q + beside + ffn + 0.5 * outputs)


def optimizer_time(parameters: float, device: Device, profile: Profile, c: Constants) -> float:
    """One AdamW step over the parameters this rank owns."""
    moved = c.optimizer_bytes_fused if profile.optimizer == "fused" else c.optimizer_bytes_foreach
    return parameters * moved / (device.bandwidth * c.memory_efficiency)
