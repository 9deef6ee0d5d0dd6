"""The time of one optimizer step: compute by operator, what communication stays exposed, the pipeline's bubble."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from trainwright.predict.adapters import adapter_reduction, trained_parameters, with_adapters
from trainwright.predict.collectives import (
    Group,
    all_gather,
    all_reduce,
    all_to_all,
    broadcasts,
    group,
    reduce_scatter,
    send,
)
from trainwright.predict.constants import Constants
from trainwright.predict.head import head_of
from trainwright.predict.memory import (
    layer_parameters,
    local_parameters,
    offloaded_layers,
    saved_bytes_of_layer,
    weights_of,
)
from trainwright.predict.objective import crop_bytes
from trainwright.predict.operators import LayerTime, mean_layer
from trainwright.predict.optimizers import update_time
from trainwright.predict.products import Pair
from trainwright.predict.setup import Setup
from trainwright.train.models.shape import ModelShape
from trainwright.train.parallel.pipeline_schedule import StageTime, bubble


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of one step, by what they are spent on. `hidden` is communication that runs behind compute."""

    total: float
    parts: dict[str, float] = field(hash=False)
    stage: StageTime  # of the pipeline, in the mean
    hidden: float = 0.0
    microbatch: float = 0.0

    @property
    def compute(self) -> float:
        return sum(self.parts[name] for name in ("products", "attention", "elementwise", "head", "recompute"))


def groups_of(s: Setup) -> tuple[Group, Group, Group]:
    """The (tensor, data, shard) process groups. Ranks are numbered tensor first, then context, data, pipeline."""
    plan = s.plan
    tensor = group(s.cluster, plan.tp, 1)
    data = group(s.cluster, plan.data * plan.cp, plan.tp)
    shard = group(s.cluster, plan.shard * plan.cp, plan.tp)
    return tensor, data, shard


def step_time(s: Setup, c: Constants) -> StepTime:
    """Predict one step."""
    plan, profile = s.plan, s.profile
    tensor, data, shard = groups_of(s)
    layer, trained = (
        with_adapters(s, unbalanced(s, mean_layer(s, c, only)), sum(layer_parameters(s)), c) for only in (False, True)
    )
    again = recomputed(s, trained)  # a teacher or a reference keeps nothing for a backward
    tp_forward, tp_backward, tp_hidden = tensor_parallel(s, tensor, c)
    tp_again = tp_forward / (1 + s.watched_share) * s.recompute_part if s.recompute == "full" else 0.0
    forward = max(layer.forward, layer.kernels_forward * launch(s, c))
    backward = max(layer.backward, layer.kernels_backward * launch(s, c)) + again
    idle = forward - layer.forward, backward - again - layer.backward
    ring, ring_behind = context_parallel(s, layer, idle, c)
    room = forward - ring_behind[0], backward - ring_behind[1]
    gathers, gathers_hidden = sharded_weights(s, shard, room, c)
    head = head_of(s, c)
    exchange = expert_parallel(s, c)
    moved = tp_forward + tp_backward + tp_again + ring + exchange
    offload = host_copies(s, forward, backward)
    slow, mean = stages(s, forward + backward + moved + gathers + offload, head)
    parts = {
        "products": layer.products_forward + layer.products_backward,
        "attention": layer.attention_forward + layer.attention_backward,
        "elementwise": forward + backward - again - attention_and_products(layer),
        "recompute": again,
        "tensor parallel": tp_forward + tp_backward + tp_again,
        "context parallel": ring,
        "expert parallel": exchange,
        "weight gathers": gathers,
        "offload": offload,
    }
    layers_per_step = s.batch.count * (s.shape.layers + s.shape.mtp_layers) / plan.pp
    scaled = {name: value * layers_per_step for name, value in parts.items()}
    scaled["head"] = head * s.batch.count / plan.pp
    scaled["imbalance"] = max(0.0, s.batch.count * slow - sum(scaled.values()))
    scaled["elementwise"] += s.batch.count * crops(s, c)
    reduced, reduced_hidden = data_parallel(s, data, room, c)
    stage = mean_stage(s, mean, forward + tp_forward, layer.products_backward)
    scaled |= {
        "bubble": bubble(plan.pp, plan.virtual_stages, s.batch.count, stage, s.zero_bubble),
        "pipeline sends": pipeline_sends(s),
        "gradients": reduced,
        "optimizer": update_time(s, owned_parameters(s), shard, c),
        "fixed": 0.0 if profile.ahead and s.cluster.gpus == 1 else c.step_fixed,
    }
    scaled["stragglers"] = c.straggler_doubling * math.log2(s.cluster.nodes) * sum(scaled.values())
    hidden = (gathers_hidden + tp_hidden) * layers_per_step + reduced_hidden
    return StepTime(sum(scaled.values()), scaled, stage, hidden, slow)


