"""Searches instance types, node counts, ways to buy them and parallel plans for what can train a model, with the days
and dollars of each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

from trainwright.catalog.instances import InstanceType, instances
from trainwright.catalog.prices import Price, price
from trainwright.catalog.storage import lustre_monthly_usd
from trainwright.errors import UserError, did_you_mean
from trainwright.predict.constants import Constants
from trainwright.predict.cost import BLOCK_SIZES, training_days, training_usd
from trainwright.predict.evidence import half_width, outside
from trainwright.predict.goodput import best_interval, failures_per_node_day, goodput
from trainwright.predict.hardware import GIB, Cluster, cluster_of
from trainwright.predict.layout import shared_sequences
from trainwright.predict.memory import TIGHT, recompute_choice
from trainwright.predict.needs import checkpoint_gb, file_system, stall_of
from trainwright.predict.objective import objective_of, tokens_per_sample
from trainwright.predict.profiles import Profile, profile
from trainwright.predict.request import AdviceRequest
from trainwright.predict.setup import Batch, Setup, zero_stage
from trainwright.predict.step import step_time
from trainwright.train.models.shape import ModelShape
from trainwright.train.parallel.plan import CONTEXTS, ParallelPlan

DAY = 86_400.0
DECILE = NormalDist().inv_cdf(0.9)  # the half width of an 80 % interval, in sigmas
GIB_PER_TIB = 1024
MICRO_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
MICRO_TOKENS = 131_072  # a larger microbatch gains nothing
BATCH_SLACK = 0.1  # a plan may change the batch by this share; more would change the training
FAMILIES = ("p4d", "p4de", "p5", "p5e", "p5en", "p6-b200", "p6-b300")
SINGLE_GPU = ("g6e.2xlarge", "p5.4xlarge")  # for trainings that need no more


@dataclass(frozen=True, slots=True)
class Offer:
    """One way to train the model, with the days and dollars it takes."""

    setup: Setup
    kind: str  # how it is bought: on-demand | spot | capacity-block
    tokens_per_s: float
    effective: float
    days: float  # from the launch of the instances
    usd: float  # instances and storage
    memory_gib: float
    step_s: float
    checkpoint_s: float  # between two checkpoints, in whole minutes
    file_system: tuple[float, int]  # TiB, MB/s per TiB

    @property
    def latest_days(self) -> float:
        """The upper end of the 80 % interval: the training takes longer with a probability of 10 %."""
        return self.days * math.exp(half_width(outside(self.setup, self.step_s)))

    def probability_within(self, days: float) -> float:
        """That the training ends within so many days: errors of the prediction are log-normal."""
        sigma = half_width(outside(self.setup, self.step_s)) / DECILE
        return NormalDist().cdf(math.log(days / self.days) / sigma)

    @property
    def instance(self) -> str:
        return self.setup.cluster.instance

    @property
    def nodes(self) -> int:
        return self.setup.cluster.nodes

    @property
    def gpus(self) -> int:
        return self.setup.cluster.gpus


def chosen_types(names: Sequence[str]) -> list[InstanceType]:
    """Instance types by name or by family (`p5`: its largest size)."""
    every = instances()
    types = []
    for name in names or (*FAMILIES, *SINGLE_GPU):
        exact = [i for i in every if i.name == name]
        family = [i for i in every if i.family == name and i.accelerator_count]
        if not exact and not family:
            families = sorted({i.family for i in every if i.accelerator_count})
            raise UserError(
                f"no instance type or family {name!r} with accelerators", where="--instances",
                fix=did_you_mean(name, families) or ", ".join(families),
            )  # fmt: skip
        types.append(max(exact or family, key=lambda i: i.accelerator_count))
    neuron = [i.name for i in types if i.is_neuron]
    if neuron and len(neuron) == len(types):
        raise UserError(
            f"{', '.join(neuron)} cannot be advised: our trainer needs GPUs",
            where="--instances", fix="add a GPU family; `trainwright predict --instance` predicts Neuron types",
        )  # fmt: skip
    return [i for i in types if not i.is_neuron]


def left_out(names: Sequence[str]) -> list[str]:
    """Requested Neuron families, which the search leaves out: our trainer, which a written spec runs, needs GPUs."""
    neuron = {i.family for i in instances() if i.is_neuron} | {i.name for i in instances() if i.is_neuron}
    return [name for name in names if name in neuron]


def node_counts(most: int) -> list[int]:
    """Powers of two and one and a half times those, up to `most`: 1, 2, 3, 4, 6, 8, 12, 16, ..."""
    counts = {1}
    power = 2
    while power <= most:
        counts |= {power, power * 3 // 2} if power * 3 // 2 <= most else {power}
        power *= 2
    return sorted(counts)


def plans(shape: ModelShape, cluster: Cluster, sequence: int) -> Iterator[ParallelPlan]:
    """Plans worth trying: tensor parallelism inside the node, a few pipeline depths, sharding over all data ranks or
    over those of one node."""
    gpus, inner = cluster.gpus, cluster.per_node
    for tp in (t for t in (1, 2, 4, 8) if inner % t == 0 and t <= inner):
        for pp in (p for p in (1, 2, 4, 8, 16) if shape.layers % p == 0 or shape.layers >= 4 * p):
            for cp in (c for c in (1, 2, 4, 8) if c == 1 or sequence // c >= 4096):
                if gpus % (tp * pp * cp):
                    continue
                data = gpus // (tp * pp * cp)
                for virtual in (v for v in ((1, 2, 4) if pp > 1 else (1,)) if v == 1 or shape.layers % (pp * v) == 0):
                    whole = ParallelPlan(shard=data, tp=tp, pp=pp, cp=cp, virtual_stages=virtual)
                    for plan in (replace(whole, ep=ep) for ep in expert_splits(shape, data)):
                        if plan.misfit(shape, sequence) or (shape.kind != "decoder" and plan.unsupported(shape)):
                            continue
                        yield plan
                        node = inner // tp
                        if 1 < node < data and data % node == 0 and cp == 1 and node % plan.ep == 0:
                            yield replace(plan, replicate=data // node, shard=node)


def expert_splits(shape: ModelShape, data: int) -> list[int]:
    """Expert-parallel sizes worth trying: powers of two that the experts and the data ranks divide by."""
    if not shape.experts:
        return [1]
    return [ep for ep in (1, 2, 4, 8, 16, 32, 64) if ep <= data and shape.experts % ep == 0]


def offers(request: AdviceRequest, kind: InstanceType, c: Constants) -> Iterator[Offer | None]:
    """Every candidate of one instance type; None for one that does not fit or has no price."""
    prices = {way: price(kind.name, request.region, way) for way in request.price_kinds}
    for nodes in node_counts(request.max_nodes if kind.accelerator_count > 1 else 1):
        machines = cluster_of(kind, nodes)
        if request.precision == "fp8" and not machines.device.fp8:
            continue
        sold = {way: listed for way, listed in prices.items() if way != "capacity-block" or nodes in BLOCK_SIZES}
        for plan in plans(request.shape, machines, request.sequence_length):
            for s in batches(request, machines, plan):
                yield from priced_if_fits(s, request, sold, c)


def batches(request: AdviceRequest, machines: Cluster, plan: ParallelPlan) -> Iterator[Setup]:
    """The job with each microbatch size."""
    trainer = profile(trainer_for(request.shape))
    zero = zero_stage(plan, trainer)
    length = request.sequence_length
    objective = objective_of(request.shape)
    sample = tokens_per_sample(request.shape, length, objective)
    sequences = max(1, round(request.batch_tokens / sample))
    share = shared_sequences(request.batch_tokens, sample, plan.data) // plan.data
    if abs(share * plan.data - sequences) > BATCH_SLACK * sequences:
        return
    for micro in (m for m in MICRO_BATCHES if share % m == 0 and (m <= 16 or m * sample <= MICRO_TOKENS)):
        batch = Batch(length, micro, share // micro)
        for context in contexts(plan, request.shape, trainer):
            yield Setup(
                request.shape, machines, plan, batch, trainer, request.precision, zero, objective=objective,
                context=context,
            )  # fmt: skip


def contexts(plan: ParallelPlan, shape: ModelShape, trainer: Profile) -> list[str]:
    """The ways in which context ranks may meet each other's keys."""
    if plan.cp == 1 or not trainer.own:
        return ["ring"]
    return [context for context in CONTEXTS if not plan.context_problem(context, shape)]


