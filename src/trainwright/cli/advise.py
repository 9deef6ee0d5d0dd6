"""`trainwright advise`: finds the cheapest or fastest way to train a model, before anyone pays for it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trainwright.cli.quantity import positive, quantity
from trainwright.errors import UserError

if TYPE_CHECKING:
    from trainwright.predict.advice import Advice
    from trainwright.predict.request import AdviceRequest
    from trainwright.predict.search import Offer
    from trainwright.predict.what_if import WhatIf


@click.command()
@click.option("--model", required=True, help="Model, such as llama3-70b, or the path of a config.json.")
@click.option("--tokens", required=True, help="Tokens to train on, such as 15T.")
@click.option("--deadline", help="Longest duration, such as 30d.")
@click.option("--budget", help="Maximum cost in dollars, such as 2M.")
@click.option("--region", default="us-east-1", show_default=True)
@click.option("--platform", default="parallelcluster", show_default=True, help="Platform of the spec that is written.")
@click.option("--instances", default="", help="Types or families, such as p5,p5en,p6-b200 (default: p4d to p6-b300).")
@click.option(
    "--capacity", default="on-demand,capacity-block", show_default=True, help="on-demand, spot, capacity-block."
)
@click.option("--sequence", type=click.IntRange(min=1), help="Tokens per sequence.")
@click.option("--seq", type=click.IntRange(min=1), hidden=True)  # the name in earlier versions
@click.option("--batch", default="4194304", show_default=True, help="Tokens per step.")
@click.option("--precision", type=click.Choice(["bf16", "fp8"]), default="bf16", show_default=True)
@click.option(
    "--nodes", type=click.IntRange(min=1, max=12_500), default=64, show_default=True,
    help="Maximum. More than the default, a capacity block's size, is sold by agreement.",
)  # fmt: skip
@click.option("--what-if", "sensitivity", is_flag=True, help="Show the chosen offer slower, interrupted, and dearer.")
@click.option("--svg", "picture", type=click.Path(path_type=Path), help="Draw the front of cost against time there.")
@click.option("--spec", "spec_file", type=click.Path(path_type=Path), help="Write the chosen offer there, as a spec.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    model: str,
    tokens: str,
    as_json: bool,
    spec_file: Path | None,
    sensitivity: bool,
    picture: Path | None,
    platform: str,
    **flags: Any,
) -> None:
    """Search instance types, node counts, ways to buy and parallel plans; print the front of cost against time."""
    from trainwright.files import write_text
    from trainwright.predict.advice import advise
    from trainwright.predict.advice_spec import spec_of, text_of
    from trainwright.predict.calibrate import calibrated
    from trainwright.predict.search import left_out
    from trainwright.predict.what_if import what_ifs

    request = _request(model, tokens, {**flags, "capacity": _sold(flags["capacity"], _platform(platform))})
    if spec_file and request.shape.experts:
        raise UserError(
            f"no spec can be written: {model} is a mixture of experts, and offers for these are predicted for Megatron",
            where="--spec", fix="leave --spec out, and write the job with a recipe such as mixtral-8x7b",
        )  # fmt: skip
    for name in left_out(request.instances):
        click.echo(f"{name} is left out: our trainer needs GPUs", err=True)
    advice = advise(request, calibrated())
    differences = what_ifs(advice.chosen, request) if sensitivity else []
    if picture:
        from trainwright.report.front import front_picture

        write_text(picture, front_picture(model, advice))
    if as_json:
        record = {
            "candidates": advice.candidates, "fitting": advice.fitting, "why": advice.why,
            "chosen": _record(advice.chosen), "zones": _zones(advice.chosen, request),
            "front": [_record(o) for o in advice.front],
            "runners_up": [{**_record(o), "why_not": why} for o, why in advice.runners_up],
            **({"what_if": [asdict(row) for row in differences]} if sensitivity else {}),
            "spec": None if request.shape.experts else spec_of(advice.chosen, request.tokens, request.region, platform),
        }  # fmt: skip
        click.echo(json.dumps(record, indent=2))
    else:
        _print(advice, request, differences, platform)
    if spec_file:
        write_text(spec_file, text_of(advice.chosen, request.tokens, request.region, platform))
        click.echo(f"wrote {spec_file}", err=True)


def _request(model: str, tokens: str, flags: dict[str, Any]) -> AdviceRequest:
    from trainwright.catalog.models import model as model_shape
    from trainwright.predict.request import AdviceRequest

    return AdviceRequest(
        model_shape(model), _count("--tokens", tokens), deadline_days=_days(flags["deadline"]),
        budget=_count("--budget", flags["budget"]) if flags["budget"] else None, region=_region(flags["region"]),
        instances=_words(flags["instances"]), price_kinds=_price_kinds(flags["capacity"]),
        sequence=flags["sequence"] or flags["seq"], batch_tokens=_count("--batch", flags["batch"]),
        precision=flags["precision"], max_nodes=flags["nodes"],
    )  # fmt: skip


def _print(advice: Advice, request: AdviceRequest, differences: list[WhatIf], platform: str) -> None:
    from trainwright.cli.table import columns
    from trainwright.predict.advice_spec import text_of

    header = ("time", "dollars", "instance", "nodes", "bought", "plan", "micro x count", "recompute", "tokens/s")
    rows = [(*_cells(o), "<- chosen" if o is advice.chosen else "") for o in advice.front]
    click.echo(columns((*header, "goodput", ""), rows))
    chosen = advice.chosen
    click.echo(f"\nchosen: {advice.why}")
    click.echo(
        f"it takes at most {_duration(chosen.latest_days)} with a probability of 90 %, 0.25 h of start-up included"
    )
    zones = _zones(chosen, request)
    if zones is not None:
        from trainwright.catalog.offerings import offerings_date

        where = ", ".join(zones) or "no zone"
        click.echo(
            f"supply: {chosen.instance} is offered in {where} ({offerings_date()}); offered is not available: "
            f"reserve {chosen.nodes}, or ask for a quota of so many"
        )
    if differences:
        click.echo("\nwhat if")
        late = {None: "", True: "", False: "after the deadline"}
        lines = [(row.name, _duration(row.days), f"{row.usd:,.0f}", late[row.meets_deadline]) for row in differences]
        click.echo(columns(("", "time", "dollars", ""), lines))
    click.echo("\nwhy not the others")
    for offer, why in advice.runners_up:
        click.echo(f"  {offer.nodes} x {offer.instance} ({offer.kind}) {offer.setup.plan}: {why}")
    if request.shape.experts:
        click.echo("\nno spec: offers for a mixture of experts are predicted for Megatron")
    else:
        click.echo(f"\nspec\n{text_of(advice.chosen, request.tokens, request.region, platform)}")
    click.echo(f"{advice.candidates:,} candidates, {advice.fitting:,} of them fit and have a price", err=True)


def _zones(offer: Offer, request: AdviceRequest) -> tuple[str, ...] | None:
    """The zones of the region that offer the instance type; None where that is not known."""
    from trainwright.catalog.offerings import offered_zones

    return offered_zones(offer.instance, request.region)


def _cells(o: Offer) -> tuple[str, ...]:
    s = o.setup
    return (
        _duration(o.days), f"{o.usd:,.0f}", o.instance, str(o.nodes), o.kind, str(s.plan),
        f"{s.batch.micro} x {s.batch.count}", s.recompute, f"{o.tokens_per_s:,.0f}", f"{o.effective:.1%}",
    )  # fmt: skip


def _duration(days: float) -> str:
    return f"{days:,.1f} d" if days >= 1 else f"{days * 24:.1f} h"


def _record(o: Offer) -> dict[str, object]:
    s = o.setup
    return {
        "instance": o.instance, "nodes": o.nodes, "gpus": o.gpus, "capacity": o.kind, "plan": str(s.plan),
        "micro_batch": s.batch.micro, "microbatches": s.batch.count, "recompute": s.recompute,
        "tokens_per_s": o.tokens_per_s, "goodput": o.effective, "days": o.days, "latest_days": o.latest_days,
        "usd": o.usd, "step_time_s": o.step_s, "checkpoint_s": o.checkpoint_s,
        "memory_gib": o.memory_gib,
    }  # fmt: skip


def _count(option: str, text: str) -> int:
    from trainwright.spec.units import parse_count

    return positive(option, quantity(option, text, parse_count))


def _days(text: str | None) -> float | None:
    from trainwright.spec.units import parse_seconds

    return None if text is None else quantity("--deadline", text, parse_seconds) / 86_400


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.replace(" ", "").split(",") if word)


def _price_kinds(text: str) -> tuple[str, ...]:
    from trainwright.catalog.prices import KINDS
    from trainwright.errors import did_you_mean

    for word in _words(text):
        if word not in KINDS:
            raise UserError(
                f"no way to buy {word!r}", where="--capacity", fix=did_you_mean(word, KINDS) or ", ".join(KINDS)
            )
    return _words(text)


def _platform(name: str) -> str:
    from trainwright.errors import did_you_mean
    from trainwright.predict.advice_spec import PLATFORMS

    if name not in PLATFORMS:
        fix = did_you_mean(name, PLATFORMS) or ", ".join(PLATFORMS)
        raise UserError(f"no spec is written for platform {name!r}", where="--platform", fix=fix)
    return name


def _sold(capacity: str, platform: str) -> str:
    """Ways to buy that the platform has: Batch runs no job of several nodes on spot."""
    if platform != "batch" or "spot" not in _words(capacity):
        return capacity
    click.echo("spot is left out: Batch runs no job of several nodes on it", err=True)
    return ",".join(word for word in _words(capacity) if word != "spot")


def _region(name: str) -> str:
    from trainwright.catalog.regions import region

    return region(name).name
