"""What an offer becomes where the world differs from the prediction: slower, more often interrupted, dearer. Each
answer is computed like the offer itself, checkpoint interval and block lengths included."""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.catalog.prices import price
from trainwright.predict.goodput import failures_per_node_day
from trainwright.predict.hardware import GIB
from trainwright.predict.request import AdviceRequest
from trainwright.predict.search import Offer, priced

SLOWER = 0.9
DEARER, CHEAPER = 1.2, 0.8
INTERRUPTIONS_PER_DAY = 2.0


@dataclass(frozen=True, slots=True)
class WhatIf:
    """One difference, and what the training then takes."""

    name: str
    days: float
    usd: float
    meets_deadline: bool | None  # as predicted for that case; None without a deadline
    in_time: float | None  # the probability that it does


def what_ifs(offer: Offer, request: AdviceRequest) -> list[WhatIf]:
    """The offer as predicted, then one difference at a time."""
    listed = price(offer.instance, request.region, offer.kind)
    assert listed is not None, "an offer has a price"
    usual = failures_per_node_day(offer.kind)

    def changed(name: str, speed: float = 1.0, dearer: float = 1.0, failures: float = usual) -> WhatIf:
        other = priced(
            offer.setup, offer.kind, listed.usd_hour * dearer, offer.step_s / speed, request, offer.memory_gib * GIB,
            failures,
        )  # fmt: skip
        if request.deadline_days is None:
            return WhatIf(name, other.days, other.usd, None, None)
        chance = other.probability_within(request.deadline_days)
        return WhatIf(name, other.days, other.usd, other.days <= request.deadline_days, chance)

    return [
        changed("as predicted"),
        changed(f"{1 - SLOWER:.0%} lower MFU", speed=SLOWER),
        changed(f"interrupted {INTERRUPTIONS_PER_DAY:g} times per day", failures=INTERRUPTIONS_PER_DAY / offer.nodes),
        changed(f"price {DEARER - 1:.0%} higher", dearer=DEARER),
        changed(f"price {1 - CHEAPER:.0%} lower", dearer=CHEAPER),
    ]
