"""The front of `advise` as a picture: dollars against days, a curve per instance type, the chosen offer marked."""

from __future__ import annotations

from trainwright.predict.advice import Advice
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
