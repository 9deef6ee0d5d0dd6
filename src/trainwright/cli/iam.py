"""`trainwright iam`: the permissions that a plan needs."""

from __future__ import annotations

import json

import click


@click.command()
@click.argument("spec", metavar="SPEC")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a value of the spec.")
@click.option("--account", default="*", metavar="ID", help="Account number for the ARNs. Default: any.")
@click.option("--for", "whom", type=click.Choice(["person", "nodes"]), help="Only these policies.")
@click.option("--json", "as_json", is_flag=True, help="Policies and the reasons of each call as JSON.")
def command(spec: str, overrides: tuple[str, ...], account: str, whom: str | None, as_json: bool) -> None:
    """Print the least-privilege policies of a plan: for the person who runs `up`, `status`, `connect`, `explain` and
    `down`, and what its nodes may do (of a ParallelCluster: beside its own role). Generated from what the plan uses; no
    AWS account is needed."""
    from trainwright.platforms.iam.policy import needed, node_policies, person_policies
    from trainwright.platforms.plan.tree import make_plan
    from trainwright.spec.load import load

    plan = make_plan(load(spec, overrides))
    person = person_policies(plan, account) if whom != "nodes" else []
    nodes = node_policies(plan) if whom != "person" else {}
    if as_json:
        calls = [{"by": rule.by, "why": rule.why, "actions": list(rule.actions)} for rule in needed(plan)]
        click.echo(json.dumps({"person": person, "nodes": nodes, "calls": calls}, indent=1))
        return
    for number, policy in enumerate(person, 1):
        click.echo(f"# policy {number} of the person who runs `up`", err=True)
        click.echo(json.dumps(policy, indent=1))
    for name, extra in nodes.items():
        beside = ", beside ParallelCluster's own role" if plan.spec.platform == "parallelcluster" else ""
        click.echo(f"# {name}{beside}: {', '.join(extra['managed'])}", err=True)
        click.echo(json.dumps(extra["policy"], indent=1))
