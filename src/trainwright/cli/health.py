"""`trainwright health`: check this node, or every node of a cluster at once."""

from __future__ import annotations

import json
import os

import click

from trainwright.cli.host import head_node

ALONE = ("record", "replay", "stragglers", "list_checks", "condition", "exit_code")  # options about this node or a file


@click.command()
@click.argument("target", metavar="[SPEC|NAME]", required=False)
@click.option("--suite", type=click.Choice(("quick", "deep", "burn")), default="quick", show_default=True)
@click.option("--cluster", "everywhere", is_flag=True, help="Every node of the cluster named, or of the Slurm here.")
@click.option(
    "--host", type=head_node, default="", metavar="USER@HEAD", help="With --cluster: the head node, over ssh."
)
@click.option("--instance", default="", help="Judge by this instance type instead of the node's own.")
@click.option("--expect", multiple=True, metavar="NAME=COUNT", help="Expect another count: gpus, efa, neuron, nvlinks.")
@click.option("--act", is_flag=True, help="Carry the verdict out: drain, resume, reboot, reset. Otherwise read only.")
@click.option("--record", type=click.Path(dir_okay=False), help="Keep what was read in a file, to judge it elsewhere.")
@click.option("--replay", type=click.Path(exists=True, dir_okay=False), help="Judge a recording instead of this node.")
@click.option("--stragglers", metavar="RUN", default="", help="Name the ranks that delay a run: a name or a folder.")
@click.option("--verbose", is_flag=True, help="List skipped checks too, each with its reason.")
@click.option("--list", "list_checks", is_flag=True, help="List the checks.")
@click.option("--condition", is_flag=True, help="As a patch of a Kubernetes node's status.")
@click.option(
    "--exit-code",
    type=click.Choice(("usable", "verdict")),
    help="usable (default): 0 or 1. verdict: 0 pass, 3 monitor, 4 reset, 5 reboot, 6 isolate.",
)
@click.option("--root", type=click.Path(exists=True, file_okay=False), help="Where the node's files are, in a pod.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(target: str | None, everywhere: bool, host: str, as_json: bool, **options: object) -> None:
    """Check this node, or with --cluster every node of a cluster, and say what to do about it.

    Exits 1 where a node is not fit for work. On nodes without this command: python -m trainwright.health."""
    if options["stragglers"] and not os.path.isdir(str(options["stragglers"])):
        from trainwright.runs import store

        options["stragglers"] = store.find(str(options["stragglers"])).folder
    words = _words(options)
    if everywhere and any(options[name] for name in ALONE):
        raise click.UsageError(
            "--cluster goes without --record, --replay, --stragglers, --list, --condition and --exit-code"
        )
    if not everywhere:
        if target or host:
            raise click.UsageError("a cluster's name and --host go with --cluster")
        from trainwright.health.__main__ import main

        raise SystemExit(main([*words, *(["--json"] if as_json else [])]))
    from trainwright.health.cluster import show, survey
    from trainwright.runs import reach

    scheduler = reach.slurm_named(target, host)
    entries = survey(scheduler.shell.run, scheduler.python, words)
    if as_json:
        click.echo(json.dumps([entry.as_json() for entry in entries], indent=1))
    else:
        click.echo(show(entries))
    if not all(entry.usable for entry in entries if entry.asked):
        raise SystemExit(1)


def _words(options: dict[str, object]) -> list[str]:
    """The options as the node side takes them."""
    words = []
    for name, value in options.items():
        flag = f"--{name.removesuffix('_checks').replace('_', '-')}"
        if value is True:
            words.append(flag)
        elif isinstance(value, tuple):
            words += [word for item in value for word in (flag, item)]
        elif value:
            words += [flag, str(value)]
    return words
