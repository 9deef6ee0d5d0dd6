"""`trainwright check`: find mistakes before paying for them."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

import click

from trainwright.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from trainwright.check.engine import Result, Selection
    from trainwright.check.registry import Rule


@click.command()
@click.argument("paths", nargs=-1, metavar="FILE...")
@click.option(
    "--format", "form", type=click.Choice(["text", "json", "sarif", "github"]), default="text", help="How to print."
)
@click.option(
    "--select", multiple=True, metavar="CODE", help="Run only rules whose code starts with this (CAP, NET001)."
)
@click.option("--ignore", multiple=True, metavar="CODE", help="Skip rules whose code starts with this.")
@click.option("--fix", is_flag=True, help="Apply the safe fixes and show them as a diff; comments and layout stay.")
@click.option("--aws", is_flag=True, help="Also run the rules that query AWS (needs credentials).")
@click.option("--region", metavar="REGION", help="AWS region for --aws, where the file names none.")
@click.option("--explain", metavar="CODE", help="Print a rule's documentation and exit.")
@click.option("--rules", "list_rules", is_flag=True, help="List the rules and exit.")
def command(
    paths: tuple[str, ...],
    form: str,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    fix: bool,
    aws: bool,
    region: str | None,
    explain: str | None,
    list_rules: bool,
) -> None:
    """Find mistakes in cluster and job files.

    Reads Trainwright specs, ParallelCluster, eksctl, CloudFormation, HyperPod, Kubernetes, sbatch and shell files; the
    kind is recognised by content. A directory is searched; `-` reads standard input. Exit status: 0 nothing found,
    1 findings, 2 wrong usage.

    A comment on a line ignores a rule there: # trainwright: ignore[CAP004] the reason
    """
    # pydantic would read a file of every installed package to look for plugins, which a spec does not use.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    from trainwright.check.registry import all_rules

    rules = all_rules()
    if explain:
        click.echo(_explanation(explain, rules))
        return
    if list_rules:
        click.echo("\n".join(f"{r.code}  {r.level:8}{r.needs:9}{r.title}" for r in rules))
        return
    if not paths:
        raise click.UsageError("name a file or folder to check, or `-` for standard input")
    from trainwright.check.engine import Selection

    result = _run(paths, Selection(_codes(select), _codes(ignore)), aws, region, fix)
    _print(result, form, {rule.code: rule for rule in rules})
    sys.exit(1 if result.worst() in ("error", "warning") else 0)


def _codes(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(code.strip().upper() for value in values for code in value.split(",") if code.strip())


def _run(paths: tuple[str, ...], selection: Selection, aws: bool, region: str | None, fix: bool) -> Result:
    from trainwright.check.engine import check

    facts = {}
    if aws:
        from trainwright.aws.facts import AwsFacts

        facts["aws"] = AwsFacts(region)
    result = check(paths, selection, facts)
    if fix:
        from trainwright.check.fixes import fix_files

        fixed = fix_files(result.findings)
        for name, count in fixed.items():
            click.echo(f"{name}: {count} fix{'' if count == 1 else 'es'} made", err=True)
        result = check(paths, selection, facts) if fixed and "-" not in paths else result
    return result


def _print(result: Result, form: str, rules: dict[str, Rule]) -> None:
    if form == "text":
        from trainwright.check.text import render

        terminal = sys.stdout.isatty()
        width = shutil.get_terminal_size().columns if terminal else None
        click.echo(render(result, rules, colour=terminal, width=width))
        return
    from trainwright.check import formats

    if form == "json":
        click.echo(formats.as_json(result))
    elif form == "sarif":
        click.echo(formats.as_sarif(result, rules))
    elif result.findings:
        click.echo(formats.as_github(result))


def _explanation(code: str, rules: tuple[Rule, ...]) -> str:
    from trainwright.check.examples import example_of

    found = [rule for rule in rules if rule.code == code.upper()]
    if not found:
        known = [rule.code for rule in rules]
        raise UserError(
            f"no rule {code!r}", fix=did_you_mean(code.upper(), known) or "`trainwright check --rules` lists them"
        )
    found.sort(key=lambda rule: rule.needs != "offline")
    head = f"{found[0].code} ({found[0].level}, needs {', '.join(r.needs for r in found)})"
    return "\n\n".join([head, *(rule.document for rule in found), *example_of(found[0].code)])
