"""`trainwright discover`: read a running cluster into a spec."""

from __future__ import annotations

import json
from pathlib import Path

import click

from trainwright.cli.host import head_node
from trainwright.errors import UserError


@click.command()
@click.option(
    "--host", type=head_node, metavar="USER@HEAD", help="Head node of a Slurm cluster, over ssh. Default: this machine."
)
@click.option("--context", metavar="NAME", help="Kubernetes: the context of the kubeconfig (`current` for that one).")
@click.option("--namespace", default="default", show_default=True, help="Kubernetes: where jobs will run.")
@click.option("-o", "--out", metavar="FILE", help="File to write. Default: standard output.")
@click.option("--force", is_flag=True, help="Overwrite the file if it is there.")
@click.option("--json", "as_json", is_flag=True, help="Spec and all facts as JSON.")
def command(host: str | None, context: str | None, namespace: str, out: str | None, force: bool, as_json: bool) -> None:
    """Read the partitions or node groups, GPUs, limits, accounts, file systems and container runtime of a cluster that
    exists, and write a spec for it. Nothing on the cluster is changed or installed."""
    from trainwright.files import write_text
    from trainwright.platforms.existing.discovery import as_data, spec_text

    if host and context:
        raise UserError("--host is for Slurm and --context for Kubernetes", fix="name one of them")
    if out and Path(out).exists() and not force:
        raise UserError(f"{out} is there already", fix="name another file with -o, or overwrite it with --force")
    if context:
        from trainwright.platforms.existing.kubernetes import api_get, discover_kubernetes

        named = None if context == "current" else context
        discovery = discover_kubernetes(api_get(named), named, namespace)
    else:
        from trainwright.platforms.existing.slurm import discover_slurm
        from trainwright.schedulers.shell import Shell

        discovery = discover_slurm(Shell(host=host or ""))
    if out:
        write_text(Path(out), spec_text(discovery))
    if as_json:
        click.echo(json.dumps(as_data(discovery), indent=1))
        return
    click.echo(out if out else spec_text(discovery).rstrip())
    for note in discovery.notes if out else ():
        click.echo(note, err=True)
