"""Searches instance types, node counts, ways to buy them and parallel plans for what can train a model, with the days
and dollars of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from trainwright.catalog.instances import InstanceType, instances
from trainwright.catalog.prices import Price, price
from trainwright.errors import UserError, did_you_mean
from trainwright.predict.constants import Constants
from trainwright.predict.goodput import FAILURES_PER_NODE_DAY, goodput
from trainwright.predict.hardware import GIB, Cluster, cluster_of
from trainwright.predict.memory import TIGHT, memory
from trainwright.predict.needs import stall_of
from trainwright.predict.profiles import profile
from trainwright.predict.request import AdviceRequest
from trainwright.predict.setup import Batch, Setup, zero_stage
from trainwright.predict.step import step_time
from trainwright.train.models.shape import ModelShape
from trainwright.train.parallel.plan import ParallelPlan

DAY = 86_400.0
MICRO_BATCHES = (1, 2, 4, 8)
BATCH_SLACK = 0.1  # a plan may change the batch by this share; more would change the training
SPOT_FAILURES = 20.0  # times the usual rate: spot nodes are also reclaimed
FAMILIES = ("p4d", "p4de", "p5", "p5e", "p5en", "p6-b200", "p6-b300")


@dataclass(frozen=True, slots=True)
class Offer:
    """One way to train the model, with the days and dollars it takes."""

    setup: Setup
    kind: str  # how it is bought: on-demand | spot | capacity-block
    tokens_per_s: float
    effective: float
    days: float
    usd: float
    memory_gib: float

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
    for name in names or FAMILIES:
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
            f"{', '.join(neuron)} cannot be predicted: too little is published about Neuron kernels",
            where="--instances", fix="add a GPU family; Neuron types are left out of the search",
        )  # fmt: skip
    return [i for i in types if not i.is_neuron]


def left_out(names: Sequence[str]) -> list[str]:
    """Requested Neuron families, which the search leaves out because too little is published about their kernels."""
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
                for virtual in (1, 2) if pp > 1 else (1,):
                    whole = ParallelPlan(shard=data, tp=tp, pp=pp, cp=cp, virtual_stages=virtual)
                    if whole.misfit(shape, sequence):
                        continue
                    yield whole
                    node = inner // tp
                    if 1 < node < data and data % node == 0 and cp == 1:
                        yield replace(whole, replicate=data // node, shard=node)


def offers(request: AdviceRequest, kind: InstanceType, c: Constants) -> Iterator[Offer | None]:
    """Every candidate of one instance type; None for one that does not fit or has no price."""
    prices = {way: price(kind.name, request.region, way) for way in request.price_kinds}
    for nodes in node_counts(request.max_nodes):
        machines = cluster_of(kind, nodes)
        if request.precision == "fp8" and not machines.device.fp8:
            continue
        for plan in plans(request.shape, machines, request.sequence_length):
            for candidates in batches(request, machines, plan):
                yield from first_that_fits(candidates, request.tokens, prices, c)


def batches(request: AdviceRequest, machines: Cluster, plan: ParallelPlan) -> Iterator[Iterator[Setup]]:
    """For each microbatch size: the setups from no recomputation to full recomputation."""
    trainer = profile("trainwright")
    zero = zero_stage(plan, trainer)
    length = request.sequence_length
    sequences = max(1, round(request.batch_tokens / length))
    share = round(sequences / plan.data)
    if abs(share * plan.data - sequences) > BATCH_SLACK * sequences:
        return
    for micro in (m for m in MICRO_BATCHES if share % m == 0):
        batch = Batch(length, micro, share // micro)
        yield (
            Setup(request.shape, machines, plan, batch, trainer, request.precision, zero, recompute=policy)
            for policy in ("none", "selective", "full")
        )


def first_that_fits(
    candidates: Iterator[Setup], tokens: float, prices: Mapping[str, Price | None], c: Constants
) -> Iterator[Offer | None]:
    """Offers of the first setup that fits: more recomputation would only be slower. None for each that does not."""
    for s in candidates:
        used = memory(s, c).total
        if used > TIGHT * s.cluster.device.memory:
            yield from (None for _ in prices)
            continue
        rate = s.tokens / step_time(s, c).total
        for way, listed in prices.items():
            yield None if listed is None else priced(s, way, listed.usd_hour, rate, tokens, used)
        return


def priced(s: Setup, way: str, usd_hour: float, rate: float, tokens: float, used: float) -> Offer:
    nodes = s.cluster.nodes
    failures = FAILURES_PER_NODE_DAY * (SPOT_FAILURES if way == "spot" else 1.0)
    effective = goodput(nodes, stall_of(s), failures_per_node_day=failures).effective
    days = tokens / (rate * effective) / DAY
    return Offer(s, way, rate, effective, days, usd_hour * nodes * 24 * days, used / GIB)
