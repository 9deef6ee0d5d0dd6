"""`trainwright predict`: what a job will do and cost, before anyone pays for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trainwright.cli.quantity import quantity
from trainwright.errors import UserError

if TYPE_CHECKING:
    from trainwright.predict.constants import Constants
    from trainwright.predict.prediction import Prediction


@click.command()
@click.argument("words", nargs=-1, metavar="[SPEC [JOB]]")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change one value of the spec.")
@click.option("--model", help="Model shape, such as llama3-70b, or the config.json of your own.")
@click.option("--instance", help="EC2 instance type, such as p5.48xlarge.")
@click.option("--nodes", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--parallel", default="", help="Plan, such as shard=16,tp=8; what is left fills the data ranks.")
@click.option("--seq", type=click.IntRange(min=1), help="Tokens of a sequence (default: the model's context).")
@click.option("--batch", help="Tokens of a step, such as 4M (default: one sequence a data rank).")
@click.option("--micro-batch", type=click.IntRange(min=1), help="Sequences at a time (default: the fastest that fits).")
@click.option("--precision", type=click.Choice(["bf16", "fp8", "fp4", "fp32"]), default="bf16", show_default=True)
@click.option("--trainer", default="trainwright", show_default=True, help="Trainer profile.")
@click.option("--recompute", type=click.Choice(["none", "selective", "full"]), help="Default: the least that fits.")
@click.option("--tokens", help="Tokens of the whole training, such as 15T: gives days and dollars.")
@click.option("--region", default="us-east-1", show_default=True)
@click.option(
    "--capacity", type=click.Choice(["on-demand", "spot", "capacity-block"]), default="on-demand", show_default=True
)
@click.option("--compare", multiple=True, metavar="PLAN", help="Another plan, side by side. May be repeated.")
@click.option("--explain", is_flag=True, help="Each term with its formula and numbers.")
@click.option("--svg", type=click.Path(path_type=Path), help="Write a picture of the step's timeline.")
@click.option(
    "--rows", type=click.Path(path_type=Path), help="Answer a CSV of published runs or collectives, row by row."
)
@click.option(
    "--calibrate", "calibrating", is_flag=True, help="The words are folders of finished runs: adjust to them."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def command(
    ctx: click.Context, /, words: tuple[str, ...], calibrating: bool, rows: Path | None, as_json: bool, **flags: Any
) -> None:
    """Predict step time, memory, cost, time to train and goodput of a job: of a spec, or described by flags."""
    if rows is not None:
        from trainwright.predict.tables import answers

        click.echo(json.dumps(answers(rows), indent=1))
        return
    if calibrating:
        _calibrate([Path(word) for word in words], as_json)
        return
    from trainwright.predict.calibrate import calibrated

    constants = calibrated()
    _refuse_mixture(ctx, words, flags["overrides"])
    found = _predictions(words, flags, constants)
    if as_json:
        records = [p.to_dict() for p in found]
        click.echo(json.dumps(records if flags["compare"] else records[0], indent=2))
    else:
        _print(found, flags, constants)
    if flags["svg"]:
        _draw(found[0], flags["svg"])
    if found[0].fits == "no":
        _suggest(found[0], constants, of_spec=bool(words))
        ctx.exit(1)


def _predictions(words: tuple[str, ...], flags: dict[str, Any], constants: Constants) -> list[Prediction]:
    if words:
        from trainwright.check.gate import require_clean
        from trainwright.cli.findings import show_findings
        from trainwright.jobs.resolve import resolve_job
        from trainwright.jobs.select import job_index
        from trainwright.predict.job import predict_job
        from trainwright.spec.load import load

        if len(words) > 2:
            raise click.UsageError(f"a spec and a job are enough; {words[2]!r} is too many")
        loaded = load(words[0], flags["overrides"])
        node = loaded.node.get("jobs", job_index(loaded, words[1] if len(words) > 1 else None))
        assert node is not None
        loaded = loaded.with_jobs(node)
        show_findings(require_clean(loaded).findings)
        return [predict_job(resolve_job(loaded).require(), constants)]
    if not flags["model"] or not flags["instance"]:
        raise UserError(
            "nothing to predict",
            fix="name a spec, or give --model and --instance, such as --model llama3-8b --instance p5.48xlarge",
        )
    from trainwright.predict.prediction import predict

    def one(plan: str) -> Prediction:
        return predict(
            flags["model"], flags["instance"], flags["nodes"], plan, seq=flags["seq"],
            batch_tokens=_count("--batch", flags["batch"]), micro_batch=flags["micro_batch"],
            precision=flags["precision"], trainer=flags["trainer"],
            recompute=flags["recompute"], tokens=_count("--tokens", flags["tokens"]), region=flags["region"],
            price_kind=flags["capacity"], c=constants,
        )  # fmt: skip

    return [one(plan) for plan in (flags["parallel"], *flags["compare"])]


def _refuse_mixture(ctx: click.Context, words: tuple[str, ...], overrides: tuple[str, ...]) -> None:
    """A spec says all about its job: a flag beside it would be dropped in silence."""
    from click.core import ParameterSource

    anyway = {"words", "overrides", "explain", "svg", "as_json", "calibrating", "rows"}
    given = [
        option for option in ctx.command.params
        if option.name not in anyway and ctx.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
    ]  # fmt: skip
    if words and given:
        raise UserError(
            f"{given[0].opts[0]} describes a job, and the spec describes one already",
            fix="change the spec's value: --set jobs.NAME.nodes=8, --set queues.NAME.instance=p5.48xlarge",
        )
    if overrides and not words:
        raise UserError("--set changes a value of a spec, and none is named", fix="trainwright predict SPEC --set …")


def _count(option: str, text: str | None) -> int | None:
    from trainwright.spec.units import parse_count

    return None if text is None else quantity(option, text, parse_count)


def _print(found: list[Prediction], flags: dict[str, Any], constants: Constants) -> None:
    from trainwright.predict.render import comparison, text

    click.echo(comparison(found) if len(found) > 1 else text(found[0]))
    if flags["explain"] and found[0].instance:
        from trainwright.predict.explain import explain
        from trainwright.predict.rebuild import rebuild

        click.echo("how it was computed")
        for term, formula in explain(rebuild(found[0]), found[0], constants):
            click.echo(f"  {term}: {formula}")


def _draw(found: Prediction, path: Path) -> None:
    from trainwright.files import write_text
    from trainwright.predict.rebuild import stages
    from trainwright.predict.timeline import svg

    write_text(path, svg(found, stages(found)))
    click.echo(f"wrote {path}", err=True)


def _suggest(found: Prediction, constants: Constants, of_spec: bool) -> None:
    from trainwright.predict.rebuild import rebuild
    from trainwright.predict.suggest import nearest_that_fits

    need = f"it needs {found.memory_gib:.1f} GiB a GPU, there are {found.memory_limit_gib:.1f}"
    near = nearest_that_fits(rebuild(found), found.instance, constants) if found.instance else None
    said = "" if near is None else f"\n  fix: the nearest that fits: {near.keys if of_spec else near.words}"
    click.echo(f"error: {need}{said}", err=True)


def _calibrate(folders: list[Path], as_json: bool) -> None:
    from dataclasses import asdict

    from trainwright.predict.calibrate import calibrate, settings_file

    if not folders:
        raise UserError("no run to calibrate with", fix="trainwright predict --calibrate RUN [RUN ...]")
    changes = calibrate(folders)
    if as_json:
        click.echo(json.dumps([asdict(change) for change in changes], indent=2))
        return
    for change in changes:
        click.echo(
            f"{change.name}: {change.before:.4g} -> {change.after:.4g}; error on {change.runs} runs "
            f"{change.error_before:.1%} -> {change.error_after:.1%}"
        )
    click.echo(f"kept in {settings_file()}", err=True)
