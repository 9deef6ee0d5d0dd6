"""Chooses among the offers of a search: the front of cost against time, the offer taken, and why others were not."""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.errors import UserError
from trainwright.predict.constants import Constants, constants
from trainwright.predict.cost import billed_days
from trainwright.predict.request import AdviceRequest
from trainwright.predict.search import Offer, chosen_types, offers
from trainwright.predict.step import step_time

RUNNERS_UP = 8
LATE = 0.1  # a probability that deserves a word
EQUAL_COST = 0.02  # less than the predictor can tell apart
OVERHEADS = (
    "tensor parallel", "weight gathers", "bubble", "recompute", "gradients", "imbalance", "context parallel",
)  # fmt: skip


class NoOffer(UserError):
    """The request is valid, but nothing on offer satisfies it."""

    status = 1


@dataclass(frozen=True)
class Advice:
    """The offers that no other beats in both time and cost, the one chosen, and why others were not."""

    front: list[Offer]
    chosen: Offer
    why: str
    runners_up: list[tuple[Offer, str]]
    candidates: int
    fitting: int


def advise(request: AdviceRequest, c: Constants | None = None) -> Advice:
    """Search and choose: the cheapest that meets the deadline, the fastest within the budget, or the best balance."""
    c = c or constants()
    return advice_of(search(request, c), request, c)


def search(request: AdviceRequest, c: Constants) -> list[Offer | None]:
    """Every candidate; None for one that does not fit or has no price. Neither deadline nor budget changes them."""
    return [offer for kind in chosen_types(request.instances) for offer in offers(request, kind, c)]


def advice_of(searched: list[Offer | None], request: AdviceRequest, c: Constants) -> Advice:
    """Chooses among the candidates of a search."""
    fitting, candidates = [offer for offer in searched if offer is not None], len(searched)
    if not fitting:
        raise NoOffer(
            f"none of {candidates:,} candidates fits {request.shape.name} and has a price in {request.region}",
            fix="try another --region, more --nodes, --precision fp8, or other --instances",
        )
    front = pareto(fitting)
    chosen, why = choose(front, request.deadline_days, request.budget, request.max_nodes)
    return Advice(front, chosen, why, runners_up(fitting, chosen, c), candidates, len(fitting))


def pareto(fitting: list[Offer]) -> list[Offer]:
    """Offers that no other beats in both days and dollars, fastest first."""
    front: list[Offer] = []
    cheapest = float("inf")
    for offer in sorted(fitting, key=lambda o: (o.days, o.usd)):
        if offer.usd < cheapest * 0.9999:
            front.append(offer)
            cheapest = offer.usd
    return front


def choose(
    front: list[Offer], deadline: float | None, budget: float | None, most: int | None = None
) -> tuple[Offer, str]:
    if deadline is not None or budget is not None:
        allowed = [
            o for o in front if (deadline is None or o.latest_days <= deadline) and (budget is None or o.usd <= budget)
        ]
        if not allowed:
            fastest, cheapest = front[0], front[-1]
            raise NoOffer(
                "no offer meets the deadline and the budget",
                fix=f"the fastest takes {fastest.days:.1f} days (at most {fastest.latest_days:.1f} with a "
                f"probability of 90 %) for ${fastest.usd:,.0f}; the cheapest "
                f"${cheapest.usd:,.0f} in {cheapest.days:.1f} days"
                + (f"; at most {most} instances were searched, --nodes sets another limit" if most else ""),
            )
        if deadline is not None:
            return soonest(allowed), f"the cheapest that ends within {deadline:g} days with a probability of 90 %"
        return min(allowed, key=lambda o: o.days), f"the fastest under ${budget:,.0f}"
    best = min(front, key=lambda o: o.days * o.usd)
    near = [o for o in front if o.usd <= best.usd * (1 + EQUAL_COST) and o.days * o.usd <= 1.02 * best.days * best.usd]
    return min(
        near, key=lambda o: o.days
    ), "the best balance: halving its time would more than double its cost, and vice versa"


def soonest(offers: list[Offer]) -> Offer:
    """Of the offers that cost nearly as little as the cheapest, the one that ends first."""
    least = min(o.usd for o in offers)
    return min((o for o in offers if o.usd <= least * (1 + EQUAL_COST)), key=lambda o: o.days)


def runners_up(fitting: list[Offer], chosen: Offer, c: Constants) -> list[tuple[Offer, str]]:
    """The best offer of each other instance type, and of each other plan on the same machines, with its drawback."""
    best: dict[tuple[str, ...], Offer] = {}
    for offer in fitting:
        same = same_machines(offer, chosen)
        key = ("plan", str(offer.setup.plan)) if same else ("type", offer.instance, offer.kind)
        score = offer.days if same else offer.days * offer.usd
        known = best.get(key)
        if known is None or score < (known.days if same else known.days * known.usd):
            best[key] = offer
    rest = sorted((o for o in best.values() if o.setup != chosen.setup), key=lambda o: o.days * o.usd)
    elsewhere = [o for o in rest if not same_machines(o, chosen)]
    plans = [o for o in rest if same_machines(o, chosen)][: max(RUNNERS_UP // 2, RUNNERS_UP - len(elsewhere))]
    return [(o, drawback(o, chosen, c)) for o in (*elsewhere[: RUNNERS_UP - len(plans)], *plans)]


def same_machines(offer: Offer, chosen: Offer) -> bool:
    return (offer.instance, offer.nodes, offer.kind) == (chosen.instance, chosen.nodes, chosen.kind)


def drawback(offer: Offer, chosen: Offer, c: Constants) -> str:
    if same_machines(offer, chosen):
        slower = 1 - chosen.days / offer.days
        how = f"{slower:.0%} slower" if slower >= 0.005 else "as fast"
        return f"{how} on the same machines: {largest_overhead(offer, c)}"
    time, money = offer.days / chosen.days, offer.usd / chosen.usd
    if time >= 1 and money >= 1:
        return f"{time:.1f}x the time and {money:.1f}x the cost"
    if money >= 1:
        return f"{1 / time:.1f}x as fast, but {money:.1f}x the cost"
    return f"{1 - money:.0%} cheaper, but {time:.1f}x the time"


def block_risk(offer: Offer) -> str:
    """What to do about a capacity block that may end before the training does; empty where that is unlikely."""
    if offer.kind != "capacity-block":
        return ""
    bought = billed_days(offer.days, offer.kind)
    chance, longer = 1 - offer.probability_within(bought), billed_days(offer.latest_days, offer.kind)
    if chance <= LATE:
        return ""
    return (
        f"a block of {bought:g} d ends before the training with a probability of {chance:.0%}: buy {longer:g} d, or "
        "the last checkpoint is what remains"
    )


def largest_overhead(offer: Offer, c: Constants) -> str:
    step = step_time(offer.setup, c)
    worst = max(OVERHEADS, key=lambda name: step.parts[name])
    return f"{step.parts[worst] / step.total:.0%} of the step is {worst}"
