"""`check --set` and `--job`: the spec as `submit` would read it, with values changed on the command line, and of its
jobs one alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.check.engine import Result, RulePlan, run_rules
from trainwright.check.finding import Finding
from trainwright.check.model import File
from trainwright.check.readers.spec import add
from trainwright.errors import UserError, did_you_mean
from trainwright.spec.source import Node

if TYPE_CHECKING:
    from trainwright.spec.load import LoadedSpec


def check_specs(paths: Sequence[str], overrides: Sequence[str], job: str | None, plan: RulePlan) -> Result:
    """The findings of specs under these changes; `job`: without those that concern only other jobs."""
    from trainwright.spec.load import load

    result = plan.result()
    for path in paths:
        if not Path(path).is_file():
            raise UserError("--set and --job need the file of a spec", where=path)
        loaded = load(path, overrides)
        file = File(path, Path(path).read_text(encoding="utf-8"), "spec", [loaded.node])
        file.targets = dict(plan.config.targets)
        add(file, loaded)
        one = Result()
        run_rules(file, plan, one)
        if job is not None:
            others = _other_jobs(loaded, job, path)
            one.findings = [finding for finding in one.findings if not _within(finding, others, path)]
        result.add(one)
    result.sort()
    return result


def _other_jobs(loaded: LoadedSpec, name: str, path: str) -> list[Node]:
    names = [job.name for job in loaded.spec.jobs]
    if name not in names:
        raise UserError(
            f"the spec has no job {name!r}", where=path, fix=did_you_mean(name, names) or f"it has {', '.join(names)}"
        )
    listed = loaded.node.get("jobs")
    nodes = list(listed.elements()) if listed is not None else []
    return [node for node, other in zip(nodes, names, strict=False) if other != name]


def _within(finding: Finding, jobs: list[Node], path: str) -> bool:
    if finding.file != path:
        return False
    for job in jobs:
        lines = [line for node in job.walk() for line in (node.span.line, node.span.end_line)]
        if min(lines) <= finding.span.line <= max(lines):
            return True
    return False
