"""`trainwright versions`: what is installed on the host and in a container, side by side, and whether it fits."""

from __future__ import annotations

import json

import click

from trainwright.cli.host import head_node
from trainwright.cli.table import columns


@click.command()
@click.argument("target", metavar="[SPEC|NAME]", required=False)
@click.option("--container", metavar="IMAGE", help="An image, or a .sqsh file, to compare with the host.")
@click.option("--cluster", "everywhere", is_flag=True, help="Compare every node of a cluster and name the odd one.")
@click.option(
    "--host", type=head_node, default="", metavar="USER@HEAD", help="With --cluster: the head node, over ssh."
)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(target: str | None, container: str | None, everywhere: bool, host: str, as_json: bool) -> None:
    """Versions of the driver, CUDA, NCCL, libfabric, the plugin, EFA and PyTorch.

    Exits 1 where versions do not fit together, or nodes differ."""
    if everywhere:
        _compare_nodes(target, host, as_json)
        return
    if target or host:
        raise click.UsageError("a cluster's name and --host go with --cluster")
    from trainwright.health.containers import versions_in
    from trainwright.health.node import Node
    from trainwright.health.profile import profile_of
    from trainwright.health.versions import TITLES, conflicts, in_use, versions_of

    node = Node()
    installed = versions_of(node)
    inside = versions_in(container, node) if container else {}
    broken = conflicts(in_use(installed, inside), profile_of(node).accelerator)
    if as_json:
        facts = {"host": installed, "container": inside, "conflicts": [words for _, words in broken]}
        click.echo(json.dumps(facts, indent=1))
    else:
        shown = [name for name in TITLES if name in installed or name in inside]
        header = ("SOFTWARE", "HOST", *(("CONTAINER",) if container else ()))
        rows = [(TITLES[n], installed.get(n, "-"), *((inside.get(n, "-"),) if container else ())) for n in shown]
        click.echo(columns(header, rows))
        for level, words in broken:
            click.echo(f"{level}: {words}")
    if any(level == "fail" for level, _ in broken):
        raise SystemExit(1)


def _compare_nodes(target: str | None, host: str, as_json: bool) -> None:
    from trainwright.health.cluster import differences, reports_of, survey
    from trainwright.runs import reach

    scheduler = reach.slurm_named(target, host)
    reports = reports_of(survey(scheduler.shell.run, scheduler.python, ["--suite", "quick"]))
    odd = differences(reports)
    if as_json:
        click.echo(json.dumps({"nodes": reports, "differences": odd}, indent=1))
    else:
        click.echo("\n".join(odd) if odd else f"the same on all {len(reports)} nodes")
    if odd:
        raise SystemExit(1)
