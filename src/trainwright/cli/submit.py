"""`trainwright submit`: hand a job to the cluster's scheduler."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trainwright.cli.host import head_node

if TYPE_CHECKING:
    from trainwright.runs.store import Run
    from trainwright.runs.submission import Order, Planned


class WithArguments(click.Command):
    """What stands after `--` is the trainer's or the script's, also where no SPEC comes before it. The words after
    `--profile` may stand without quotes: `--profile steps=10..12 ranks=0,8`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        left = super().parse_args(ctx, _profile_words_joined(args[:at]))
        ctx.params["args"] = (*ctx.params["args"], *args[at + 1 :])
        return left


def _profile_words_joined(args: list[str]) -> list[str]:
    if "--profile" not in args:
        return args
    at = args.index("--profile") + 1
    end = at
    while end < len(args) and re.match(r"(steps|ranks|nodes|tool|delay|duration|size)=", args[end]):
        end += 1
    return [*args[:at], " ".join(args[at:end]), *args[end:]] if end > at else args


@click.command(cls=WithArguments)
@click.argument("spec", required=False, type=click.Path(exists=True, dir_okay=False))
@click.argument("job", required=False)
@click.argument("args", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGUMENTS...]")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change one value of the spec.")
@click.option("--script", metavar="FILE", help="Run this script instead of a job of the spec.")
@click.option("--module", metavar="NAME", help="Run this module instead: `python -m NAME`.")
@click.option("--command", "is_command", is_flag=True, help="Run the words after `--` as they are, on every rank.")
@click.option(
    "--launcher",
    type=click.Choice(["torchrun", "srun", "plain"]),
    help="How --script, --module or --command starts: torchrun (default), one Slurm task per rank, or once per node.",
)
@click.option("--recipe", metavar="NAME", help="Run this recipe (`trainwright recipes list`, or a file of yours).")
@click.option("--nodes", type=click.IntRange(1), help="Nodes for --script or --recipe.")
@click.option("--processes", type=click.IntRange(1), help="Processes per node for --script or --recipe.")
@click.option("--queue", metavar="NAME", help="Queue for --script or --recipe.")
@click.option("--container", metavar="IMAGE", help="Image for --script or --recipe.")
@click.option("--scheduler", type=click.Choice(["process"]), help="Run here, as plain processes.")
@click.option("--host", type=head_node, metavar="USER@HEAD", help="Reach the Slurm head node over ssh.")
@click.option("--remote-folder", default="", metavar="FOLDER", help="Where run folders go on that side.")
@click.option("--venv", default="", metavar="FOLDER", help="Virtual environment on the nodes.")
@click.option(
    "--profile",
    metavar="WORDS",
    help="Profile some steps of some ranks: steps=10..12 ranks=0,8; other commands than Python's by Nsight Systems: "
    "ranks=0 nodes=1 delay=60s duration=10s.",
)
@click.option("--dry-run", is_flag=True, help="Print the script and do nothing.")
@click.option(
    "--explain",
    "explain_it",
    is_flag=True,
    help="Print each value of the job and its environment with origin and reason; do nothing.",
)
@click.option("--follow", "follow_it", is_flag=True, help="Watch it until it ends; leaving does not stop it.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the run as JSON; with --dry-run or --explain: values, script, findings and prediction.",
)
def command(
    spec: str | None,
    job: str | None,
    args: tuple[str, ...],
    overrides: tuple[str, ...],
    script: str | None,
    module: str | None,
    is_command: bool,
    launcher: str | None,
    recipe: str | None,
    nodes: int | None,
    processes: int | None,
    queue: str | None,
    container: str | None,
    scheduler: str | None,
    host: str | None,
    remote_folder: str,
    venv: str,
    profile: str | None,
    dry_run: bool,
    explain_it: bool,
    follow_it: bool,
    as_json: bool,
) -> None:
    """Submit a JOB of SPEC, a recipe, or any script:
    `trainwright submit SPEC --script train.py --nodes 4 -- --lr 1e-4`."""
    from trainwright.cli.findings import show_findings
    from trainwright.cli.logs import watch
    from trainwright.jobs.explain import explain_job
    from trainwright.jobs.inputs import inputs_of
    from trainwright.runs import submission
    from trainwright.runs.request import SubmitRequest, order_for

    request = SubmitRequest(
        spec, job, overrides, script, recipe, args, nodes, processes, queue, container, scheduler or "", host or "",
        remote_folder, venv, dry_run or explain_it, module, is_command, launcher,
    )  # fmt: skip
    order = order_for(request)
    if profile is not None:
        from trainwright.schedulers.profiling import parse_profile

        order = dataclasses.replace(order, profile=parse_profile(profile))
    show_findings(order.findings)
    planned = submission.plan(order)
    prediction = submission.predicted(order)
    for line in (expectation(prediction), str(inputs_of(order.job))):
        if line:
            click.echo(line, err=True)
    if as_json and (dry_run or explain_it):
        click.echo(json.dumps(preview(order, planned, prediction), indent=1))
        return
    if explain_it:
        click.echo(f"{explain_job(order.job)}\n\nenvironment\n{submission.environment_text(planned.launch)}")
        return
    if dry_run:
        click.echo(planned.script.text.rstrip())
        for path, text in planned.launch.files:
            click.echo(f"\n{path}:\n{text.rstrip()}", err=True)
        return
    run = submission.submit(order, planned)
    _show_run(run, planned, as_json)
    if follow_it:
        watch(run, rank=0)


def _show_run(run: Run, planned: Planned, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({**dataclasses.asdict(run), "folder": str(run.folder)}, indent=1))
        return
    click.echo(f"submitted {run.name} as job {run.job_id}; {describe(planned)}", err=True)
    click.echo(run.name)


def preview(order: Order, planned: Planned, prediction: dict[str, Any] | None) -> dict[str, Any]:
    """What `--dry-run --json` and `--explain --json` print."""
    from trainwright.jobs.explain import record
    from trainwright.jobs.inputs import inputs_of

    return {
        "resolved": record(order.job),
        "inputs": dataclasses.asdict(inputs_of(order.job)),
        "script": planned.script.text,
        "files": dict(planned.launch.files),
        "findings": [finding.row() for finding in order.findings],
        "prediction": prediction,
    }


def expectation(facts: dict[str, Any] | None) -> str:
    """One line of what is predicted, before the job takes its nodes."""
    if facts is None:
        return ""
    if "unavailable" in facts:
        return f"not predicted: {facts['unavailable']}"
    each = "GPU" if facts["instance"] else "process"
    memory = f"{facts['memory_gib']:.1f} of {facts['memory_limit_gib']:.0f} GiB per {each}"
    if facts["fits"] == "no":
        return f"predicted: it runs out of memory ({memory}); `trainwright predict` names the nearest plan that fits"
    memory += ", which is tight" if facts["fits"] == "tight" else ""
    money = f", ${facts['cost']['usd_hour']:,.2f} per hour" if facts["cost"] else ""
    return f"predicted: {facts['tokens_per_s']:,.0f} tokens/s, {memory}{money}"


def describe(planned: Planned) -> str:
    run = planned.run
    nodes, ranks = "node" if run.nodes == 1 else "nodes", "rank" if run.ranks == 1 else "ranks"
    return f"{run.nodes} {nodes}, {run.ranks} {ranks}; folder {Path(run.where)}"
