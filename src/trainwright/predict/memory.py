"""Bytes on one GPU: weights, gradients, optimizer state, activations by recompute policy, logits, buffers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from trainwright.catalog.models import parameter_count
from trainwright.predict.adapters import adapter_bytes, frozen_bytes, stays_gathered, working_bytes
from trainwright.predict.constants import Constants
from trainwright.predict.hardware import GIB
from trainwright.predict.objective import head_linears, head_parameters
from trainwright.predict.optimizers import saved_bytes
from trainwright.predict.setup import Setup
from trainwright.train.models.shape import ModelShape, layer_kinds, mlp_parameters

# Bytes per logit at the peak of the loss: 16-bit logits, an fp32 copy, its softmax, both gradients, less what is fused.
LOGIT_BYTES = {"eager": 14.0, "native": 14.0, "compiled": 6.5, "engine": 6.0, "fused": 4.0, "chunked": 2.0}
SELECTIVE = 0.45  # share of a layer's activations kept by per-operator checkpointing: attention, every second product
FP4 = 0.5  # share kept of the inputs of products under fp4 training: 4 bits and scales
FP8 = {"engine": 0.85}  # the same under fp8, where a profile has no fp8_bytes
AVERAGE = 4.0  # bytes per parameter of DINO's teacher beside what it computes with: its fp32 average
HOST_ROUNDING = 1.03  # host buffers are rounded up to four bits: by nothing for Llama's widths, by at most an eighth
HOST_USABLE = 0.8  # share of the host's memory for activations: loaders, checkpoints and the system need the rest
PIECE = 2.0 * GIB  # of 16-bit logits that a loss computed in pieces holds at once
# Shares of a GPU's memory. A job is planned to stay under TIGHT; above it the answer is never a plain yes. Published
# runs went further: an unstated recomputation is assumed to aim at ROW_TIGHT, and beyond ROW_LIMIT a row does not fit.
TIGHT, ROW_TIGHT, ROW_LIMIT = 0.90, 0.94, 0.97


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
    """Bytes that the mean layer keeps for the backward of one microbatch."""
    norms = s.plan.tp if s.splits_sequence else 1
    if policy == "full":
        return s.local_tokens * 2.0 * s.shape.hidden / norms
    kinds = layer_kinds(s.shape)
    kept = s.local_tokens * sum(n * kept_per_token(s, shape, policy, norms) for n, shape in kinds) / s.shape.layers
    if s.context == "gather" and policy == "none":  # else they are gathered again
        kept += s.traffic.kept * (1 - 1 / s.plan.cp)
    return kept


def kept_per_token(s: Setup, shape: ModelShape, policy: str, norms: int) -> float:
    """Bytes kept per token by a layer of that shape. `norms`: ranks that share the parts between the products."""
    tp, h = s.plan.tp, shape.hidden
    eight = s.profile.fp8_bytes / 2 or FP8.get(s.profile.fusion, 1.0)
    narrow, narrow_experts = (
        {"fp4": FP4, "fp8": eight}.get(precision, 1.0)
        for precision in (s.precision, s.profile.expert_precision(s.precision))
    )
    gated = shape.gated
    each = 6.0 if gated else 4.0
    experts = (each * shape.ffn + 2.0 * h) * shape.experts_per_token
    if s.frozen and s.profile.own:  # without adapters of their own, they do not need their inputs again
        experts -= 2.0 * (shape.ffn + h) * shape.experts_per_token
    plain = each * (shape.shared_ffn if shape.experts else shape.ffn)
    attention = 2.0 * attention_width(shape)
    eager = (8.0 * h + (4.0 * shape.ffn if gated else 0)) if s.profile.fusion == "eager" else 0.0
    layernorm = s.profile.around_layernorm if shape.norm == "layernorm" else 0.0
    kept = (layernorm or s.profile.around) * h / norms + ((attention + plain) * narrow + experts * narrow_experts) / tp
    if policy == "selective" and s.profile.selective == "products":
        return kept * SELECTIVE
    if policy == "selective" and s.profile.selective == "elementwise":
        # Outputs of the products and of attention; the MLP's activation is recomputed from its two halves.
        share = 2 / 3 if gated else 1 / 2
        halves = plain * share + experts * (1.0 if s.frozen and s.profile.own else share)
        return 6.0 * h / norms + (attention + halves) / tp
    if s.profile.attention == "unfused" and policy == "none":
        kept += 5.0 * shape.heads * s.batch.sequence / tp
    return kept + eager / norms


def attention_width(shape: ModelShape) -> float:
    """Queries, keys, values and the output of attention, per token."""
    if shape.latent_kv:
        return shape.heads * 2.0 * (shape.width_per_head + shape.value_dim) + shape.latent_q + shape.latent_kv
    return 2.0 * (shape.heads + shape.kv_heads) * shape.width_per_head


def in_flight(s: Setup) -> float:
    """Microbatches whose activations the first stage holds at once."""
    pp, vp = s.plan.pp, s.plan.virtual_stages
    if pp == 1:
        return 1.0
    waiting = pp * (1 + (pp - 1) / (pp * vp)) if vp > 1 else pp
    return min(waiting, s.batch.count)


@lru_cache(maxsize=1000)
def weights_of(shape: ModelShape) -> tuple[float, float, float]:
    """Parameters of the tables, of the mean layer without its experts, and of the mean layer's experts."""
    tables = parameter_count(replace(shape, layers=0, dense_layers=0))
    every = (parameter_count(shape) - tables) / shape.layers
    experts = shape.experts * mlp_parameters(shape) * (1 - shape.dense_layers / shape.layers)
    return tables, every - experts, experts


