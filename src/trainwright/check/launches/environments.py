"""Every environment variable of a file with what decides whether it is right: the instance type, the versions that
are pinned, whether EFA is in use."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from trainwright.catalog.instances import InstanceType
from trainwright.catalog.version_numbers import Version, find_version
from trainwright.catalog.versions import efa_installer
from trainwright.check.finding import Edit
from trainwright.check.launches.job_sizes import type_of
from trainwright.check.model import EnvVar, File, Job, ShellScript
from trainwright.check.readers.instance_hint import instance_of
from trainwright.check.tables import machine
from trainwright.spec.source import Span

_VALUE = r"(?:\"[^\"]*\"|'[^']*'|[^\s;&|\"'`]*)"
_BEFORE = re.compile(rf"\s*(?P<export>export )?(?P<others>(?:\w+={_VALUE}[ \t]+)*)")


@dataclass(frozen=True, slots=True)
class Setting:
    """One variable where it is set. `job` is None in an image."""

    variable: EnvVar
    job: Job | None
    type_: InstanceType | None
    versions: dict[str, Version]
    efa: bool  # the file shows that the job uses EFA
    script: ShellScript | None = None  # that sets it
    intended: bool = False  # EFA is set up or asked for in the file; an instance type that has it is not enough
    is_benchmark: bool = False  # the job runs nccl-tests

    @property
    def value(self) -> str:
        return self.variable.value.value.strip().strip("'\"")


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a file's variables and versions say about EFA."""

    intended: bool  # it is set up here
    efa: bool  # it is likely


def settings(file: File) -> Iterator[Setting]:
    """Every variable that a job, script or image sets."""
    versions = versions_in(file)
    everything = list(file.all_env)
    intended = any(
        v.name.startswith("FI_EFA_") or (v.name, v.value.value) == ("FI_PROVIDER", "efa") for v in everything
    )
    intended = intended or "efa" in versions or "/opt/amazon/efa" in file.text
    # Slingshot is reached by the same plugin.
    ofi = any(v.name.startswith("OFI_NCCL_") for v in everything) and "cxi" not in file.text.lower()
    shown = Evidence(intended, intended or ofi or "ofi_nccl" in versions)
    for job in file.jobs:
        yield from _settings_of(job.env, job, versions, shown, None)
    for script in file.scripts:
        owner = next((job for job in file.jobs if job.script is script), None)
        if owner is not None:
            yield from _settings_of(script.env, owner, versions, shown, script)
        elif script.env:
            type_ = machine(instance_of(script))
            for variable in script.env:
                yield Setting(variable, None, type_, versions, shown.efa, script, shown.intended)


def _settings_of(
    variables: list[EnvVar], job: Job, versions: dict[str, Version], shown: Evidence, script: ShellScript | None
) -> Iterator[Setting]:
    if not variables:
        return
    type_ = type_of(job)
    cards = any(value.known and value.value > 0 for value in job.efa_per_node)
    efa = shown.efa or cards or (type_ is not None and type_.efa_cards > 0)
    measures = any(command.program.endswith("_perf") for command in job.commands)
    for variable in variables:
        yield Setting(variable, job, type_, versions, efa, script, shown.intended or cards, measures)


def versions_in(file: File) -> dict[str, Version]:
    """The versions a file pins; software pinned to several versions is unknown."""
    pinned: dict[str, set[Version]] = {}
    for pin in file.pins:
        version = find_version(pin.version.value)
        if version is not None:
            pinned.setdefault(pin.software, set()).add(version)
    versions = {software: next(iter(several)) for software, several in pinned.items() if len(several) == 1}
    if "efa" in versions and "ofi_nccl" not in pinned:
        bundled = efa_installer(versions["efa"])
        versions |= {"ofi_nccl": bundled.ofi_nccl} if bundled is not None else {}
    return versions


def removal(file: File, variable: EnvVar, *, safe: bool) -> Edit | None:
    """The edit that deletes a line `export NAME=value`, or the assignment before a command or among others; none where
    the line holds more or is inside a block. A comment of the line stays."""
    lines = file.lines
    line = variable.span.line
    if file.format not in ("sbatch", "shell") or variable.span.end_line != line or line > len(lines):
        return None
    text, start = lines[line - 1], variable.span.column - 1
    before = _BEFORE.fullmatch(text[:start])
    assignment = re.compile(rf"{re.escape(variable.name)}={_VALUE}").match(text, start)
    if before is None or assignment is None:
        return None
    end, rest = assignment.end(), text[assignment.end() :]
    if re.match(r"[ \t]+[A-Za-z_/.$]", rest):  # before a command or another assignment
        return Edit(Span(line, start + 1, line, end + len(rest) - len(rest.lstrip()) + 1), "", safe)
    comment = re.fullmatch(r"\s*(#.*)?", rest)
    if comment is None or not before["export"]:
        return None
    if before["others"]:
        return Edit(Span(line, len(text[:start].rstrip()) + 1, line, end + 1), "", safe)
    if comment[1]:
        return Edit(Span(line, 1, line, end + comment.start(1) + 1), "", safe) if text[0] == "e" else None
    return Edit(Span(line, 1, line + 1, 1), "", safe) if text[0] == "e" and line < len(lines) else None


def renaming(file: File, variable: EnvVar, new: str) -> Edit | None:
    """The edit that renames the variable."""
    lines = file.lines
    at = variable.span
    if at.line > len(lines) or lines[at.line - 1][at.column - 1 :][: len(variable.name)] != variable.name:
        return None
    return Edit(Span(at.line, at.column, at.line, at.column + len(variable.name)), new)
