"""The front of `advise` as a picture: dollars against days, a curve per instance type, the chosen offer marked."""

from __future__ import annotations

from collections.abc import Sequence

from trainwright.predict.advice import Advice
from trainwright.predict.sweep import Answer
from trainwright.report.curve import Axes, Curve, svg


def front_picture(model: str, advice: Advice) -> str:
    """The offers that no other beats, as SVG. Days grow by doubling: fronts span hours to months."""
    curves: list[Curve] = []
    for instance in dict.fromkeys(offer.instance for offer in advice.front):
        points = sorted((offer.days, offer.usd) for offer in advice.front if offer.instance == instance)
        curves.append(Curve(instance, points))
    chosen = advice.chosen
    curves.append(Curve(f"chosen: {chosen.nodes} nodes", [(chosen.days, chosen.usd)]))
    return svg(Axes(f"{model}: what it costs to be done by then", "days", "dollars"), curves)


def sweep_picture(answers: Sequence[Answer]) -> str:
    """The fronts of several questions in one picture: a curve per model and number of tokens, the chosen offers
    marked."""
    curves: dict[str, Curve] = {}
    for one in answers:
        if one.advice is None:
            continue
        front = sorted((offer.days, offer.usd) for offer in one.advice.front)
        curves.setdefault(one.question, Curve(one.question, front))
    chosen = [Curve(f"chosen: {one.label}", [(a.chosen.days, a.chosen.usd)]) for one in answers if (a := one.advice)]
    return svg(Axes("what it costs to be done by then", "days", "dollars"), [*curves.values(), *chosen])
