"""IMG: a variable with the version of NCCL that nothing reads, beside a command that installs another version."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile

from trainwright.catalog.version_numbers import find_version
from trainwright.check import reasons
from trainwright.check.model import Command, EnvVar, File, ShellScript, Value
from trainwright.check.registry import Problem, problem
from trainwright.check.tables import table

_REPOSITORY = re.compile(r"NVIDIA/nccl(\.git)?/?$", re.IGNORECASE)
_ARCHIVE = re.compile(r"NVIDIA/nccl/archive/(?:refs/tags/)?(v\d[\w.-]*?)\.(?:tar|zip)", re.IGNORECASE)
_PACKAGE = re.compile(r"(libnccl(?:2|-dev))=(\d[\w.-]*)")
_TAG = re.compile(r"(v?)(\d+\.\d+\.\d+)(-\d+)?")
_FROM = re.compile(r"[ \t]*FROM[ \t]", re.IGNORECASE)


def unused_versions(file: File) -> Iterator[Problem]:
    """`ARG NCCL_VERSION=v2.27.7-1` that no line reads, beside `git clone --branch v2.23.4-1 …/nccl`."""
    for script in file.scripts if file.format in ("dockerfile", "shell", "sbatch") else ():
        unused = [one for one in script.assignments if _is_version(one) and not _is_read(file, one.name)]
        installed = list(_installed(script)) if len(unused) == 1 else []
        for variable in unused if installed else ():
            other = [at for at in installed if not _are_same(at.value, variable.value.value)]
            if len(other) == len(installed) and _same_stage(file, variable, other[0]):
                yield _two_versions(file, variable, other)


def _is_version(variable: EnvVar) -> bool:
    name = table("images")["variables"]["nccl"]
    stated = variable.applies and variable.value.known and not variable.value.default
    return stated and re.fullmatch(name, variable.name) is not None and _TAG.match(variable.value.value) is not None


def _is_read(file: File, name: str) -> bool:
    """Whether a line that is no comment names a variable elsewhere than where it is set, or reads one by its name."""
    declared = re.compile(rf"\s*((ARG|ENV|export|readonly|declare|local)\s+)?{name}(=|\s+\S|\s*$)[^$]*$", re.IGNORECASE)
    lines = (line for line in file.lines if not line.lstrip().startswith("#"))
    return any(re.search(rf"\b{name}\b", line) and not declared.match(line) for line in lines) or "${!" in file.text


def _installed(script: ShellScript) -> Iterator[Value[str]]:
    """The versions of NCCL that a script clones, downloads or installs as a package, whose name is the text."""
    certain = [command for command in script.commands if not command.conditional]
    for number, command in enumerate(certain):
        if command.program == "git" and any(_REPOSITORY.search(word.value) for word in command.words):
            yield from _checked_out(command, certain[number + 1 :])
        for word in command.words[1:] if command.program != "git" else ():
            archive, package = _ARCHIVE.search(word.value), _PACKAGE.match(word.value)
            if archive is not None and word.known:
                yield Value(archive[1], word.span, archive[1])
            elif package is not None and word.known:
                yield Value(package[2], word.span, package[1])


def _checked_out(clone: Command, later: list[Command]) -> Iterator[Value[str]]:
    branch = clone.options.get("branch") or clone.options.get("b")
    following = takewhile(lambda one: "clone" not in [word.value for word in one.words[1:]], later)
    checkouts = [one for one in following if one.program == "git" and any(w.value == "checkout" for w in one.words)]
    tags = [branch] if branch is not None else []
    for tag in [command.words[-1] for command in checkouts[:1]] or tags:
        if tag.known and _TAG.match(tag.value):
            yield tag


def _are_same(one: str, other: str) -> bool:
    """`2.23` is the same as `v2.23.4-1`, as far as it says."""
    first, second = find_version(one), find_version(other)
    if first is None or second is None:
        return True
    return all(a == b for a, b in zip(first.numbers, second.numbers, strict=False))


def _same_stage(file: File, variable: EnvVar, installed: Value[str]) -> bool:
    """Whether a stage can read the variable: it is set in the stage, or before all stages."""
    stages = [number for number, line in enumerate(file.lines, start=1) if _FROM.match(line)]
    set_in, used_in = (sum(at < line for at in stages) for line in (variable.span.line, installed.span.line))
    return file.format != "dockerfile" or set_in in (0, used_in)


def _two_versions(file: File, variable: EnvVar, installed: list[Value[str]]) -> Problem:
    """A note: what the file builds from another repository or a script may read the variable."""
    where = f"{variable.name} on line {variable.span.line}"
    return problem(
        installed[0],
        f"NCCL {installed[0].value} here, but {where}, which nothing reads, is {variable.value.value}",
        f"write {_reference(file, variable, installed)}, or remove {variable.name}",
        level="info",
        why=reasons.TWO_VERSIONS,
    )


def _reference(file: File, variable: EnvVar, installed: list[Value[str]]) -> str:
    """The variable as it is written in place of an installed version, with what its text lacks of a tag. Packages are
    of one version together, and of those that their repository has."""
    packages = [at.text for at in installed if at.text.startswith("libnccl")]
    if packages:
        return f"one version for {' and '.join(dict.fromkeys(packages))} and in {variable.name}"
    wanted, has = _TAG.fullmatch(installed[0].value), _TAG.fullmatch(variable.value.value)
    if wanted is None or has is None or len(wanted[1]) < len(has[1]) or bool(wanted[3]) < bool(has[3]):
        return "one version in both places"
    more = wanted[3] if wanted[3] and not has[3] else ""
    text = f"{wanted[1] if not has[1] else ''}${{{variable.name}}}{more}"
    lines = " and ".join(map(str, sorted({at.span.line for at in installed})))
    places = f" in lines {lines}" if " " in lines else ""
    before = file.format == "dockerfile" and not any(map(_FROM.match, file.lines[: variable.span.line]))
    return f"{text}{places} (and `ARG {variable.name}` behind FROM)" if before else f"{text}{places}"
