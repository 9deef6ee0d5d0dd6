"""Why the chosen offer was taken: for each alternative, what rules it out, and by which factors of time and cost it is
behind (or ahead): size of the machines, MFU, goodput, price, and what start-up, whole days and storage add."""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.catalog.prices import price
from trainwright.predict.advice import Advice, drawback, same_machines
from trainwright.predict.constants import Constants
from trainwright.predict.objective import model_flops
from trainwright.predict.request import AdviceRequest
from trainwright.predict.search import Offer
from trainwright.predict.step import step_time
from trainwright.train.flops import mfu

SHOWN = 0.005  # a factor or a term that changes less than this is left out
MILLION = 1e6


@dataclass(frozen=True)
class Alternative:
    """An offer that was not chosen. Factors are those of the alternative over the chosen one: above 1 it loses."""

    offer: Offer
    drawback: str
    ruled_out: str  # by the deadline or the budget; empty: it is worse, or balances time and cost worse
    time: dict[str, float]
    cost: dict[str, float]
    terms: dict[str, float]  # seconds per million tokens more than the chosen; on the same machines only


def alternatives(advice: Advice, request: AdviceRequest, c: Constants) -> list[Alternative]:
    """The neighbours of the chosen offer on the front, then the runners-up, each once."""
    place = advice.front.index(advice.chosen)
    near = [advice.front[i] for i in (place - 1, place + 1) if 0 <= i < len(advice.front)]
    every = [*near, *(offer for offer, _ in advice.runners_up if offer not in near)]
    return [alternative(offer, advice.chosen, request, c) for offer in every]


def alternative(offer: Offer, chosen: Offer, request: AdviceRequest, c: Constants) -> Alternative:
    return Alternative(
        offer, drawback(offer, chosen, c), ruled_out(offer, request), *factors(offer, chosen, request.region),
        term_differences(offer, chosen, c) if same_machines(offer, chosen) else {},
    )  # fmt: skip


def ruled_out(offer: Offer, request: AdviceRequest) -> str:
    if request.deadline_days is not None and offer.latest_days > request.deadline_days:
        chance = max(0.01, offer.probability_within(request.deadline_days))
        return f"ends within {request.deadline_days:g} days with a probability of at most {chance:.0%}"
    if request.budget is not None and offer.usd > request.budget:
        return f"${offer.usd - request.budget:,.0f} over the budget"
    return ""


def factors(offer: Offer, chosen: Offer, region: str) -> tuple[dict[str, float], dict[str, float]]:
    """(time, cost): factors whose products are the ratios of days and of dollars."""
    speed = mfu_of(chosen) / mfu_of(offer)
    kept = chosen.effective / offer.effective
    size = peak(chosen) / peak(offer)
    time = {"peak FLOP/s": size, "MFU": speed, "goodput": kept}
    time["start-up"] = offer.days / chosen.days / (size * speed * kept)
    rate = hourly(offer, region) / peak(offer) / (hourly(chosen, region) / peak(chosen))
    cost = {"price per peak FLOP": rate, "MFU": speed, "goodput": kept}
    cost["start-up, whole days, storage"] = offer.usd / chosen.usd / (rate * speed * kept)
    return time, cost


def mfu_of(offer: Offer) -> float:
    s = offer.setup
    return mfu(offer.tokens_per_s, model_flops(s.shape, s.batch.sequence, s.objective, s.adapter_rank), peak(offer))


def peak(offer: Offer) -> float:
    """FLOP/s of all GPUs in 16 bits."""
    return offer.setup.cluster.device.bf16 * offer.gpus


def hourly(offer: Offer, region: str) -> float:
    listed = price(offer.instance, region, offer.kind)
    assert listed is not None, "an offer has a price"
    return listed.usd_hour * offer.nodes


def term_differences(offer: Offer, chosen: Offer, c: Constants) -> dict[str, float]:
    """Where the time goes, beside the chosen offer: seconds per million tokens, the largest difference first."""
    theirs, ours = (
        {name: seconds / o.setup.tokens * MILLION for name, seconds in step_time(o.setup, c).parts.items()}
        for o in (offer, chosen)
    )
    whole = chosen.step_s / chosen.setup.tokens * MILLION
    differences = {name: theirs[name] - ours[name] for name in theirs}
    shown = {name: more for name, more in differences.items() if abs(more) >= SHOWN * whole}
    return dict(sorted(shown.items(), key=lambda item: -abs(item[1])))


def lines(other: Alternative, chosen: Offer) -> list[str]:
    """The alternative in words: what it is, and one line each for time, cost and the terms of the step."""
    offer = other.offer
    text = [f"{offer.nodes} x {offer.instance} ({offer.kind}) {offer.setup.plan}: {other.ruled_out or other.drawback}"]
    for name, ratio, parts in (
        ("time", offer.days / chosen.days, other.time),
        ("cost", offer.usd / chosen.usd, other.cost),
    ):
        shown = [f"{value:.2f}x {key}" for key, value in parts.items() if abs(value - 1) >= SHOWN]
        text.append(f"  {name} {ratio:.2f}x" + (f" = {', '.join(shown)}" if shown else ""))
    text.append(f"  MFU {mfu_of(offer):.1%}, chosen {mfu_of(chosen):.1%}")
    if other.terms:
        more = ", ".join(f"{name} {seconds:+.2g} s" for name, seconds in list(other.terms.items())[:4])
        text.append(f"  per million tokens: {more}")
    return text