def crops(s: Setup, c: Constants) -> float:
    """Images are cropped, blurred and coloured on the GPU."""
    return s.batch.micro * crop_bytes(s.shape, s.objective) / (s.cluster.device.bandwidth * c.memory_efficiency)


def unbalanced(s: Setup, layer: LayerTime) -> LayerTime:
    """Contiguous parts of a causal sequence: in every step of the ring but one, some rank works on a full block."""
    if s.plan.cp == 1 or s.profile.balanced_context:
        return layer
    slow = 2.0 - 1.0 / s.plan.cp
    return replace(
        layer, attention_forward=layer.attention_forward * slow, attention_backward=layer.attention_backward * slow
    )


def attention_and_products(layer: LayerTime) -> float:
    return layer.products_forward + layer.products_backward + layer.attention_forward + layer.attention_backward


def launch(s: Setup, c: Constants) -> float:
    """Host seconds per kernel. A compiled block launches fewer kernels, but pays for its guards and wrappers."""
    recorded = s.profile.ahead and s.cluster.gpus == 1 and s.shape.kind == "vision"  # our trainer replays such a step
    if s.profile.graphs or recorded:
        return 0.0
    return c.launch_eager * {"compiled": 1.8, "engine": 0.6}.get(s.profile.fusion, 1.0)


def recomputed(s: Setup, layer: LayerTime) -> float:
    """Forward work repeated in the backward, per layer."""
    if s.recompute == "full":
        last = last_product_share(s.shape) if s.profile.early_stop else 0.0
        return (layer.forward - last * layer.products_forward) * s.recompute_part
    if s.recompute == "selective" and s.profile.selective == "products":
        kept = 0.5 if s.precision in ("bf16", "fp32") else 0.0  # the list of what is kept has no quantised products
        return ((1 - kept) * layer.products_forward + layer.elementwise_forward) * s.recompute_part
    if s.recompute == "selective" and s.profile.selective == "elementwise":
        # A compiled block keeps little of that anyway: its backward kernels recompute it.
        return 0.0 if s.profile.fusion == "compiled" else layer.elementwise_forward * s.recompute_part
    if s.recompute == "selective" and s.profile.attention == "unfused":
        return layer.attention_forward
    return 0.0


def last_product_share(shape: ModelShape) -> float:
    """Share of a layer's products in the last one, whose output the backward does not need."""
    width = shape.ffn * shape.experts_per_token + shape.shared_ffn if shape.experts else shape.ffn
    around = 2 * (shape.heads + shape.kv_heads) * shape.width_per_head
    return width / (width * (3 if shape.gated else 2) + around)


def tensor_parallel(s: Setup, g: Group, c: Constants) -> tuple[float, float, float]:
    """Exposed seconds per layer, forward and backward, and what the overlap hides."""
    if s.plan.tp == 1:
        return 0.0, 0.0, 0.0
    size = s.local_tokens * s.shape.hidden * 2.0
    if s.splits_sequence:
        narrow = 0.5 if s.precision in ("fp8", "fp4") and s.profile.fusion == "engine" else 1.0  # quantised, then sent
        copied = 2.0 * size / (s.cluster.device.bandwidth * c.memory_efficiency)
        copies = copied if s.profile.batch_first and s.batch.micro > 1 else 0.0
        one = all_gather(size * narrow, g) + reduce_scatter(size, g) + 2 * copies
        gathered_again = all_gather(size * narrow, g) if s.profile.tp_overlap == "buffers" else 0.0
    else:
        one, gathered_again = all_reduce(size, g), 0.0
    hidden = {"buffers": c.tp_overlap_hidden, "async": c.async_tp_hidden}.get(s.profile.tp_overlap, 0.0)
    hidden *= 1 - 1 / s.plan.tp  # one chunk of the pipeline stays exposed, of as many as there are ranks
    forward, backward = 2.0 * one * (1 + s.watched_share), 2.0 * one + gathered_again
    return forward * (1 - hidden), backward * (1 - hidden), (forward + backward) * hidden


