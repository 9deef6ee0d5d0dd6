"""`trainwright explain`: why a cluster did not come up."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command()
@click.argument("target", metavar="LOGFILE|FOLDER|STACK")
@click.option("--region", metavar="REGION", help="AWS region of the stack.")
@click.option("--json", "as_json", is_flag=True, help="Cause, fix, costs and evidence as JSON.")
def command(target: str, region: str | None, as_json: bool) -> None:
    """Say in one paragraph why a cluster failed, from its logs: a file, a folder, an archive of `pcluster
    export-cluster-logs`, or the name of a stack in AWS, also of a cluster that somebody else made.

    Exits 1 where the logs show no known cause."""
    from trainwright.platforms.diagnosis.explain import explain
    from trainwright.platforms.diagnosis.sources import texts_of

    if Path(target).exists():
        texts = texts_of(Path(target))
    elif "/" in target or target.endswith((".log", ".txt", ".json", ".gz")):
        raise click.UsageError(f"there is no file {target!r}")
    else:
        from trainwright.aws.cluster_logs import stack_texts

        texts = stack_texts(target, region)
    explanation = explain(texts)
    if as_json:
        click.echo(json.dumps(explanation.record() if explanation else None, indent=1))
    elif explanation is None:
        click.echo(f"no line of {len(texts)} log{'s' if len(texts) != 1 else ''} is of a known cause", err=True)
    else:
        click.echo(explanation.paragraph)
        for line in explanation.evidence:
            click.echo(f"  {line.source}:{line.number}: {line.text}")
        if explanation.followed:
            click.echo(f"Also in the logs: {'; '.join(explanation.followed)}.")
    if explanation is None:
        raise SystemExit(1)