def layer_parameters(s: Setup) -> tuple[float, float]:
    """(plain, experts): parameters of the mean layer on one rank."""
    _, plain, experts = weights_of(s.shape)
    return plain / s.plan.tp, experts / (s.plan.ep * s.expert_tp)


def local_parameters(s: Setup) -> tuple[float, float]:
    """(plain, experts): parameters of the mean stage on one rank."""
    plain, experts = layer_parameters(s)
    layers = s.shape.layers / s.plan.pp
    around = (weights_of(s.shape)[0] + head_parameters(s.shape, s.objective)) / s.plan.tp + whole_head(s)
    return plain * layers + around / s.plan.pp, experts * layers


def whole_head(s: Setup) -> float:
    """Parameters that a rank has more of where tensor parallelism does not split the output head."""
    return 0.0 if s.profile.head_split else s.shape.vocab * s.shape.hidden * (1 - 1 / s.plan.tp)


def stage_parameters(s: Setup) -> tuple[float, float]:
    """(plain, experts): parameters of the fullest stage, on one rank."""
    shape, pp = s.shape, s.plan.pp
    plain, experts = layer_parameters(s)
    if pp == 1:
        return local_parameters(s)
    most = math.ceil(shape.layers / pp) if shape.layers % pp == 0 else math.ceil((shape.layers + 2) / pp)
    layers = most if shape.layers % pp == 0 or not s.profile.recompute_layers else most - 1
    return plain * layers + shape.vocab * shape.hidden / s.plan.tp, experts * layers


def state_bytes(s: Setup) -> tuple[float, float]:
    """(state of this rank, whole weights gathered for the layers being computed)."""
    plain, experts = stage_parameters(s)
    ranks = s.plan.shard * s.plan.cp
    kept = sharded_state(s, plain, ranks) + (sharded_state(s, experts, s.expert_replicas) if experts else 0.0)
    if s.adapter_rank:
        whole = 2.0 * (plain + experts) if stays_gathered(s) else working_bytes(s, sum(layer_parameters(s)))
        return kept + adapter_bytes(s), whole
    kept += beside_bytes(s) * (plain + experts) / (ranks if s.zero == 3 else 1)
    if not s.frozen and (s.zero < 2 or ranks == 1):
        return kept, 0.0
    table = 0.0 if s.frozen else s.shape.vocab * s.shape.hidden / s.plan.tp * 2.0
    return kept, 2 * sum(layer_parameters(s)) * 2.0 + table


def beside_bytes(s: Setup) -> float:
    """Bytes per parameter of a model that is not trained beside the one that is: DPO's reference, DINO's teacher."""
    copy = frozen_bytes(s) + (2.0 if stays_gathered(s) else 0.0)
    return {"dpo": copy, "dino": copy + AVERAGE}.get(s.objective.name, 0.0)


def sharded_state(s: Setup, mine: float, ranks: float) -> float:
    """Bytes of weights, gradients and optimizer state for parameters that `ranks` data ranks share."""
    plan, profile = s.plan, s.profile
    if s.frozen:
        return mine * frozen_bytes(s) / (ranks if s.zero == 3 else 1)
    less = saved_bytes(s)
    if s.zero >= 2:
        whole = mine * 4.0 if profile.accumulate_whole and s.batch.count > 1 and ranks > 1 else 0.0
        sharded = mine * (profile.state_bytes - less - (2.0 if whole else 0.0)) / ranks
        kept = mine * 2.0 if s.zero == 2 else 0.0
        if plan.pp > 1 and s.zero == 3 and not profile.accumulate_whole:
            kept = mine * 6.0  # gathered weights and fp32 gradients stay whole between microbatches
        return sharded + whole + kept
    if s.zero == 1:
        return mine * (profile.resident + (profile.state_bytes - less - profile.resident) / ranks)
    if profile.alone_bytes and plan.data * plan.cp == 1:
        sums = 4.0 if s.batch.count > 1 else 0.0  # fp32 gradients while microbatches accumulate
        return mine * (profile.alone_bytes - less + sums)
    if profile.accumulate_whole and s.batch.count > 1 and s.cluster.gpus > 1:
        return mine * (profile.state_bytes - less + 2.0)  # wrapped as if there were data ranks: fp32 gradients
    return mine * (profile.state_bytes - less)


def memory(s: Setup, c: Constants) -> Memory:
    """The GPU that needs the most: the first stage holds the most microbatches, the last one the logits."""
    return recomputing(s, s.recompute, s.recompute_part, fixed_bytes(s), c)


