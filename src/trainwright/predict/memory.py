"""Bytes on one GPU: weights, gradients, optimizer state, activations by recompute policy, logits, buffers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from trainwright.predict.constants import Constants
from trainwright.predict.hardware import GIB
from trainwright.predict.setup import Setup
from trainwright.train.models.shape import block_parameters, parameter_count

# Bytes per logit at the peak of the loss: 16-bit logits, an fp32 copy, its softmax, both gradients, less what is fused.
LOGIT_BYTES = {"eager": 14.0, "native": 14.0, "compiled": 6.5, "engine": 6.0, "chunked": 2.0}
SELECTIVE = 0.45  # share of a layer's activations kept by per-operator checkpointing: attention, every second product
FP4 = 0.5  # share kept of the inputs of products under fp4 training: 4 bits and scales
FP8 = {"engine": 0.85}  # the same under fp8, where a profile has no fp8_bytes
PIECE = 2.0 * GIB  # of 16-bit logits that a loss computed in pieces holds at once
# Shares of a GPU's memory: above TIGHT the answer is never a plain yes; RECOMPUTE_LIMIT is what the choice of
# recomputation aims at; LIMIT is where a published row is taken not to fit.
TIGHT, RECOMPUTE_LIMIT, LIMIT = 0.90, 0.94, 0.97


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of the fullest pipeline stage's GPU."""

    state: float
    gathered: float
    activations: float
    logits: float
    overhead: float

    @property
    def total(self) -> float:
        return self.state + self.gathered + self.activations + self.logits + self.overhead

    @property
    def gib(self) -> float:
        return self.total / GIB


def activation_bytes(s: Setup, policy: str) -> float:
    """Bytes that one layer keeps for the backward of one microbatch."""
    shape, tp = s.shape, s.plan.tp
    h = shape.hidden
    inner = shape.heads * shape.width_per_head
    kv = shape.kv_heads * shape.width_per_head
    norms = tp if s.profile.sequence else 1
    if policy == "full":
        return s.local_tokens * 2.0 * h / norms
    eight = s.profile.fp8_bytes / 2 or FP8.get(s.profile.fusion, 1.0)
    narrow = {"fp4": FP4, "fp8": eight}.get(s.precision, 1.0)
    gated = shape.activation == "swiglu"
    mlp = (6.0 if gated else 4.0) * shape.ffn * (shape.experts_per_token or 1)
    eager = (8.0 * h + (4.0 * shape.ffn if gated else 0)) if s.profile.fusion == "eager" else 0.0
    kept = s.profile.around * h / norms + (2.0 * (2 * inner + 2 * kv) + mlp) / tp * narrow
    if policy == "selective" and s.profile.selective == "products":
        return s.local_tokens * kept * SELECTIVE
    if policy == "selective" and s.profile.selective == "elementwise":
        # Outputs of the products and of attention; the MLP's activation is recomputed from its two halves.
        halves = mlp * (2 / 3 if gated else 1 / 2)
        return s.local_tokens * (6.0 * h / norms + (2.0 * (2 * inner + 2 * kv) + halves) / tp)
    if s.profile.attention == "unfused" and policy == "none":
        kept += 5.0 * shape.heads * s.batch.sequence / tp
    return s.local_tokens * (kept + eager / norms)


def in_flight(s: Setup) -> float:
    """Microbatches whose activations the first stage holds at once."""
    pp, vp = s.plan.pp, s.plan.virtual_stages
    if pp == 1:
        return 1.0
    waiting = pp * (1 + (pp - 1) / (pp * vp)) if vp > 1 else pp
    return min(waiting, s.batch.count)


def stage_parameters(s: Setup) -> float:
    """Parameters of the fullest stage, per tensor-parallel rank."""
    shape, pp = s.shape, s.plan.pp
    if pp == 1:
        return parameter_count(shape) / s.plan.tp
    table = shape.vocab * shape.hidden
    most = math.ceil(shape.layers / pp) if shape.layers % pp == 0 else math.ceil((shape.layers + 2) / pp)
    layers = most if shape.layers % pp == 0 or not s.profile.recompute_layers else most - 1
    return (layers * block_parameters(shape) + table) / s.plan.tp


