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
    from trainwright.predict.advice_explain import Alternative
    from trainwright.predict.request import AdviceRequest
    from trainwright.predict.search import Offer
    from trainwright.predict.sweep import Answer
    from trainwright.predict.what_if import WhatIf


@click.command()
@click.option(
    "--model", "models", required=True, multiple=True,
    help="Model, such as llama3-70b, or the path of a config.json; may be repeated.",
)  # fmt: skip
@click.option("--tokens", required=True, help="Tokens to train on, such as 15T, or several: 1T,15T.")
@click.option("--deadline", help="Longest duration, such as 30d, or several: 10d,30d.")
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
@click.option("--explain", is_flag=True, help="Show by which factors each alternative is behind the chosen offer.")
@click.option(
    "--what-if", "sensitivity", is_flag=True, help="Show the chosen offer slower, interrupted, dearer, cheaper."
)
@click.option("--svg", "picture", type=click.Path(path_type=Path), help="Draw the front of cost against time there.")
@click.option("--spec", "spec_file", type=click.Path(path_type=Path), help="Write the chosen offer there, as a spec.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    models: tuple[str, ...],
    tokens: str,
    as_json: bool,
    spec_file: Path | None,
    sensitivity: bool,
    explain: bool,
    picture: Path | None,
    platform: str,
    **flags: Any,
) -> None:
    """Search instance types, node counts, ways to buy and parallel plans; print the front of cost against time."""
    flags["capacity"] = _sold(flags["capacity"], _platform(platform))
    for name in _left_out(flags["instances"]):
        click.echo(f"{name} is left out: our trainer needs GPUs", err=True)
    if len(models) > 1 or "," in tokens or "," in (flags["deadline"] or ""):
        for option, given in (("--spec", spec_file), ("--what-if", sensitivity), ("--explain", explain)):
            if given:
                raise UserError(f"{option} is for one question", where=option, fix="one --model, --tokens, --deadline")
        _sweep(models, tokens, flags, picture, as_json)
    else:
        shown = {"explain": explain, "what_if": sensitivity}
        _one(models[0], tokens, flags, platform, shown, picture, spec_file, as_json)


def _one(
    model: str,
    tokens: str,
    flags: dict[str, Any],
    platform: str,
    shown: dict[str, bool],
    picture: Path | None,
    spec_file: Path | None,
    as_json: bool,
) -> None:
    from trainwright.files import write_text
    from trainwright.predict.advice import advise, block_risk
    from trainwright.predict.advice_explain import alternatives
    from trainwright.predict.advice_spec import no_spec_reason, spec_of, text_of
    from trainwright.predict.calibrate import calibrated
    from trainwright.predict.what_if import what_ifs

    request, constants = _request(model, tokens, flags), calibrated()
    no_spec = no_spec_reason(request.shape)
    if spec_file and no_spec:
        raise UserError(
            f"no spec can be written: {no_spec}",
            where="--spec", fix="leave --spec out, and write the job with a recipe such as mixtral-8x7b",
        )  # fmt: skip
    advice = advise(request, constants)
    differences = what_ifs(advice.chosen, request) if shown["what_if"] else []
    others = alternatives(advice, request, constants) if shown["explain"] else []
    if picture:
        from trainwright.report.front import front_picture

        write_text(picture, front_picture(model, advice))
    if as_json:
        record = {
            "candidates": advice.candidates, "fitting": advice.fitting, "why": advice.why,
            "chosen": _record(advice.chosen), "zones": _zones(advice.chosen, request),
            "block_risk": block_risk(advice.chosen),
            "front": [_record(o) for o in advice.front],
            "runners_up": [{**_record(o), "why_not": why} for o, why in advice.runners_up],
            **({"what_if": [asdict(row) for row in differences]} if shown["what_if"] else {}),
            **({"alternatives": [_alternative(other) for other in others]} if shown["explain"] else {}),
            "spec": None if no_spec else spec_of(advice.chosen, request.tokens, request.region, platform),
        }  # fmt: skip
        click.echo(json.dumps(record, indent=2))
    else:
        _print(advice, request, differences, others, platform)
    if spec_file:
        write_text(spec_file, text_of(advice.chosen, request.tokens, request.region, platform))
        click.echo(f"wrote {spec_file}", err=True)


