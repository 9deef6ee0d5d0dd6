"""`trainwright predict`: how fast a job will be and what it will cost, before anyone pays for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trainwright.cli.quantity import positive, quantity
from trainwright.errors import UserError

if TYPE_CHECKING:
    from trainwright.predict.constants import Constants
    from trainwright.predict.prediction import Prediction
    from trainwright.predict.request import PredictRequest


@click.command()
@click.argument("words", nargs=-1, metavar="[SPEC [JOB]]")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change one value of the spec.")
@click.option("--model", help="Model, such as llama3-70b, or the path of a config.json or of a shape.")
@click.option("--instance", help="EC2 instance type, such as p5.48xlarge.")
@click.option("--nodes", type=click.IntRange(min=1), default=1, show_default=True)
@click.option(
    "--parallel",
    default="",
    help="Plan, such as shard=16,tp=8 (and zero=1); open data axes are filled in.",
)
@click.option("--sequence", type=click.IntRange(min=1), help="Tokens per sequence (default: the model's context).")
@click.option("--seq", type=click.IntRange(min=1), hidden=True)  # the name in earlier versions
@click.option("--batch", help="Tokens per step, such as 4M (default: one sequence per data rank).")
@click.option("--objective", default="", help="Such as mlm or dino (default: the usual one of that kind of model).")
@click.option("--micro-batch", type=click.IntRange(min=1), help="Sequences (default: the fastest size that fits).")
@click.option("--precision", type=click.Choice(["bf16", "fp8", "fp4", "fp32"]), default="bf16", show_default=True)
@click.option("--trainer", default="trainwright", show_default=True, help="Profile, such as torchtitan or megatron.")
@click.option("--lora-rank", type=click.IntRange(min=1), help="Train LoRA adapters of this rank only.")
@click.option(
    "--base-bits",
    type=click.Choice(["16", "8", "4"]),
    default="16",
    help="Frozen weights; 4: QLoRA, of a --trainer that has it, such as torch (ours does not).",
)
@click.option("--optimizer", type=click.Choice(["adamw", "adamw8bit", "muon"]), default="adamw", show_default=True)
@click.option(
    "--context",
    type=click.Choice(["gather", "all-to-all", "ring"]),
    help="How context-parallel ranks of our trainer meet each other's keys (default: gather).",
)
@click.option("--recompute", type=click.Choice(["none", "selective", "full"]), help="Default: the least that fits.")
@click.option(
    "--offload-activations",
    type=click.FloatRange(0, 1),
    default=0.0,
    help="Share of the layers whose activations wait in host memory.",
)
@click.option(
    "--pipeline-schedule", type=click.Choice(["1f1b", "zero-bubble"]), default="1f1b", help="Of our trainer, under pp."
)
@click.option("--tokens", help="Tokens of the whole training, such as 15T: adds days and dollars.")
@click.option("--region", default="us-east-1", show_default=True)
@click.option(
    "--capacity", type=click.Choice(["on-demand", "spot", "capacity-block"]), default="on-demand", show_default=True
)
@click.option("--compare", multiple=True, metavar="PLAN", help="Compare with another plan; may be repeated.")
@click.option("--explain", is_flag=True, help="Print each term with its formula and numbers.")
@click.option("--svg", type=click.Path(path_type=Path), help="Write a picture of the timeline of a step.")
@click.option(
    "--rows", type=click.Path(path_type=Path), help="Predict each row of a CSV of published runs or collectives."
)
@click.option(
    "--calibrate",
    "calibrating",
    is_flag=True,
    help="Fit to finished runs (their folders) and `bench device` results (their files).",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def command(
    ctx: click.Context, /, words: tuple[str, ...], calibrating: bool, rows: Path | None, as_json: bool, **flags: Any
) -> None:
    """Predict step time, memory, cost, time to train and goodput of a job, from a spec or from flags."""
    if rows is not None:
        from trainwright.predict.published.tables import answers

        click.echo(json.dumps(answers(rows), indent=1))
        return
    if calibrating:
        _calibrate([Path(word) for word in words], as_json)
        return
    from trainwright.predict.calibrate import calibrated

    constants = calibrated()
    _refuse_flags_beside_a_spec(ctx, words, flags["overrides"])
    predictions = _predictions(words, flags, constants)
    if predictions[0].cluster:
        constants = calibrated(predictions[0].cluster)
    if as_json:
        records = [p.to_dict() for p in predictions]
        click.echo(json.dumps(records if flags["compare"] else records[0], indent=2))
    else:
        _print(predictions, flags["explain"], constants)
    if flags["svg"]:
        _draw(predictions[0], flags["svg"])
    if predictions[0].fits == "no":
        _suggest(predictions[0], constants, of_spec=bool(words))
        ctx.exit(1)


def _predictions(words: tuple[str, ...], flags: dict[str, Any], constants: Constants) -> list[Prediction]:
    if words:
        from trainwright.check.gate import require_clean
        from trainwright.cli.findings import show_findings
        from trainwright.jobs.resolve import resolve_job
        from trainwright.jobs.select import job_index
        from trainwright.predict.calibrate import calibrated
        from trainwright.predict.job import predict_job
        from trainwright.spec.load import load

        if len(words) > 2:
            raise click.UsageError(f"at most a spec and a job are expected, not {words[2]!r}")
        loaded = load(words[0], flags["overrides"])
        node = loaded.node.get("jobs", job_index(loaded, words[1] if len(words) > 1 else None))
        assert node is not None
        loaded = loaded.with_jobs(node)
        show_findings(require_clean(loaded).findings)
        return [predict_job(resolve_job(loaded).require(), calibrated(loaded.spec.name))]
    if not flags["model"] or not flags["instance"]:
        raise UserError(
            "nothing to predict",
            fix="name a spec, or give --model and --instance, such as --model llama3-8b --instance p5.48xlarge",
        )
    from dataclasses import replace

    from trainwright.predict import predict

    request = _request(flags)
    return [predict(replace(request, plan=plan), constants) for plan in (flags["parallel"], *flags["compare"])]


def _request(flags: dict[str, Any]) -> PredictRequest:
    from trainwright.catalog.regions import region
    from trainwright.predict.request import PredictRequest

    same = ("model", "instance", "nodes", "micro_batch", "objective", "precision", "trainer", "recompute", "optimizer",
            "offload_activations", "pipeline_schedule")  # fmt: skip
    return PredictRequest(
        **{name: flags[name] for name in same}, sequence=flags["sequence"] or flags["seq"],
        batch_tokens=_count("--batch", flags["batch"]), tokens=_count("--tokens", flags["tokens"]),
        context=flags["context"] or "", adapter_rank=flags["lora_rank"] or 0, base_bits=int(flags["base_bits"]),
        price_kind=flags["capacity"], region=region(flags["region"]).name,
    )  # fmt: skip


def _refuse_flags_beside_a_spec(ctx: click.Context, words: tuple[str, ...], overrides: tuple[str, ...]) -> None:
    """A spec describes its job completely: a flag beside it would be ignored."""
    from click.core import ParameterSource

    allowed = {"words", "overrides", "explain", "svg", "as_json", "calibrating", "rows"}
    given = [
        option for option in ctx.command.params
        if option.name not in allowed and ctx.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
    ]  # fmt: skip
    if words and given:
        raise UserError(
            f"{given[0].opts[0]} cannot be combined with a spec, which already describes the job",
            fix="change the spec's value: --set jobs.NAME.nodes=8, --set queues.NAME.instance=p5.48xlarge",
        )
    if overrides and not words:
        raise UserError("--set changes a value of a spec, but no spec is named", fix="trainwright predict SPEC --set …")


def _count(option: str, text: str | None) -> int | None:
    from trainwright.spec.units import parse_count

    return None if text is None else positive(option, quantity(option, text, parse_count))


def _print(predictions: list[Prediction], explained: bool, constants: Constants) -> None:
    from trainwright.predict.render import comparison, text

    click.echo(comparison(predictions) if len(predictions) > 1 else text(predictions[0]))
    if explained:
        from trainwright.predict.explain import explain

        for term, formula in explain(predictions[0], constants):
            click.echo(f"  {term}: {formula}")


def _draw(prediction: Prediction, path: Path) -> None:
    from trainwright.files import write_text
    from trainwright.predict.timeline import svg

    write_text(path, svg(prediction))
    click.echo(f"wrote {path}", err=True)


def _suggest(prediction: Prediction, constants: Constants, of_spec: bool) -> None:
    from trainwright.predict.suggest import nearest_that_fits

    used, limit, kind = prediction.memory_gib, prediction.memory_limit_gib, ""
    if prediction.fits_gpu != "no":
        used, limit, kind = prediction.host_gib, prediction.host_limit_gib, " of host memory"
    click.echo(f"error: it needs {used:.1f} GiB{kind} per GPU, there are {limit:.1f}", err=True)
    nearest = nearest_that_fits(prediction.setup, constants) if prediction.setup else None
    if nearest:
        click.echo(f"  fix: the nearest that fits: {nearest.keys if of_spec else nearest.flags}", err=True)


def _calibrate(folders: list[Path], as_json: bool) -> None:
    from dataclasses import asdict

    from trainwright.predict.calibrate import FAR, calibrate, settings_file

    if not folders:
        raise UserError("no run to calibrate with", fix="trainwright predict --calibrate RUN|DEVICE.json ...")
    changes = calibrate(folders)
    if as_json:
        click.echo(json.dumps([asdict(change) for change in changes], indent=2))
        return
    for change in changes:
        where = f"cluster {change.cluster}: " if change.cluster else ""
        click.echo(
            f"{where}{change.name}: {change.before:.4g} -> {change.after:.4g}; mean error on "
            f"{change.measurements} measured {change.error_before:.1%} -> {change.error_after:.1%}"
        )
        if change.sigmas > FAR:
            click.echo(
                f"  {change.name} is {change.sigmas:.1f} sigmas from what published runs give: check the run",
                err=True,
            )
    if not changes:
        click.echo("nothing changed: the runs agree with the predictions")
    click.echo(f"kept in {settings_file()}", err=True)
