"""`trainwright up`: make the cluster a spec describes."""

from __future__ import annotations

import dataclasses
import json
import time
from functools import partial
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from trainwright.platforms.apply.base import AwsPlatform
    from trainwright.spec.load import LoadedSpec


@click.command()
@click.argument("spec", type=click.Path(exists=True, dir_okay=False))
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change one value of the spec.")
@click.option("--force", is_flag=True, help="Apply a change even where it ends running jobs.")
@click.option("--yes", is_flag=True, help="Do not ask before money is spent (AWS).")
@click.option("--dry-run", is_flag=True, help="Show what would be made and its price; make nothing (AWS).")
@click.option("--json", "as_json", is_flag=True, help="Print the cluster as JSON.")
def command(spec: str, overrides: tuple[str, ...], force: bool, yes: bool, dry_run: bool, as_json: bool) -> None:
    """Make the cluster SPEC describes: on platform local a real Slurm in seconds; on parallelcluster, hyperpod,
    hyperpod-eks, batch and eks everything from the network to the nodes in an AWS account.

    Run it again at any time: it goes on from what is there, and changes what the spec changed."""
    from trainwright.platforms.apply.base import aws_platform
    from trainwright.spec.load import load

    checked = load(spec, overrides)
    platform = aws_platform(checked.spec.platform)
    if platform is not None:
        _on_aws(platform, checked, force, yes, dry_run, as_json)
    elif dry_run:
        raise click.UsageError(f"--dry-run is for clusters on AWS, and this is platform {checked.spec.platform}")
    else:
        _on_this_machine(checked, force, as_json)


def _on_this_machine(checked: LoadedSpec, force: bool, as_json: bool) -> None:
    from trainwright.check.gate import require_clean
    from trainwright.cli.findings import show_findings
    from trainwright.cli.status import show
    from trainwright.platforms.base import platform_named
    from trainwright.runs.reach import remember_runs

    began = time.monotonic()
    show_findings(require_clean(checked).findings)
    loaded = checked.spec
    remember_runs(loaded.name)
    status = platform_named(loaded.platform).up(loaded, lambda words: click.echo(words, err=True), force)
    click.echo(f"cluster {loaded.name} is up after {time.monotonic() - began:.1f} s", err=True)
    click.echo(json.dumps(dataclasses.asdict(status), indent=1) if as_json else show(status))


def _on_aws(platform: AwsPlatform, checked: LoadedSpec, force: bool, yes: bool, dry_run: bool, as_json: bool) -> None:
    from trainwright.cli.findings import show_findings
    from trainwright.cli.status import print_cluster
    from trainwright.platforms.apply.prepare import prepare
    from trainwright.platforms.apply.steps import run
    from trainwright.report.build_view import BuildView
    from trainwright.report.prepared import show_prepared

    began = time.monotonic()
    say = partial(click.echo, err=True)
    prepared = prepare(checked, lambda plan, account: platform.build(plan, account, force, say), force)
    show_findings(prepared.plan.findings)
    click.echo(show_prepared(prepared), err=not dry_run)
    if dry_run:
        return
    if not (yes or prepared.unchanged) and not click.confirm("make this, and pay for it?", err=True):
        raise SystemExit(1)
    prepared.build.require()
    with BuildView(prepared.build.name, "up") as view:
        click.echo(f"log: {view.path}", err=True)
        run(prepared.steps, view)
    click.echo(f"cluster {prepared.build.name} is up after {time.monotonic() - began:.1f} s", err=True)
    for words in prepared.build.left_to_do:
        click.echo(words, err=True)
    print_cluster(platform, prepared.build.account, prepared.build.name, as_json)