def context_parallel(s: Setup, layer: LayerTime, idle: Pair, c: Constants) -> tuple[float, Pair]:
    """Keys and values travel around a ring, behind the attention of the previous part and while the GPU waits for the
    host. Returns the seconds exposed, and the compute time (forward, backward) used up to hide the rest."""
    if s.plan.cp == 1:
        return 0.0, (0.0, 0.0)
    g = group(s.cluster, s.plan.cp, s.plan.tp)
    if s.context != "ring":
        return in_front(s, g), (0.0, 0.0)
    link = s.cluster.inside if g.domains == 1 else s.cluster.between
    ring = (s.plan.cp - 1) * send(s.traffic.forward / (s.plan.cp - 1), link)
    behind_forward = min(ring, layer.attention_forward + idle[0])
    behind_backward = min(2 * ring, layer.attention_backward + idle[1])
    exposed = 3 * ring * (1 + c.overlap_contention) - behind_forward - behind_backward
    if s.profile.own and s.recompute == "full":
        exposed += s.recompute_part * (ring * (1 + c.overlap_contention) - behind_forward)
    return exposed, (behind_forward, behind_backward)


def in_front(s: Setup, g: Group) -> float:
    """Seconds of a gather of all keys and values, or of an exchange of heads for tokens: attention waits for either."""
    passes = 1.0 + (s.recompute_part if s.recompute != "none" else 0.0)
    whole = s.traffic.forward * s.plan.cp / (s.plan.cp - 1)
    if s.context == "gather":
        return passes * all_gather(whole, g) + reduce_scatter(whole, g)
    return (passes + 1.0) * all_to_all(whole, g)


def expert_parallel(s: Setup, c: Constants) -> float:
    """Tokens to their experts and back, forward, backward and where the forward is repeated. A node receives one copy
    of a token, however many of its experts the token visits."""
    shape, plan = s.shape, s.plan
    if plan.ep <= 1 or not shape.experts:
        return 0.0
    g = group(s.cluster, plan.ep, plan.tp if s.expert_tp > 1 else 1)
    one = s.local_tokens * shape.hidden * 2.0 / plan.tp
    copies = g.domains * (1 - (1 - 1 / g.domains) ** shape.experts_per_token)
    exchange = all_to_all(one * shape.experts_per_token, g, one * copies)
    passes = 4.0 + 2.0 * s.watched_share + (2.0 * s.recompute_part if s.recompute == "full" else 0.0)
    return passes * exchange * c.alltoall_exposed * (1 - shape.dense_layers / shape.layers)


def behind(comm: float, compute: float, c: Constants, contention: float | None = None) -> Pair:
    """(exposed, hidden) of communication that runs beside compute."""
    room = c.overlap_reach * compute
    hidden = min(comm, room)
    cost = c.overlap_contention if contention is None else contention
    return comm - hidden + cost * hidden, hidden * (1 - cost)


def gathers_float8(s: Setup) -> bool:
    """Whether weights travel in one byte: compiled trainers do so with one scale per tensor, ours on request."""
    if s.profile.own:
        return s.float8_gather
    return s.precision == "fp8" and s.profile.fusion == "compiled" and not s.rowwise


def sharded_weights(s: Setup, g: Group, room: Pair, c: Constants) -> Pair:
    """Gathers and reduce-scatters of fully sharded data parallelism, per layer and microbatch."""
    if s.zero < 2 or s.plan.shard * s.plan.cp == 1:
        return 0.0, 0.0
    plain, experts = layer_parameters(s)
    wide = 1.0 if gathers_float8(s) else 2.0
    expert_wide = 2.0 if s.profile.bf16_experts else wide
    copies = expert_group(s)
    gather = all_gather(plain * wide, g) + all_gather(experts * expert_wide, copies)
    width = s.profile.grad_bytes
    reduce = 0.0 if s.frozen else reduce_scatter(plain * width, g) + reduce_scatter(experts * width, copies)
    if s.profile.accumulate_whole:
        reduce /= s.batch.count
    cost = c.gather_contention if s.profile.flat else c.overlap_contention
    watched = gather if s.watched_share and s.zero == 3 else 0.0  # weights of a teacher or a reference
    ahead = behind(gather + watched, room[0], c, cost)
    back = behind((gather if s.zero == 3 else 0.0) + reduce, room[1], c, cost)
    return ahead[0] + back[0], ahead[1] + back[1]


def stages(s: Setup, layer: float, head: float) -> tuple[float, float]:
    """(slowest, mean) stage of the pipeline for one microbatch. Where the layers do not divide, the embedding and the
    head each count as one layer."""
    layers, pp = s.shape.layers + s.shape.mtp_layers, s.plan.pp
    mean = (layers * layer + head) / pp
    if pp == 1:
        return mean, mean
    if layers % pp == 0:
        return layers / pp * layer + head, mean
    most = math.ceil((layers + 2) / pp)
    return max(most * layer, (most - 1) * layer + head), mean


def mean_stage(s: Setup, mean: float, forward: float, products_backward: float) -> StageTime:
    """A mean stage that takes `mean` per microbatch, virtual stages apart. The zero-bubble schedule puts off the weight
    gradients of products: half of their backward."""
    layers = (s.shape.layers + s.shape.mtp_layers) / s.plan.pp
    weights = products_backward / 2 * layers * deferrable_share(s)
    ahead = min(forward * layers, mean - weights)
    chunks = s.plan.virtual_stages
    return StageTime(ahead / chunks, (mean - ahead - weights) / chunks, weights / chunks)