def fixed_bytes(s: Setup) -> tuple[float, float, float, float]:
    """(state, gathered weights, logits, activations of the mean layer): what recomputation does not change."""
    return *state_bytes(s), loss_bytes(s), activation_bytes(s, "none")


def recomputing(s: Setup, policy: str, part: float, fixed: tuple[float, float, float, float], c: Constants) -> Memory:
    """Memory where `part` of the layers recompute by that policy."""
    state, gathered, logits, whole = fixed
    plan = s.plan
    layers = math.ceil(s.shape.layers / plan.pp)
    kept = whole if policy == "none" else activation_bytes(s, policy)
    if policy == "none" or part >= 1.0:
        acts = kept * layers
    else:
        acts = layers * (kept * part + whole * (1 - part))
    working = whole if policy != "none" else 0.0
    if plan.tp > 1 and s.splits_sequence:
        working += 4.0 * s.local_tokens * s.shape.hidden * 2.0  # inputs and gradients gathered for the products
    working += s.traffic.passing if s.profile.own else 0.0
    waiting = in_flight(s)
    away = max(0.0, offloaded_layers(s) * waiting - staying(s))  # layers whose activations are in host memory alone
    acts = acts * (waiting - away / layers) + working
    if plan.pp > 1:
        logits = max(0.0, logits - (waiting - 1) * kept * layers)
    used = state + gathered + acts + logits
    return Memory(state, gathered, acts, logits, used * c.fragmentation + c.context_gib * GIB)


def offloaded_layers(s: Setup) -> int:
    """Layers of this stage whose activations are copied to the host: the trainer spreads them evenly."""
    return math.ceil(math.ceil(s.shape.layers / s.plan.pp) * s.offload_part)


def staying(s: Setup) -> float:
    """Layers whose activations are still on the GPU at the peak although they are copied: the newest one, and where
    every layer is copied the one before it, on its way to the host or back."""
    return 2.0 if s.offload_part >= 1.0 else 1.0


def host_bytes(s: Setup) -> float:
    """Bytes of host memory per GPU that offloaded activations take, rounded up as the trainer's buffers are."""
    return HOST_ROUNDING * offloaded_layers(s) * in_flight(s) * saved_bytes_of_layer(s)


def host_fits(s: Setup) -> bool:
    """Whether offloaded activations have room in host memory; yes where its size is not known."""
    return not s.cluster.host_memory or host_bytes(s) <= HOST_USABLE * s.cluster.host_memory


def saved_bytes_of_layer(s: Setup) -> float:
    """Bytes that the mean layer keeps for the backward of one microbatch, under the job's recomputation."""
    if s.recompute == "none":
        return activation_bytes(s, "none")
    part = s.recompute_part
    return activation_bytes(s, s.recompute) * part + (activation_bytes(s, "none") * (1 - part) if part < 1 else 0.0)


def loss_bytes(s: Setup) -> float:
    """Logits and what the loss derives from them; in pieces: one piece and the head's gradient (fp32 and 16 bits)."""
    columns, depth = head_linears(s.shape, s.objective)[-1]
    mine, dino = columns / (s.plan.tp if s.profile.head_split else 1), s.objective.name == "dino"
    if s.profile.loss == "pieces" and not dino:
        gradient = 0.0 if s.frozen else mine * depth * 6.0
        return min(s.head_rows * mine * 2.0, PIECE) + gradient
    kind = s.profile.loss_fusion if dino else s.profile.loss or s.profile.fusion
    return s.head_rows * mine * LOGIT_BYTES[kind]


def least_recompute(s: Setup, c: Constants, limit: float = TIGHT) -> Setup:
    """The job with the least recomputation that fits."""
    policy, part, _ = recompute_choice(s, c, limit)
    return s if (s.recompute, s.recompute_part) == (policy, part) else replace(s, recompute=policy, recompute_part=part)


def recompute_choice(s: Setup, c: Constants, limit: float = TIGHT) -> tuple[str, float, float]:
    """(policy, share of the layers, bytes used) of the least recomputation that fits: none; elementwise work only,
    where the trainer can; as many layers as needed, where the trainer can choose them; or all layers."""
    room = s.cluster.device.memory * limit
    fixed = fixed_bytes(s)
    most = recomputing(s, "none", 1.0, fixed, c).total
    if most <= room:
        return "none", 1.0, most
    if s.profile.selective == "elementwise":
        cheap = recomputing(s, "selective", 1.0, fixed, c).total
        if cheap <= room:
            return "selective", 1.0, cheap
    least = recomputing(s, "full", 1.0, fixed, c).total
    if least >= room or not s.profile.recompute_layers:
        return "full", 1.0, least
    step = 1.0 / max(1, math.ceil(s.shape.layers / s.plan.pp))
    part = min(1.0, math.ceil((most - room) / (most - least) / step) * step)
    return "full", part, recomputing(s, "full", part, fixed, c).total


def fits(s: Setup, c: Constants) -> bool:
    return memory(s, c).total <= s.cluster.device.memory * ROW_LIMIT