def _sweep(models: tuple[str, ...], tokens: str, flags: dict[str, Any], picture: Path | None, as_json: bool) -> None:
    from trainwright.catalog.models import model as model_shape
    from trainwright.predict.calibrate import calibrated
    from trainwright.predict.sweep import sweep

    counts, deadlines = _words(tokens), _words(flags["deadline"] or "")
    if not counts:
        raise UserError("--tokens names no number", where="--tokens", fix="such as --tokens 1T,15T")
    rest = _request(models[0], counts[0], {**flags, "deadline": None})
    answers = sweep(
        [model_shape(name) for name in models], [float(_count("--tokens", word)) for word in counts],
        [_days(word) for word in deadlines] or [None], rest, calibrated(),
    )  # fmt: skip
    if picture:
        from trainwright.files import write_text
        from trainwright.report.front import sweep_picture

        write_text(picture, sweep_picture(answers))
    if as_json:
        click.echo(json.dumps({"answers": [_answer(one) for one in answers]}, indent=2))
    else:
        _print_answers(answers)
    if not any(one.advice for one in answers):
        raise click.exceptions.Exit(1)


def _answer(one: Answer) -> dict[str, object]:
    request, advice = one.request, one.advice
    question = {
        "model": request.shape.name,
        "tokens": request.tokens,
        "deadline_days": request.deadline_days,
        "budget": request.budget,
    }
    if advice is None:
        return {**question, "chosen": None, "reason": one.reason}
    front = [_record(offer) for offer in advice.front]
    return {**question, "chosen": _record(advice.chosen), "why": advice.why, "front": front}


def _print_answers(answers: list[Answer]) -> None:
    from trainwright.cli.table import columns

    header = ("question", "time", "at most", "dollars", "instance", "nodes", "bought", "plan")
    rows = []
    for one in answers:
        if one.advice is None:
            rows.append((one.label, "no offer", *[""] * 6))
            click.echo(f"{one.label}: {one.reason}", err=True)
            continue
        o = one.advice.chosen
        cells = (_duration(o.days), _duration(o.latest_days), f"{o.usd:,.0f}", o.instance, str(o.nodes), o.kind)
        rows.append((one.label, *cells, str(o.setup.plan)))
    click.echo(columns(header, rows))


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


def _print(
    advice: Advice, request: AdviceRequest, differences: list[WhatIf], others: list[Alternative], platform: str
) -> None:
    from trainwright.cli.table import columns
    from trainwright.predict.advice import block_risk
    from trainwright.predict.advice_explain import lines
    from trainwright.predict.advice_spec import no_spec_reason, text_of

    header = ("time", "dollars", "instance", "nodes", "bought", "plan", "micro x count", "recompute", "tokens/s")
    rows = [(*_cells(o), "<- chosen" if o is advice.chosen else "") for o in advice.front]
    click.echo(columns((*header, "goodput", ""), rows))
    chosen = advice.chosen
    click.echo(f"\nchosen: {advice.why}")
    click.echo(
        f"it takes at most {_duration(chosen.latest_days)} with a probability of 90 %, 0.25 h of start-up included"
        + _in_time(chosen, request)
    )
    if risk := block_risk(chosen):
        click.echo(risk)
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
        rows = [(row.name, _duration(row.days), f"{row.usd:,.0f}", _chance(row)) for row in differences]
        click.echo(columns(("", "time", "dollars", ""), rows))
    click.echo("\nwhy not the others")
    explained = [line for other in others for line in lines(other, chosen)]
    plain = (f"{o.nodes} x {o.instance} ({o.kind}) {o.setup.plan}: {why}" for o, why in advice.runners_up)
    for line in explained or plain:
        click.echo(f"  {line}")
    no_spec = no_spec_reason(request.shape)
    spec = f"no spec: {no_spec}" if no_spec else f"spec\n{text_of(chosen, request.tokens, request.region, platform)}"
    click.echo(f"\n{spec}")
    click.echo(f"{advice.candidates:,} candidates, {advice.fitting:,} of them fit and have a price", err=True)


def _in_time(offer: Offer, request: AdviceRequest) -> str:
    if request.deadline_days is None:
        return ""
    return f"; it ends in time with a probability {_percent(offer.probability_within(request.deadline_days))}"


def _chance(row: WhatIf) -> str:
    return "" if row.in_time is None else f"in time with a probability {_percent(row.in_time)}"


def _percent(chance: float) -> str:
    return "over 99 %" if chance > 0.99 else "under 1 %" if chance < 0.01 else f"of {chance:.0%}"


def _alternative(other: Alternative) -> dict[str, object]:
    return {
        **_record(other.offer), "why_not": other.ruled_out or other.drawback, "time_factors": other.time,
        "cost_factors": other.cost, "terms_s_per_million_tokens": other.terms,
    }  # fmt: skip


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


def _left_out(instances: str) -> list[str]:
    from trainwright.predict.search import left_out

    return left_out(_words(instances))


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