def deferrable_share(s: Setup) -> float:
    """Share of the products whose weight gradients can be put off: neither float8 ones nor grouped experts, and none
    where weights are frozen."""
    if s.frozen or s.precision == "fp8" or not s.zero_bubble:
        return 0.0
    _, plain, experts = weights_of(s.shape)
    visited = experts * s.shape.experts_per_token / s.shape.experts if s.shape.experts else 0.0
    return plain / (plain + visited)


def host_copies(s: Setup, forward: float, backward: float) -> float:
    """Seconds per layer that copies of activations to the host and back are not hidden behind compute: a copy may take
    as long as the layers up to the next one that is copied. The last one has the time of the head, and does not leave
    the GPU; in a pipeline another microbatch may come between."""
    copied, layers = offloaded_layers(s), math.ceil(s.shape.layers / s.plan.pp)
    if not copied:
        return 0.0
    one, apart = saved_bytes_of_layer(s) / s.cluster.device.host_rate, layers / copied
    waits = copied if s.plan.pp > 1 else copied - 1
    return waits / layers * (max(0.0, one - apart * forward) + max(0.0, one - apart * backward))


def pipeline_sends(s: Setup) -> float:
    """Activations between stages: each microbatch crosses forward and backward, more often with virtual stages."""
    plan = s.plan
    if plan.pp == 1:
        return 0.0
    size = s.local_tokens * s.shape.hidden * 2.0 / plan.tp
    far = plan.tp * plan.cp * plan.data >= s.cluster.domain
    one = send(size, s.cluster.between if far else s.cluster.inside)
    exposed = 0.25 if s.profile.data_overlap else 1.0
    crossings = 2 * plan.virtual_stages * s.batch.count if plan.virtual_stages > 1 else 2 * plan.pp
    return crossings * one * (exposed if plan.virtual_stages > 1 else 1.0)


def owned_parameters(s: Setup) -> float:
    """Parameters whose optimizer state this rank updates."""
    if s.frozen:
        return trained_parameters(s) / s.plan.pp / (s.plan.shard * s.plan.cp if s.zero >= 1 else 1)
    plain, experts = local_parameters(s)
    return plain / (s.plan.shard * s.plan.cp) + experts / s.expert_replicas if s.zero >= 1 else plain + experts


def expert_group(s: Setup) -> Group:
    """The ranks that hold the same experts: as many as there are replicas, an expert-parallel group apart."""
    return group(s.cluster, int(s.expert_replicas), s.plan.ep * s.expert_tp)


def data_parallel(s: Setup, g: Group, room: Pair, c: Constants) -> Pair:
    """(exposed, hidden): gradient reduction once per step behind the last backward, and under ZeRO-1 the gather of the
    updated weights behind the next forward."""
    if g.ranks == 1 or s.frozen:
        return adapter_reduction(s, g), 0.0
    plain, experts = local_parameters(s)
    if s.zero >= 2:
        return replicas(s, plain + experts, room[1], c)
    width, copies = s.profile.grad_bytes, expert_group(s)
    reduce = all_reduce(plain * width, g) + all_reduce(experts * width, copies)
    gather = 0.0
    if s.zero == 1:
        owners = group(s.cluster, s.plan.shard * s.plan.cp, s.plan.tp)
        gather = all_gather(plain * 2.0, owners) + all_gather(experts * 2.0, copies)
        if s.plan.replicate == 1:
            reduce = reduce_scatter(plain * width, g) + reduce_scatter(experts * width, copies)
        if s.profile.broadcast:
            gather = broadcasts(plain * 2.0, owners) + all_gather(experts * 2.0, copies)
    if not s.profile.data_overlap:
        return reduce + gather, 0.0
    layers = s.shape.layers / s.plan.pp
    first, second = behind(reduce, room[1] * layers, c), behind(gather, room[0] * layers, c)
    return first[0] + second[0], first[1] + second[1]


def replicas(s: Setup, local: float, backward: float, c: Constants) -> Pair:
    """Hybrid sharding: each shard's gradients are reduced over the replicas, behind the backward."""
    if s.plan.replicate == 1:
        return 0.0, 0.0
    g = group(s.cluster, s.plan.replicate, s.plan.tp * s.plan.cp * s.plan.shard)
    size = local / (s.plan.shard * s.plan.cp) * s.profile.grad_bytes
    return behind(all_reduce(size, g), backward * s.shape.layers / s.plan.pp, c)
