"""`trainwright status`: a cluster's nodes and queues, as its scheduler sees them."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import click

from trainwright.cli.table import columns

if TYPE_CHECKING:
    from trainwright.aws.session import Account
    from trainwright.platforms.apply.base import AwsPlatform
    from trainwright.platforms.apply.status import AwsCluster
    from trainwright.platforms.base import ClusterStatus

WATCH_SECONDS = 10.0
PATIENCE = 10.0  # seconds for the scheduler of a cluster on AWS, where the user asked for its nodes or watches


@click.command()
@click.argument("target", metavar="[SPEC|NAME]", required=False)
@click.option("--nodes", "with_nodes", is_flag=True, help="A line for each node too.")
@click.option("--json", "as_json", is_flag=True, help="Everything, as JSON.")
@click.option("--region", metavar="REGION", help="A cluster on AWS, by its name in this region.")
@click.option("--all", "everything", is_flag=True, help="Every cluster of ours in --region of AWS.")
@click.option("--watch", is_flag=True, help="Show it again every ten seconds, until Ctrl-C (AWS).")
def command(
    target: str | None, with_nodes: bool, as_json: bool, region: str | None, everything: bool, watch: bool
) -> None:
    """Show a cluster's queues (and nodes). Without a name: every local cluster of this machine, and what was left
    running by an earlier demo or test.

    On AWS also stacks, head node, file systems and their links, reservations, and the cost so far. Exits 1 where one is
    broken."""
    if everything and not region:
        raise click.UsageError("--all needs --region")
    if everything or (target and _on_aws(target, region, with_nodes, as_json, watch)):
        if everything:
            _all_on_aws(str(region), as_json)
        return
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


def _on_aws(target: str, region: str | None, with_nodes: bool, as_json: bool, watch: bool) -> bool:
    """Show a cluster on AWS; False where the target is another kind of cluster."""
    import time

    from trainwright.aws.session import Account
    from trainwright.platforms.apply.target import on_aws

    place = on_aws(target, region)
    if place is None:
        return False
    account = Account(place.region)
    while True:
        patience = PATIENCE if watch or with_nodes else None
        state = print_cluster(place.platform, account, place.name, as_json, with_nodes, patience)
        if not watch:
            break
        time.sleep(WATCH_SECONDS)
    if state == "broken":
        raise SystemExit(1)
    return True


def _all_on_aws(region: str, as_json: bool) -> None:
    from trainwright.aws.session import Account
    from trainwright.platforms.apply.status import clusters
    from trainwright.platforms.apply.target import on_aws

    account = Account(region)
    places = [place for name in clusters(account) if (place := on_aws(name, region))]
    readers = [place.platform.reader(place.name, account) for place in places]
    for reader in readers:
        reader.patience = 0  # the table shows nothing that a scheduler knows
    rows = [row for reader in readers if (row := reader.read())]
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(row) for row in rows], indent=1, default=str))
    elif not rows:
        click.echo(f"no cluster of ours in {region}", err=True)
    else:
        table = [(r.name, r.state, len(r.stacks), len(r.nodes), f"${r.usd_hour:,.2f}") for r in rows]
        click.echo(columns(("CLUSTER", "STATE", "STACKS", "NODES", "PER HOUR"), table))


def print_cluster(
    platform: AwsPlatform,
    account: Account,
    name: str,
    as_json: bool,
    with_nodes: bool = False,
    patience: float | None = None,
) -> str:
    """Print a cluster on AWS; its state. `patience`: seconds that its scheduler gets to answer."""
    from trainwright.errors import UserError

    reader = platform.reader(name, account)
    reader.patience = patience or reader.patience
    cluster = reader.read()
    if cluster is None:
        fix = f"`trainwright status --all --region {account.region}`"
        raise UserError(f"nothing of cluster {name} is in {account.region}", fix=fix)
    click.echo(
        json.dumps(dataclasses.asdict(cluster), indent=1, default=str) if as_json else show_aws(cluster, with_nodes)
    )
    return cluster.state


def show_aws(cluster: AwsCluster, with_nodes: bool = False) -> str:
    """A cluster on AWS, a table for each kind of part."""
    parts = [f"{cluster.name}: {cluster.state}, platform {cluster.platform}, {cluster.region}"]
    parts += [f"  {problem}" for problem in cluster.problems]
    parts.append(columns(("STACK", "STATE"), [(row.stack, row.state) for row in cluster.stacks]))
    if cluster.head:
        parts.append(
            columns(("HEAD NODE", "STATE", "ADDRESS"), [(cluster.head.name, cluster.head.state, cluster.head.address)])
        )
    if cluster.queues:
        parts.append(_aws_queues(cluster))
    if cluster.file_systems:
        systems = [(f.id, f.kind, f.state, f"{f.capacity_gib:,} GiB", "; ".join(f.links)) for f in cluster.file_systems]
        parts.append(columns(("FILE SYSTEM", "KIND", "STATE", "SIZE", "LINKS"), systems))
    if cluster.reservations:
        held = [(r.id, r.state, f"{r.used} of {r.total}") for r in cluster.reservations]
        parts.append(columns(("RESERVATION", "STATE", "IN USE"), held))
    if with_nodes:
        parts.append(_aws_nodes(cluster))
    spent = f"about ${cluster.usd_since_start:,.2f} since the start (what runs now, at list prices)"
    cost = f"${cluster.usd_hour:,.2f} an hour now, {spent}"
    return "\n".join([*parts, cost])


def _aws_queues(cluster: AwsCluster) -> str:
    """The queues: their machines by EC2's state and, where the scheduler was asked, by its own."""
    from trainwright.platforms.apply.status import states_by_queue

    rows = [(q.name, f"{q.least}-{q.most}", q.cpus, q.gpus, _counts(q.states) or "none up") for q in cluster.queues]
    heads = ("QUEUE", "NODES", "CPUS", "GPUS", "STATE")
    if cluster.scheduler is None:
        return columns(heads, rows)
    if cluster.scheduler.unknown:
        return f"{columns((*heads[:-1], 'EC2'), rows)}\nnodes in Slurm: unknown ({cluster.scheduler.unknown})"
    states = states_by_queue(cluster.scheduler.nodes)
    both = [(*row, _counts(states.get(row[0], {})) or "none") for row in rows]
    return columns((*heads[:-1], "EC2", "SLURM"), both)


def _aws_nodes(cluster: AwsCluster) -> str:
    """A line for each machine, with the node that the scheduler has at its address, then the nodes without one."""
    known = {node.address: node for node in cluster.scheduler.nodes} if cluster.scheduler else {}
    rows = []
    for node in cluster.nodes:
        there = known.pop(node.address, None)
        names = (there.name, there.state) if there else ("", "")
        rows.append((node.name, node.queue, node.state, node.address, *names, (there and there.reason) or node.reason))
    rows += [("", node.queue, "", "", node.name, node.state, node.reason) for node in known.values()]
    return columns(("NODE", "QUEUE", "STATE", "ADDRESS", "IN SLURM", "STATE", "REASON"), rows)


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
