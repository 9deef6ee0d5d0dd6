"""`trainwright status`: a cluster's nodes and queues, as its scheduler sees them."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import click

from trainwright.cli.table import columns

if TYPE_CHECKING:
    from trainwright.platforms.base import ClusterStatus


@click.command()
@click.argument("target", metavar="[SPEC|NAME]", required=False)
@click.option("--nodes", "with_nodes", is_flag=True, help="A line for each node too.")
@click.option("--json", "as_json", is_flag=True, help="Everything, as JSON.")
def command(target: str | None, with_nodes: bool, as_json: bool) -> None:
    """Show a cluster's queues (and nodes). Without a name: every local cluster of this machine, and what was left
    running by an earlier demo or test.

    Exits 1 where one is broken."""
    from trainwright.platforms.base import find
    from trainwright.platforms.local import state
    from trainwright.platforms.local.leftovers import leftovers

    clusters = [find(name) for name in ([target] if target else state.names())]
    statuses = [platform.status(name, spec) for platform, name, spec in clusters]
    if as_json:
        plain = [dataclasses.asdict(status) for status in statuses]
        click.echo(json.dumps(plain[0] if target else plain, indent=1))
    else:
        if not statuses:
            click.echo("no local cluster on this machine; `trainwright up SPEC` starts one", err=True)
        for status in statuses:
            click.echo(show(status, with_nodes))
    if not target:
        for left in leftovers():
            what = f"cluster {left.name} of {left.home} still runs ({len(left.pids)} processes)"
            click.echo(f"{what}; to end it: {left.fix}", err=True)
    if any(status.state == "broken" for status in statuses):
        raise SystemExit(1)


def show(status: ClusterStatus, with_nodes: bool = False) -> str:
    """The cluster in a few lines."""
    head = f"{status.name}: {status.state}, platform {status.platform}, scheduler {status.scheduler}"
    rows = [
        (q.name, f"{q.least}-{q.most}" if q.least != q.most else q.most, q.cpus, q.gpus, _counts(q.states))
        for q in status.queues
    ]
    parts = [head, *(f"  {problem}" for problem in status.problems)]
    parts.append(columns(("QUEUE", "NODES", "CPUS", "GPUS", "STATE"), rows))
    if with_nodes:
        nodes = [(node.name, node.queue, node.state, node.address, node.reason) for node in status.nodes]
        parts.append(columns(("NODE", "QUEUE", "STATE", "ADDRESS", "REASON"), nodes))
    return "\n".join(parts)


def _counts(states: object) -> str:
    assert isinstance(states, dict)
    return ", ".join(f"{count} {state}" for state, count in states.items())