def state_bytes(s: Setup) -> tuple[float, float]:
    """(state of this rank, whole weights gathered for the layers being computed)."""
    plan, profile = s.plan, s.profile
    mine = stage_parameters(s)
    ranks = plan.shard * plan.cp
    if s.frozen:
        return mine * 2.0 / (ranks if s.zero == 3 else 1), 2.0 * block_parameters(s.shape) / plan.tp * 2
    if s.zero >= 2:
        whole = mine * 4.0 if profile.accumulate_whole and s.batch.count > 1 and ranks > 1 else 0.0
        sharded = mine * (profile.state_bytes - (2.0 if whole else 0.0)) / ranks
        around = 2 * block_parameters(s.shape) / plan.tp * 2.0 + s.shape.vocab * s.shape.hidden / plan.tp * 2.0
        kept = mine * 2.0 if s.zero == 2 else 0.0
        if plan.pp > 1 and s.zero == 3 and not profile.accumulate_whole:
            kept = mine * 6.0  # gathered weights and fp32 gradients stay whole between microbatches
        return sharded + whole + kept, (around if ranks > 1 else 0.0)
    if s.zero == 1:
        return mine * (profile.resident + (profile.state_bytes - profile.resident) / ranks), 0.0
    if profile.alone_bytes:
        sums = 4.0 if s.batch.count > 1 else 0.0  # fp32 gradients while microbatches accumulate
        return mine * (profile.alone_bytes + sums), 0.0
    return mine * profile.state_bytes, 0.0


def memory(s: Setup, c: Constants) -> Memory:
    """The GPU that needs the most: the first stage holds the most microbatches, the last one the logits."""
    state, gathered = state_bytes(s)
    shape, plan = s.shape, s.plan
    layers = math.ceil(shape.layers / plan.pp)
    kept = activation_bytes(s, s.recompute)
    if s.recompute == "none" or s.recompute_part >= 1.0:
        acts = kept * layers
    else:
        acts = layers * (kept * s.recompute_part + activation_bytes(s, "none") * (1 - s.recompute_part))
    working = activation_bytes(s, "none") if s.recompute != "none" else 0.0
    if plan.tp > 1 and s.profile.sequence:
        working += 4.0 * s.local_tokens * shape.hidden * 2.0  # inputs and gradients gathered for the products
    acts = acts * in_flight(s) + working
    logits = loss_bytes(s)
    if plan.pp > 1:
        logits = max(0.0, logits - (in_flight(s) - 1) * kept * layers)
    used = state + gathered + acts + logits
    return Memory(state, gathered, acts, logits, used * c.fragmentation + c.context_gib * GIB)


def loss_bytes(s: Setup) -> float:
    """Logits and what the loss derives from them; in pieces: one piece and the head's gradient (fp32 and 16 bits)."""
    columns = s.shape.vocab / (s.plan.tp if s.profile.head_split else 1)
    if s.profile.loss == "pieces":
        return min(s.local_tokens * columns * 2.0, PIECE) + columns * s.shape.hidden * 6.0
    return s.local_tokens * columns * LOGIT_BYTES[s.profile.loss or s.profile.fusion]


def least_recompute(s: Setup, c: Constants) -> Setup:
    """The least recomputation that fits: none; elementwise work only, where the trainer can; as many layers as needed,
    where the trainer can choose them; or all layers."""
    room = s.cluster.device.memory * RECOMPUTE_LIMIT
    plain = replace(s, recompute="none", recompute_part=1.0)
    if memory(plain, c).total <= room:
        return plain
    cheap = replace(s, recompute="selective", recompute_part=1.0)
    if s.profile.selective == "elementwise" and memory(cheap, c).total <= room:
        return cheap
    whole = replace(s, recompute="full", recompute_part=1.0)
    most, least = memory(plain, c).total, memory(whole, c).total
    if least >= room:
        return whole
    if not s.profile.recompute_layers:
        return whole
    part = (most - room) / (most - least)
    step = 1.0 / max(1, math.ceil(s.shape.layers / s.plan.pp))
    return replace(s, recompute="full", recompute_part=min(1.0, math.ceil(part / step) * step))


def fits(s: Setup, c: Constants) -> bool:
    return memory(s, c).total <= s.cluster.device.memory * LIMIT
