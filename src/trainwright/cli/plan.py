"""`trainwright plan`: every file that would be deployed, with the price and what would change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from trainwright.spec.model import Spec


@click.command()
@click.argument("spec", metavar="SPEC")
@click.option("-o", "--out", "folder", metavar="FOLDER", help="Where to write the plan. Default: NAME.plan.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a value of the spec.")
@click.option(
    "--explain", is_flag=True, help="Show every default that was filled in, and each value of the jobs with its origin."
)
@click.option("--diff", "lines", is_flag=True, help="Show the changed lines too, where a plan was there before.")
@click.option("--svg", metavar="FILE", help="Write the picture of the cluster here as well.")
@click.option(
    "--aws", "ask_aws", is_flag=True, help="Ask AWS which zones offer the instance types (needs credentials)."
)
@click.option("--json", "as_json", is_flag=True, help="Print the plan's facts and each job's values as JSON.")
def command(
    spec: str,
    folder: str | None,
    overrides: tuple[str, ...],
    explain: bool,
    lines: bool,
    svg: str | None,
    ask_aws: bool,
    as_json: bool,
) -> None:
    """Write every file that would be deployed, with the price.

    Nothing is created; no AWS account is needed without --aws. Where FOLDER holds an earlier plan, what would change
    is shown: on the running cluster, after running jobs, with the fleet stopped, or only by making the cluster anew.
    """
    from trainwright.cli.findings import show_findings
    from trainwright.files import write_text
    from trainwright.jobs.explain import explain_job, record
    from trainwright.platforms.plan.difference import difference
    from trainwright.platforms.plan.tree import earlier_files, make_plan, write
    from trainwright.report.picture import picture
    from trainwright.report.plan_summary import console, print_defaults, print_difference, print_summary
    from trainwright.spec.load import load

    loaded = load(spec, overrides)
    plan = make_plan(loaded, _offers(loaded.spec) if ask_aws else None)
    show_findings(plan.findings)
    for note in plan.notes:
        click.echo(f"note: {note}", err=True)
    target = Path(folder or f"{plan.spec.name}.plan")
    drawn = {"picture.svg": picture(plan)}
    earlier = earlier_files(target)
    changed = difference(earlier, {**plan.files, **drawn}) if earlier is not None else None
    facts = write(plan, target, drawn, earlier)
    if svg is not None:
        write_text(Path(svg), drawn["picture.svg"])
    if as_json:
        facts |= {"jobs": [record(job) for job in plan.jobs]}
        click.echo(json.dumps(facts | ({"changes": changed.records()} if changed is not None else {}), indent=2))
        return
    out = console()
    print_summary(out, plan, str(target), {**plan.files, **drawn})
    if explain:
        print_defaults(out, plan.defaults)
        for job in plan.jobs:
            click.echo(f"\n{explain_job(job)}")
    if changed is not None:
        print_difference(out, changed, lines)


def _offers(spec: Spec) -> dict[str, tuple[str, ...]]:
    from trainwright.aws.offerings import offered_zones
    from trainwright.spec.defaults import resolve

    resolved, _ = resolve(spec)
    return offered_zones(resolved.region or "", [queue.instance for queue in resolved.queues if queue.instance])
