"""LoRA and QLoRA: the model is frozen, and narrow matrices beside its linear layers are trained. Gradients and
optimizer state exist for those adapters alone, the frozen products have no weight gradients, and the frozen weights
may be kept in 4 bits."""

from __future__ import annotations

from dataclasses import replace

from trainwright.predict.collectives import Group, all_reduce
from trainwright.predict.constants import Constants
from trainwright.predict.operators import LayerTime
from trainwright.predict.products import Pair, matmul_time, trainer_matmul_rate
from trainwright.predict.setup import Setup
from trainwright.train.models.shape import ModelShape, layer_kinds

STATE_BYTES = 16.0  # per parameter of an adapter: fp32 weight, gradient and two moments, as PEFT and our trainer keep
QUANTISED = {8: 1.0 + 4 / 64, 4: 0.5 + 4 / 64}  # bytes per weight: its code, and one fp32 scale per block of 64
SHARDED_BYTES = 4.0  # our trainer's FSDP keeps fp32 weights, and gathers them in 16 bits
# Bytes moved around one adapted product, per input and per output element, forward and backward: x is read for A, B's
# result is written and added; the gradient of the output is read twice, that of the input is written and added. A
# compiled block adds both results inside the kernel that follows.
TRAFFIC = {"compiled": ((2.0, 4.0), (6.0, 4.0)), "engine": ((2.0, 4.0), (6.0, 4.0))}
EAGER_TRAFFIC = ((2.0, 8.0), (10.0, 4.0))
KERNELS = (4.0, 8.0)  # launches per adapted matrix in eager mode; half of them where blocks are compiled


def matrices(shape: ModelShape) -> list[Pair]:
    """(rows, columns) of the linear layers of a block that get adapters; stacked experts and routers do not."""
    hidden, width = shape.hidden, shape.width_per_head
    if shape.latent_kv:
        queries = shape.latent_q or hidden
        wide = shape.heads * (width - shape.rope_dim + shape.value_dim)
        attention = [
            (shape.heads * width, queries),
            (shape.latent_kv + shape.rope_dim, hidden),
            (wide, shape.latent_kv),
        ]
        attention += [(shape.latent_q, hidden)] if shape.latent_q else []
    else:
        attention = [(shape.heads * width, hidden), *[(shape.kv_heads * width, hidden)] * 2]
    attention.append((hidden, shape.heads * (shape.value_dim or width)))
    mlp = shape.shared_ffn if shape.experts else shape.ffn
    up = [(mlp, hidden)] * (2 if shape.gated else 1)
    return [*attention, *([*up, (hidden, mlp)] if mlp else [])]


def layer_adapters(s: Setup) -> float:
    """Parameters of the adapters of the mean layer. Tensor parallelism splits only one of the two narrow matrices of
    each: they are counted in full."""
    kinds = layer_kinds(s.shape)
    whole = sum(count * sum(map(sum, matrices(shape))) for count, shape in kinds) / s.shape.layers
    return s.adapter_rank * whole


def adapter_parameters(s: Setup) -> float:
    """Parameters that are trained, of the whole model."""
    return layer_adapters(s) * s.shape.layers


def adapter_bytes(s: Setup) -> float:
    """Weights, gradients and optimizer state of the adapters on one rank."""
    ranks = s.plan.shard * s.plan.cp if s.zero == 3 else 1
    return adapter_parameters(s) / s.plan.pp / ranks * STATE_BYTES


def frozen_bytes(s: Setup) -> float:
    """Bytes of one frozen weight."""
    if s.base_bits in QUANTISED:
        return QUANTISED[s.base_bits]
    ours = s.profile.own
    return SHARDED_BYTES if ours and s.zero == 3 and s.plan.shard * s.plan.cp > 1 else 2.0


def working_bytes(s: Setup, layer: float) -> float:
    """Whole weights of the layers being computed: gathered from the shards, or expanded from their codes."""
    if s.zero == 3 and s.plan.shard * s.plan.cp > 1:
        return 2 * layer * 2.0
    return layer * 2.0 if s.base_bits in QUANTISED else 0.0


def with_adapters(s: Setup, layer: LayerTime, weights: float, c: Constants) -> LayerTime:
    """A frozen layer with its adapters: narrow products, the sums of their wide results, and the expansion of weights
    (`weights` of them in the layer) that are kept as codes."""
    if not s.adapter_rank:
        return layer
    moved = TRAFFIC.get(s.profile.fusion, EAGER_TRAFFIC)
    stream = s.cluster.device.bandwidth * c.memory_efficiency
    pairs = [(count / s.shape.layers, pair) for count, shape in layer_kinds(s.shape) for pair in matrices(shape)]
    tokens, tp = s.local_tokens, s.plan.tp
    ahead, back = (
        sum(share * tokens * (read * deep + written * out) / tp for share, (out, deep) in pairs) / stream
        for read, written in moved
    )
    rate = trainer_matmul_rate(s.cluster.device, s.profile, "bf16", "", c)
    narrow = sum(
        share * matmul_time(tokens, (out + deep) / tp, s.adapter_rank, rate, c) for share, (out, deep) in pairs
    )
    expansion = weights * (frozen_bytes(s) + 2.0) / stream if s.base_bits in QUANTISED else 0.0
    launches = sum(share for share, _ in pairs) * (0.5 if s.profile.fusion in TRAFFIC else 1.0)
    return replace(
        layer,
        elementwise_forward=layer.elementwise_forward + max(ahead, narrow) + expansion,
        elementwise_backward=layer.elementwise_backward + max(back, 2 * narrow) + expansion,
        kernels_forward=layer.kernels_forward + KERNELS[0] * launches,
        kernels_backward=layer.kernels_backward + KERNELS[1] * launches,
    )


def adapter_reduction(s: Setup, g: Group) -> float:
    """Seconds to sum the adapters' gradients over the data ranks, in fp32."""
    return all_reduce(adapter_parameters(s) / s.plan.pp * 4.0, g) if s.adapter_rank and g.ranks > 1 else 0.0
