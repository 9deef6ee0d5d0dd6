"""`trainwright check`: find mistakes before paying for them."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trainwright.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from trainwright.check.config import Config
    from trainwright.check.engine import Result, RulePlan
    from trainwright.check.registry import Rule


_LEVELS = ["error", "warning", "info"]
_FORMATS = ["text", "full", "json", "sarif", "github", "gitlab"]


@click.command()
@click.argument("paths", nargs=-1, metavar="FILE...")
@click.option(
    "--format", "form", type=click.Choice(_FORMATS), default="text", help="How to print; full: every excerpt."
)
@click.option(
    "--select", multiple=True, metavar="CODE", help="Run only rules whose code starts with this (CAP, NET001)."
)
@click.option("--ignore", multiple=True, metavar="CODE", help="Skip rules whose code starts with this.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Check a spec with a value changed.")
@click.option("--job", metavar="NAME", help="Check one job of a spec, and the cluster it runs on.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="Skip files and directories of this name or path.")
@click.option("--fix", is_flag=True, help="Apply the safe fixes and show them as a diff; comments and layout stay.")
@click.option("--unsafe-fixes", is_flag=True, help="Also apply fixes that may change what a working file means.")
@click.option("--baseline", metavar="FILE", help="Report only findings that are not in this baseline.")
@click.option("--write-baseline", metavar="FILE", help="Record the findings as a baseline and exit with 0.")
@click.option("--diff", "revision", metavar="REV", help="Report only findings that a change since a git revision made.")
@click.option("--fail-on", type=click.Choice(_LEVELS), help="Least level that gives exit status 1 (default: warning).")
@click.option("--statistics", is_flag=True, help="Print the number of findings per rule.")
@click.option("-j", "--jobs", default=0, metavar="N", help="Processes for directories; 0 (default): one per CPU.")
@click.option("--cache/--no-cache", default=None, help="Reuse results of unchanged files (default: for directories).")
@click.option("--skip-unknown", is_flag=True, help="Skip named files of other kinds, for hooks that pass all files.")
@click.option("--aws", is_flag=True, help="Also run the rules that query AWS (needs credentials).")
@click.option("--region", metavar="REGION", help="AWS region for --aws, in place of the files' own.")
@click.option("--node", is_flag=True, help="Also run the rules about this node; for a check where the job will run.")
@click.option("--explain", metavar="CODE", help="Print a rule's documentation and exit.")
@click.option("--rules", "list_rules", is_flag=True, help="List the rules and exit.")
def command(paths: tuple[str, ...], explain: str | None, list_rules: bool, **options: Any) -> None:
    """Find mistakes in cluster and job files.

    Reads Trainwright specs, ParallelCluster, eksctl, CloudFormation, Terraform, HyperPod, Kubernetes, Slurm's files,
    sbatch and shell files and trainers' configurations; the kind is recognised by content. A directory is searched; `-`
    reads standard input. Settings come from [tool.trainwright.check] of pyproject.toml or [check] of trainwright.toml.
    Exit status: 0 nothing found, 1 findings of the level of --fail-on or worse, 2 wrong usage.

    A comment on a line ignores a rule there: # trainwright: ignore[CAP004] the reason
    """
    # pydantic would read a file of every installed package to look for plugins, which a spec does not use.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    from trainwright.check.own_codes import OWN_CODES
    from trainwright.check.registry import all_rules

    rules = (*all_rules(), *OWN_CODES)
    if explain:
        click.echo(_explanation(explain, rules))
        return
    if list_rules:
        click.echo("\n".join(f"{r.code}  {r.level:8}{r.needs:9}{r.title}" for r in rules))
        return
    if not paths:
        raise click.UsageError("name a file or folder to check, or `-` for standard input")
    if options["statistics"] and options["form"] in ("sarif", "github", "gitlab"):
        raise click.UsageError(f"--statistics has no form for {options['form']}; use --format text or json")
    result, config = _run(paths, options)
    if options["write_baseline"]:
        from trainwright.check.known import write_baseline

        write_baseline(Path(options["write_baseline"]), result)
        click.echo(f"{options['write_baseline']}: {len(result.findings)} findings recorded", err=True)
        return
    if options["form"] in ("text", "full", "json") and not options["statistics"]:
        from trainwright.check.causes import merge_causes

        merge_causes(result, habits=options["form"] != "full")
    failing = _LEVELS[: _LEVELS.index(options["fail_on"] or config.fail_on) + 1]
    _print(result, options, {rule.code: rule for rule in rules}, config.docs_url, notes_in_full="info" in failing)
    sys.exit(1 if result.worst() in failing else 0)


def _codes(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(code.strip().upper() for value in values for code in value.split(",") if code.strip())


def _run(paths: tuple[str, ...], options: dict[str, Any]) -> tuple[Result, Config]:
    from dataclasses import replace

    from trainwright.check.config import load_config
    from trainwright.check.engine import RulePlan, Selection
    from trainwright.check.runner import RunOptions, run

    config = load_config()
    config = replace(config, exclude=(*config.exclude, *options["exclude"]))
    selection = Selection(_codes(options["select"]) or config.select, (*config.ignore, *_codes(options["ignore"])))
    cache = options["cache"] if options["cache"] is not None else any(os.path.isdir(path) for path in paths)
    how = RunOptions(options["jobs"], cache, options["skip_unknown"])
    facts: dict[str, Any] = {}
    if options["aws"]:
        from trainwright.aws.facts import AwsFacts
        from trainwright.check.regions import stated_region

        facts["aws"] = AwsFacts(options["region"] or stated_region(paths))
    if options["node"]:
        from trainwright.health.facts import ThisNode

        facts["node"] = ThisNode()
    plan = RulePlan.of(selection, facts, config)
    if options["overrides"] or options["job"]:
        from trainwright.check.submitted import check_specs

        return _only_new(check_specs(paths, options["overrides"], options["job"], plan), options, plan), config
    result = _only_new(run(paths, selection, facts, config, how), options, plan)
    if (options["fix"] or options["unsafe_fixes"]) and _fix(result, options["unsafe_fixes"]) and "-" not in paths:
        result = _only_new(run(paths, selection, facts, config, how), options, plan)
    return result, config


def _only_new(result: Result, options: dict[str, Any], plan: RulePlan) -> Result:
    if not options["baseline"] and not options["revision"]:
        return result
    from trainwright.check.known import only_changed, only_new

    if options["baseline"]:
        dropped = only_new(Path(options["baseline"]), result)
        click.echo(f"not shown: {dropped} of the baseline", err=True)
    if options["revision"]:
        dropped = only_changed(options["revision"], result, plan)
        click.echo(f"not shown: {dropped} that no change since {options['revision']} made", err=True)
    return result


def _fix(result: Result, unsafe: bool) -> bool:
    from trainwright.check.fixes import fix_files

    fixed = fix_files(result.findings, unsafe)
    for one in fixed:
        click.echo(one.diff, err=True, nl=False)
        click.echo(f"{one.name}: {one.count} fix{'' if one.count == 1 else 'es'} made", err=True)
    return bool(fixed)


def _print(result: Result, options: dict[str, Any], rules: dict[str, Rule], docs_url: str, notes_in_full: bool) -> None:
    form = options["form"]
    if options["statistics"]:
        _print_statistics(result, form, rules)
        return
    if form in ("text", "full"):
        from trainwright.check.text import render

        terminal = sys.stdout.isatty()
        width = shutil.get_terminal_size().columns if terminal else None
        click.echo(render(result, rules, colour=terminal, width=width, full=form == "full" or notes_in_full))
        return
    from trainwright.check import formats

    if form == "json":
        text = formats.as_json(result, docs_url)
    elif form == "sarif":
        text = formats.as_sarif(result, rules, docs_url)
    elif form == "gitlab":
        text = formats.as_gitlab(result)
    else:
        text = formats.as_github(result)
    if text:
        click.echo(text, color=True)  # the true names of files: else click removes what looks like a colour


def _print_statistics(result: Result, form: str, rules: dict[str, Rule]) -> None:
    import json

    from trainwright.check.formats import statistics
    from trainwright.check.text import counted

    if form == "json":
        click.echo(json.dumps(statistics(result, rules), indent=2))
    elif result.findings:
        click.echo("\n".join(counted(result, rules)))


def _explanation(code: str, rules: tuple[Rule, ...]) -> str:
    from trainwright.check.examples import example_of

    matching = [rule for rule in rules if rule.code == code.upper()]
    if not matching:
        known = [rule.code for rule in rules]
        raise UserError(
            f"no rule {code!r}", fix=did_you_mean(code.upper(), known) or "`trainwright check --rules` lists them"
        )
    matching.sort(key=lambda rule: rule.needs != "offline")
    head = f"{matching[0].code} ({matching[0].level}, needs {', '.join(r.needs for r in matching)})"
    return "\n\n".join([head, *(rule.document for rule in matching), *example_of(matching[0].code)])
