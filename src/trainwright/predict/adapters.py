"""LoRA and QLoRA: the model is frozen, and narrow matrices beside its linear layers are trained. Gradients and
optimizer state exist for those adapters alone, the frozen products have no weight gradients, and the frozen weights
may be kept in 4 bits."""

from __future__ import annotations

from dataclasses import replace

from trainwright.predict.collectives import Group, all_reduce
from trainwright.predict.constants import Constants
from trainwright.predict.objective import passes
from trainwright.predict.operators import LayerTime
from trainwright.predict.optimizers import saved_bytes
from trainwright.predict.products import matmul_time, trainer_matmul_rate
from trainwright.predict.setup import Setup
from trainwright.train.models.adapter_shape import Matrix, adapted_matrices, adapter_parameters, cross_matrices
from trainwright.train.models.shape import layer_kinds

STATE_BYTES = 16.0  # per parameter of an adapter: fp32 weight, gradient and two moments, as PEFT and our trainer keep
QUANTISED = {8: 1.0 + 4 / 64, 4: 0.5 + 4 / 64}  # bytes per weight: its code, and one fp32 scale per block of 64
FULL_BYTES = 4.0  # our trainer's FSDP keeps fp32 weights, and gathers them in 16 bits
# Bytes moved around one adapted product, per input and per output element, forward and backward: x is read for A, B's
# result is written and added; the gradient of the output is read twice, that of the input is written and added. A
# compiled block adds both results inside the kernel that follows.
TRAFFIC = {"compiled": ((2.0, 4.0), (6.0, 4.0)), "engine": ((2.0, 4.0), (6.0, 4.0))}
EAGER_TRAFFIC = ((2.0, 8.0), (10.0, 4.0))
KERNELS = (4.0, 8.0)  # launches per adapted matrix in eager mode; half of them where blocks are compiled


def trained_parameters(s: Setup) -> int:
    """Parameters of the adapters of the whole model. Tensor parallelism splits only one of the two narrow matrices of
    each: they are counted in full."""
    return adapter_parameters(s.shape, s.adapter_rank)


def adapter_bytes(s: Setup) -> float:
    """Weights, gradients and optimizer state of the adapters on one rank."""
    ranks = s.plan.shard * s.plan.cp if s.zero == 3 else 1
    each = STATE_BYTES
    if s.profile.alone_bytes and s.plan.data * s.plan.cp == 1:  # as `sharded_state` counts weights that are trained
        each = s.profile.alone_bytes + (4.0 if s.batch.count > 1 else 0.0)
    return trained_parameters(s) / s.plan.pp / ranks * (each - saved_bytes(s))


def frozen_bytes(s: Setup) -> float:
    """Bytes of one frozen weight: of the model beside adapters, of a reference, of what a teacher computes with."""
    if s.base_bits in QUANTISED:
        return QUANTISED[s.base_bits]
    ours = s.profile.own and s.plan.data * s.plan.cp > 1
    return FULL_BYTES if ours or s.precision == "fp32" else 2.0


def stays_gathered(s: Setup) -> bool:
    """Whether our trainer's FSDP keeps the 16-bit copies of all weights of a stage from forward to backward: replicas
    have nothing to free, and a pipeline runs each stage many times."""
    apart = s.profile.own and s.precision != "fp32" and s.plan.data * s.plan.cp > 1
    return apart and (s.plan.shard * s.plan.cp == 1 or s.plan.pp > 1)


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
    pairs, tp = adapted(s), s.plan.tp
    ahead, back = (
        sum(share * tokens * (read * deep + written * out) / tp for share, tokens, (out, deep) in pairs) / stream
        for read, written in moved
    )
    rate = trainer_matmul_rate(s.cluster.device, s.profile, "bf16", "", c)
    narrow = sum(
        share * matmul_time(tokens, (out + deep) / tp, s.adapter_rank, rate, c) for share, tokens, (out, deep) in pairs
    )
    expansion = weights * (frozen_bytes(s) + 2.0) / stream if s.base_bits in QUANTISED else 0.0
    launches = sum(share for share, _, _ in pairs) * (0.5 if s.profile.fusion in TRAFFIC else 1.0)
    return replace(
        layer,
        elementwise_forward=layer.elementwise_forward + max(ahead, narrow) + expansion,
        elementwise_backward=layer.elementwise_backward + max(back, 2 * narrow) + expansion,
        kernels_forward=layer.kernels_forward + KERNELS[0] * launches,
        kernels_backward=layer.kernels_backward + KERNELS[1] * launches,
    )


def adapted(s: Setup) -> list[tuple[float, float, Matrix]]:
    """(share of the layers, tokens of a microbatch, matrix) of what has adapters in the mean layer. Of T5, where an
    encoder and a decoder layer count as one, the tokens of both go through the same matrices; cross-attention has
    matrices for each."""
    kinds = layer_kinds(s.shape)
    pairs = [(n / s.shape.layers, s.local_tokens, matrix) for n, kind in kinds for matrix in adapted_matrices(kind)]
    ours, theirs = cross_matrices(s.shape)
    if ours:
        decoder = passes(s.shape, s.batch.sequence, s.objective)[-1]
        pairs += [(1.0, float(s.batch.micro * decoder.tokens), matrix) for matrix in ours]
        pairs += [(1.0, float(s.batch.micro * decoder.memory), matrix) for matrix in theirs]
    return pairs


def adapter_reduction(s: Setup, g: Group) -> float:
    """Seconds to sum the adapters' gradients over the data ranks, in fp32."""
    return all_reduce(trained_parameters(s) / s.plan.pp * 4.0, g) if s.adapter_rank and g.ranks > 1 else 0.0
