"""Searches instance types, node counts, ways to buy them and parallel plans for the cheapest and fastest training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainwright.catalog.instances import InstanceType, instances
from trainwright.catalog.prices import price
from trainwright.errors import UserError, did_you_mean
from trainwright.predict.constants import Constants, constants
from trainwright.predict.goodput import FAILURES_PER_NODE_DAY, goodput
from trainwright.predict.hardware import Cluster, cluster_of
from trainwright.predict.memory import memory
from trainwright.predict.needs import stall_of
from trainwright.predict.plan import Batch, Plan, check_fit
from trainwright.predict.prediction import TIGHT
from trainwright.predict.profiles import profile
from trainwright.predict.setup import Setup
from trainwright.predict.step import step_time
from trainwright.train.models.shape import ModelShape

DAY = 86_400.0
MICRO = (1, 2, 4, 8)
KINDS = ("on-demand", "spot", "capacity-block")
BATCH_SLACK = 0.1  # of the batch asked for: a plan that would change the training more is none
SPOT_FAILURES = 20.0  # times the usual rate: spot nodes are also taken back
FAMILIES = ("p4d", "p4de", "p5", "p5e", "p5en", "p6-b200", "p6-b300")


class NoOffer(UserError):
    """A fair question, to which nothing on offer is the answer."""

    status = 1


@dataclass(frozen=True, slots=True)
class Offer:
    """One way to train the model, with what it takes in days and dollars."""

    setup: Setup
    instance: str
    nodes: int
    kind: str
    tokens_per_s: float
    effective: float
    days: float
    usd: float
    memory_gib: float

    @property
    def gpus(self) -> int:
        return self.setup.cluster.gpus


@dataclass(frozen=True)
class Advice:
    """The front of offers that nothing beats in both time and money, the one chosen, and why the others lost."""

    front: list[Offer]
    chosen: Offer
    why: str
    runners_up: list[tuple[Offer, str]]
    candidates: int
    fitting: int


def chosen_types(names: Sequence[str]) -> list[InstanceType]:
    """Instance types by name or by family (`p5`: its largest size)."""
    every = instances()
    found = []
    for name in names or FAMILIES:
        exact = [i for i in every if i.name == name]
        family = [i for i in every if i.family == name and i.accelerator_count]
        if not exact and not family:
            families = sorted({i.family for i in every if i.accelerator_count})
            raise UserError(
                f"no instance type or family {name!r} with accelerators", where="--instances",
                fix=did_you_mean(name, families) or ", ".join(families),
            )  # fmt: skip
        found.append(max(exact or family, key=lambda i: i.accelerator_count))
    neuron = [i.name for i in found if i.is_neuron]
    if neuron and len(neuron) == len(found):
        raise UserError(
            f"{', '.join(neuron)}: Neuron kernels are outside the evidence", where="--instances",
            fix="name a GPU family beside them; they are left out of the search",
        )  # fmt: skip
    return [i for i in found if not i.is_neuron]


def left_out(names: Sequence[str]) -> list[str]:
    """Neuron families that were asked for and are not searched: their kernels are outside the evidence."""
    neuron = {i.family for i in instances() if i.is_neuron} | {i.name for i in instances() if i.is_neuron}
    return [name for name in names if name in neuron]


def node_counts(most: int) -> list[int]:
    """One to `most`, in steps of a half: 1, 2, 3, 4, 6, 8, 12, 16, ..."""
    found = {1}
    power = 2
    while power <= most:
        found |= {power, power * 3 // 2} if power * 3 // 2 <= most else {power}
        power *= 2
    return sorted(found)


def plans(shape: ModelShape, cluster: Cluster, seq: int) -> Iterator[Plan]:
    """Every plan worth a look: tensor parallelism inside the node, a few pipeline depths, sharding whole or by node."""
    gpus, inner = cluster.gpus, cluster.per_node
    for tp in (t for t in (1, 2, 4, 8) if inner % t == 0 and t <= inner):
        for pp in (p for p in (1, 2, 4, 8, 16) if shape.layers % p == 0 or shape.layers >= 4 * p):
            for cp in (c for c in (1, 2, 4, 8) if c == 1 or seq // c >= 4096):
                if gpus % (tp * pp * cp):
                    continue
                dp = gpus // (tp * pp * cp)
                for interleave in (1, 2) if pp > 1 else (1,):
                    whole = Plan(shard=dp, tp=tp, pp=pp, cp=cp, interleave=interleave, zero=3 if dp * cp > 1 else 0)
                    if check_fit(whole, shape, seq):
                        continue
                    yield whole
                    node = inner // tp
                    if 1 < node < dp and dp % node == 0 and cp == 1:
                        yield whole.but(replicate=dp // node, shard=node)


def offers(
    shape: ModelShape,
    kind: InstanceType,
    tokens: float,
    batch_tokens: int,
    seq: int,
    precision: str,
    region: str,
    counts: Sequence[int],
    ways: Sequence[str],
    c: Constants,
) -> Iterator[Offer | None]:
    """Every candidate of one instance type; None for one that does not fit or cannot be bought."""
    stack = profile("trainwright")
    sequences = max(1, round(batch_tokens / seq))
    prices = {way: price(kind.name, region, way) for way in ways}
    for nodes in counts:
        machines = cluster_of(kind, nodes)
        if precision == "fp8" and not machines.device.fp8:
            continue
        for plan in plans(shape, machines, seq):
            share = round(sequences / plan.dp)
            if abs(share * plan.dp - sequences) > BATCH_SLACK * sequences:
                continue
            for micro in MICRO:
                if share % micro:
                    continue
                for recompute in ("none", "selective", "full"):
                    s = Setup(
                        shape, machines, plan, Batch(seq, micro, share // micro), stack, precision, False, recompute
                    )
                    held = memory(s, c).total
                    if held > TIGHT * machines.device.memory:
                        yield from (None for _ in ways)
                        continue
                    rate = s.tokens / step_time(s, c).total
                    for way in ways:
                        yield bought(s, kind.name, nodes, way, prices[way], rate, tokens, held)
                    break  # more recomputation only slows down what already fits


def bought(
    s: Setup, name: str, nodes: int, way: str, found: object, rate: float, tokens: float, held: float
) -> Offer | None:
    usd_hour = getattr(found, "usd_hour", None)
    if usd_hour is None:
        return None
    failures = FAILURES_PER_NODE_DAY * (SPOT_FAILURES if way == "spot" else 1.0)
    part = goodput(nodes, stall_of(s), failures_per_node_day=failures).effective
    days = tokens / (rate * part) / DAY
    return Offer(s, name, nodes, way, rate, part, days, usd_hour * nodes * 24 * days, held / 2**30)


def pareto(found: list[Offer]) -> list[Offer]:
    """Offers that no other beats in both days and dollars, fastest first."""
    front: list[Offer] = []
    cheapest = float("inf")
    for offer in sorted(found, key=lambda o: (o.days, o.usd)):
        if offer.usd < cheapest * 0.9999:
            front.append(offer)
            cheapest = offer.usd
    return front


def advise(
    shape: ModelShape,
    tokens: float,
    *,
    deadline_days: float | None = None,
    budget: float | None = None,
    region: str = "us-east-1",
    names: Sequence[str] = (),
    ways: Sequence[str] = ("on-demand", "capacity-block"),
    seq: int | None = None,
    batch_tokens: int = 4_194_304,
    precision: str = "bf16",
    most_nodes: int = 512,
    c: Constants | None = None,
) -> Advice:
    """Search and choose: the cheapest that meets the deadline, the fastest within the budget, or the best balance."""
    c = c or constants()
    length = seq or min(shape.context, 8192)
    found: list[Offer] = []
    candidates = 0
    for kind in chosen_types(names):
        for offer in offers(
            shape, kind, tokens, batch_tokens, length, precision, region, node_counts(most_nodes), ways, c
        ):
            candidates += 1
            if offer is not None:
                found.append(offer)
    if not found:
        raise NoOffer(
            f"nothing among {candidates:,} candidates fits {shape.name} and has a price in {region}",
            fix="try another --region, more --nodes, --precision fp8, or other --instances",
        )
    front = pareto(found)
    chosen, why = choose(front, deadline_days, budget)
    return Advice(front, chosen, why, losers(found, chosen), candidates, len(found))


def choose(front: list[Offer], deadline: float | None, budget: float | None) -> tuple[Offer, str]:
    if deadline is not None or budget is not None:
        allowed = [o for o in front if (deadline is None or o.days <= deadline) and (budget is None or o.usd <= budget)]
        if not allowed:
            fastest, cheapest = front[0], front[-1]
            raise NoOffer(
                "no offer meets the deadline and the budget",
                fix=f"the fastest takes {fastest.days:.1f} days for ${fastest.usd:,.0f}; the cheapest "
                f"${cheapest.usd:,.0f} in {cheapest.days:.1f} days",
            )
        if deadline is not None:
            return min(allowed, key=lambda o: o.usd), f"the cheapest of those that end within {deadline:g} days"
        return min(allowed, key=lambda o: o.days), f"the fastest of those under ${budget:,.0f}"
    best = min(front, key=lambda o: o.days * o.usd)
    return best, "the best balance: halving its time would more than double its price, and the other way round"


def losers(found: list[Offer], chosen: Offer) -> list[tuple[Offer, str]]:
    """The best offer of each other instance type, and of each other plan on the same machines, with what it lacks."""
    best: dict[tuple[str, ...], Offer] = {}
    for offer in found:
        same = (offer.instance, offer.nodes, offer.kind) == (chosen.instance, chosen.nodes, chosen.kind)
        key = ("plan", offer.setup.plan.text()) if same else ("type", offer.instance, offer.kind)
        score = offer.days if same else offer.days * offer.usd
        known = best.get(key)
        if known is None or score < (known.days if same else known.days * known.usd):
            best[key] = offer
    rest = [o for o in best.values() if o.setup != chosen.setup]
    rest.sort(key=lambda o: o.days * o.usd)
    return [(o, lacks(o, chosen)) for o in rest[:8]]


def lacks(offer: Offer, chosen: Offer) -> str:
    if (offer.instance, offer.nodes, offer.kind) == (chosen.instance, chosen.nodes, chosen.kind):
        slower = 1 - chosen.days / offer.days
        how = f"{slower:.0%} slower" if slower >= 0.005 else "as fast"
        return f"{how} on the same machines: {costliest(offer)}"
    time, money = offer.days / chosen.days, offer.usd / chosen.usd
    if time >= 1 and money >= 1:
        return f"{time:.1f}x the time and {money:.1f}x the price"
    if money >= 1:
        return f"{1 / time:.1f}x as fast, but {money:.1f}x the price"
    return f"{1 - money:.0%} cheaper, but {time:.1f}x the time"


def costliest(offer: Offer) -> str:
    """The overhead that weighs most in this plan."""
    took = step_time(offer.setup, constants())
    names = ("tensor parallel", "weight gathers", "bubble", "recompute", "gradients", "imbalance", "context parallel")
    worst = max(names, key=lambda n: took.parts[n])
    return f"{took.parts[worst] / took.total:.0%} of the step goes into {worst}"
