"""`trainwright profile`: where the time of a run's steps goes, measured beside predicted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from trainwright.cli.table import columns


@click.command()
@click.argument("runs", nargs=-1, metavar="RUN|TRACE...")
@click.option("--steps", type=click.IntRange(1, 20), default=3, show_default=True, help="Steps to ask a live run for.")
@click.option("--ranks", default="0", show_default=True, help="Ranks to ask a live run for: 0,8.")
@click.option("--again", is_flag=True, help="Ask for another profile though there is one.")
@click.option("--size", default="2GB", show_default=True, help="Leave larger reports on the cluster.")
@click.option("--trace", "merged", type=click.Path(path_type=Path), help="Write one trace of all ranks for Perfetto.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(
    runs: tuple[str, ...], steps: int, ranks: str, again: bool, size: str, merged: Path | None, as_json: bool
) -> None:
    """Sum up the profile of RUN, or of any trace of torch's profiler: largest kernels, exposed communication, data
    wait, gaps, and the differences to the prediction. A live run of our trainer without a profile is asked for one."""
    from trainwright.runs.profile import summarise

    traces, folder = _traces(runs, steps, ranks, again, size)
    facts = summarise(traces, folder)
    if merged:
        _write_trace(traces, folder, merged)
    if as_json:
        click.echo(json.dumps(facts, indent=1))
        return
    for row in facts["ranks"]:
        _show(row)


def _traces(
    words: tuple[str, ...], steps: int, ranks: str, again: bool, size: str
) -> tuple[tuple[Path, ...], Path | None]:
    from trainwright.cli.quantity import quantity
    from trainwright.errors import UserError
    from trainwright.runs import profile, reach, store
    from trainwright.spec.units import parse_bytes

    if words and all(Path(word).is_file() for word in words):
        return tuple(map(Path, words)), None
    if len(words) > 1:
        raise click.UsageError("name one run, or files of traces")
    if words and (Path(words[0]) / "profile").is_dir():  # the folder of a run that nobody submitted
        folder = Path(words[0])
        return tuple(sorted(folder.glob("profile/rank-*.json.gz"))), folder
    run = store.find(words[0] if words else "last")
    limit = float(quantity("--size", size, parse_bytes))
    collected = profile.collect(run, limit)
    if again or not (collected.traces or collected.left):
        if reach.run_state(run).over:
            raise UserError(
                f"run {run.name} was not profiled",
                fix="`trainwright submit --profile 'steps=10..12 ranks=0'` profiles a new one",
            )
        profile.ask(run, steps, profile.ranks_of(run, ranks), lambda text: click.echo(text, err=True))
        collected = profile.collect(run, limit)
    for left in collected.left:
        click.echo(f"left: {left}", err=True)
    if not collected.traces:
        raise UserError("there is no trace that can be read here", where=run.name, fix="a larger --size, or nsys here")
    return collected.traces, run.folder


def _write_trace(traces: tuple[Path, ...], folder: Path | None, path: Path) -> None:
    from trainwright.predict.trace_merge import write_merged

    source = folder / "prediction.json" if folder else None
    prediction = json.loads(source.read_text()) if source and source.is_file() else None
    write_merged([trace for trace in traces if trace.suffix != ".sqlite"], prediction, path)
    click.echo(f"wrote {path}: open it in Perfetto or chrome://tracing", err=True)


def _show(row: dict[str, Any]) -> None:
    from trainwright.predict.render import seconds

    for line in row["words"]:
        click.echo(line)
    predicted = any(term["predicted_s"] is not None for term in row["terms"])
    table = []
    for term in row["terms"]:
        beside = term["predicted_s"]
        cells = [term["name"], seconds(term["measured_s"]), f"{term['measured_s'] / row['step_s']:.1%}"]
        if predicted:
            cells += [seconds(beside), f"{(term['measured_s'] - beside) * 1e3:+.1f} ms"]
        table.append(cells)
    header = ["TERM", "MEASURED", "SHARE", *(["PREDICTED", "DIFFERENCE"] if predicted else [])]
    click.echo(columns(header, table))
    kernels = [
        [kernel["name"], kernel["kind"], seconds(kernel["seconds"]), str(kernel["calls"])] for kernel in row["kernels"]
    ]
    click.echo(columns(["LARGEST KERNELS", "KIND", "PER STEP", "CALLS"], kernels))
