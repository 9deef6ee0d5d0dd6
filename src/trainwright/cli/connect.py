"""`trainwright connect`: a shell or a command on the cluster's head, copies, port forwards."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from trainwright.platforms.parallelcluster.reach import Way
    from trainwright.spec.model import Spec

SPEC = "trainwright.yaml"


class _Split(click.Command):
    """Keeps what stands behind `--` apart: `connect -- squeue` names no cluster."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            place = args.index("--")
            ctx.meta["words"], args = tuple(args[place + 1 :]), args[:place]
        return super().parse_args(ctx, args)


@click.command(cls=_Split)
@click.argument("target", metavar="[SPEC|NAME]", required=False)
@click.argument("words", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@click.option("--region", metavar="REGION", help="AWS region of a cluster that is named without a spec.")
@click.option("--via", type=click.Choice(["ssm", "ssh"]), help="Through Session Manager, or straight to the ssh port.")
@click.option("--forward", "ports", multiple=True, metavar="PORT", help="Forward a port: 8888, or 8888:node-1:8888.")
@click.option("--put", "puts", nargs=2, multiple=True, metavar="HERE THERE", help="Copy a file or folder to the head.")
@click.option(
    "--get", "gets", nargs=2, multiple=True, metavar="THERE HERE", help="Copy a file or folder from the head."
)
@click.option(
    "--write-ssh-config", is_flag=True, help="Add the cluster to ~/.ssh/config; `ssh trainwright-NAME` works."
)
@click.option("--write-kubeconfig", is_flag=True, help="EKS: add the cluster to ~/.kube/config as trainwright-NAME.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    target: str | None,
    words: tuple[str, ...],
    **on_aws: Any,
) -> None:
    """Open a shell on the cluster's head, or run one COMMAND there: `trainwright connect demo -- sinfo`. Without a
    name: the cluster of trainwright.yaml here, or the only local one.

    A ParallelCluster is reached over ssh, through Session Manager where no port is open; the controller of a HyperPod
    cluster always through Session Manager. NAME may be a cluster that somebody else made. For EKS the shell or COMMAND
    is on this machine, with a kubeconfig of the cluster: `trainwright connect eks.yaml -- kubectl get nodes`."""
    from trainwright.platforms.base import find
    from trainwright.platforms.local import state

    words = ctx.meta.get("words", words)
    target = target or _only_cluster()
    platform, name, spec = find(target)
    here = name in state.names() and not on_aws["region"]
    known = spec.platform if spec is not None else "local" if here else _platform(name, on_aws["region"])
    write_kubeconfig, region = on_aws.pop("write_kubeconfig"), on_aws["region"]
    if known in ("eks", "hyperpod-eks") and not any({**on_aws, "region": None}.values()):
        _on_eks(name, spec, words, region, write_kubeconfig)
        return
    if write_kubeconfig:
        raise click.UsageError(f"--write-kubeconfig is for EKS; {name} is on platform {known}")
    if known in ("parallelcluster", "hyperpod"):
        _on_aws(known, name, spec, words, **on_aws)
        return
    if any(on_aws.values()):
        raise click.UsageError(f"these options are for the head node of a cluster on AWS; {name} has none")
    argv, environment = platform.connect(name, spec)
    argv = [*argv[:-1], *words] if words else argv
    os.execvpe(argv[0], argv, {**os.environ, **environment})


def _platform(name: str, region: str | None) -> str:
    """The platform of a cluster on AWS that is known by its name."""
    from trainwright.platforms.apply.target import platform_of

    return platform_of(name, region) if region is not None else "parallelcluster"


def _way(platform: str, name: str, spec: Spec | None, region: str | None, via: str | None) -> Way:
    if platform == "hyperpod":
        from trainwright.platforms.hyperpod.platform import way_to as way_to_controller

        if via == "ssh":
            raise click.UsageError("nodes of HyperPod have no ssh port to the outside: leave --via out")
        return way_to_controller(name, region or (spec.region if spec is not None else None))
    from trainwright.platforms.parallelcluster.platform import way_to

    return way_to(name, spec, region, None if via is None else via == "ssh")


def _on_aws(
    platform: str,
    name: str,
    spec: Spec | None,
    words: tuple[str, ...],
    region: str | None,
    via: str | None,
    ports: tuple[str, ...],
    puts: tuple[tuple[str, str], ...],
    gets: tuple[tuple[str, str], ...],
    write_ssh_config: bool,
) -> None:
    from trainwright.platforms.parallelcluster.reach import add_to_user_config, copy_command, shell_command

    way = _way(platform, name, spec, region, via)
    copies = [copy_command(way, here, there, True) for here, there in puts]
    copies += [copy_command(way, there, here, False) for there, here in gets]
    if write_ssh_config:
        way.require()
        add_to_user_config(way, Path.home() / ".ssh" / "config")
        click.echo(f"`ssh {way.alias}` reaches {name}", err=True)
    for copy in copies:
        status = subprocess.run(copy).returncode
        if status:
            raise SystemExit(status)
    if words or ports or not (copies or write_ssh_config):
        forwards = [port if ":" in port else f"{port}:localhost:{port}" for port in ports]
        argv = shell_command(way, words, sys.stdin.isatty(), forwards)
        os.execvp(argv[0], argv)


def _on_eks(name: str, spec: Spec | None, words: tuple[str, ...], region: str | None, write: bool) -> None:
    from trainwright.platforms.eks.platform import reach

    path = reach(name, spec, region, Path.home() / ".kube" / "config" if write else None)
    if write:
        click.echo(f"`kubectl --context trainwright-{name}` reaches {name}", err=True)
    if words or not write:
        argv = list(words) or [os.environ.get("SHELL", "/bin/bash")]
        os.execvpe(argv[0], argv, {**os.environ, "KUBECONFIG": str(path)})


def _only_cluster() -> str:
    from trainwright.platforms.local import state

    names = state.names()
    if Path(SPEC).is_file():
        return SPEC
    if len(names) == 1:
        return str(names[0])
    raise click.UsageError(f"name a spec or a cluster: there is no {SPEC} here, and {len(names)} local clusters")