def trainer_for(shape: ModelShape) -> str:
    """Our own trainer for dense decoders; for a mixture of experts Megatron's profile, of which measurements are
    published."""
    return "megatron" if shape.experts else "trainwright"


def priced_if_fits(
    plain: Setup, request: AdviceRequest, prices: Mapping[str, Price | None], c: Constants
) -> Iterator[Offer | None]:
    """Offers of the job with the least recomputation that fits, by the rule of `predict`; None for what has none."""
    policy, part, used = recompute_choice(plain, c)
    if used > TIGHT * plain.cluster.device.memory:
        yield from (None for _ in prices)
        return
    s = plain if policy == "none" else replace(plain, recompute=policy, recompute_part=part)
    step = step_time(s, c).total
    for way, listed in prices.items():
        yield None if listed is None else priced(s, way, listed.usd_hour, step, request, used)


def whole_steps(tokens: float, s: Setup) -> int:
    """Steps of the job that train about so many tokens."""
    return max(1, round(tokens / s.tokens))


def priced(
    s: Setup, way: str, usd_hour: float, step: float, request: AdviceRequest, used: float, failures: float | None = None
) -> Offer:
    """The offer of a job. `failures`: per node and day, where they are not the usual ones of that way to buy."""
    nodes, rate = s.cluster.nodes, s.tokens / step
    failures, checkpoint = failures or failures_per_node_day(way), checkpoint_gb(s)
    stall = stall_of(s, checkpoint)
    interval = max(60.0, round(best_interval(stall, DAY / (failures * nodes)) / 60) * 60.0)
    effective = goodput(nodes, stall, interval, failure_rate=failures).effective
    files = file_system(s, checkpoint, interval)
    days = training_days(whole_steps(request.tokens, s) * s.tokens, rate * effective)
    monthly = lustre_monthly_usd(round(files[0] * GIB_PER_TIB), files[1], request.region, "PERSISTENT_2") or 0.0
    usd = training_usd(usd_hour * nodes, days, way, monthly)
    return Offer(s, way, rate, effective, days, usd, used / GIB, step, interval, files)
