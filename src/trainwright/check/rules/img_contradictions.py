"""IMG: two versions of the EFA installer or of the plugin in one file."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.catalog.version_numbers import Version, find_version
from trainwright.catalog.versions import software_title
from trainwright.check import reasons
from trainwright.check.finding import Level
from trainwright.check.launches.scopes import branches
from trainwright.check.model import File, Pin
from trainwright.check.registry import Problem, problem
from trainwright.check.rules.img_stages import Stage, stages

_STATES = re.compile(
    r"://|^\s*(ARG|ENV)\s+\w+[= ]|^\s*((export|local|readonly|declare)\s+)?\w+=|\s(-b|--branch)\b", re.IGNORECASE
)
_FROM = re.compile(r"\s*FROM\s", re.IGNORECASE)
_SOURCE = re.compile(r"\bfrom=[\"']?([\w.-]+)")  # of COPY and of a mount


def contradictions(file: File) -> Iterator[Problem]:
    """Two versions in one stage of an image or one script, or in two stages of which one uses the other: not what a
    base image brings, nor one per branch."""
    first: dict[tuple[str, int], Pin] = {}
    seen: set[tuple[str, int, Version | None]] = set()
    used = _used_stages(file) if file.format == "dockerfile" else []
    for pin, stage in _pins(file):
        version, software = find_version(pin.version.value), pin.software
        new = (software, stage) not in first
        before = first.setdefault((software, stage), pin)
        if new and stage < len(used):
            others = [first[software, one] for one in sorted(used[stage]) if (software, one) in first]
            differing = [one for one in others if find_version(one.version.value) != version]
            if differing:
                yield _two(pin, differing[0], "info")  # each stage may be meant to have its own
        elif find_version(before.version.value) != version and (software, stage, version) not in seen:
            seen.add((software, stage, version))
            yield _two(pin, before, None)


def _pins(file: File) -> Iterator[tuple[Pin, int]]:
    """The versions that a file states, each with the number of its stage: 0 is before the first FROM."""
    lines = file.text.split("\n") if len(file.pods) < 2 else []
    for pin in file.pins:
        line = lines[pin.version.span.line - 1] if pin.version.span.line <= len(lines) else ""
        if pin.software not in ("efa", "ofi_nccl") or find_version(pin.version.value) is None:
            continue
        if not _STATES.search(line) or re.match(r"\s*(FROM\b|(- )?image:)|.*--container-image", line):
            continue
        if not branches(file, pin.version):
            yield pin, sum(_FROM.match(one) is not None for one in lines[: pin.version.span.line])


def _two(pin: Pin, before: Pin, level: Level | None) -> Problem:
    return problem(
        pin.version,
        f"{software_title(pin.software)} {pin.version.value} here, {before.version.value} on line "
        f"{before.version.span.line}",
        "pin it once and use that variable"
        if level is None
        else "pin it once, in an ARG before the first FROM that each stage repeats by its name",
        level=level,
        why=reasons.TWO_VERSIONS if level is None else reasons.TWO_VERSIONS_OF_STAGES,
    )


def _used_stages(file: File) -> list[set[int]]:
    """The stages that each stage starts from or copies from, also through others."""
    used: list[set[int]] = []
    numbers: dict[str, int] = {}
    of_stage: dict[int, int] = {}
    for number, stage in enumerate(stages(file.text)):
        before = of_stage.get(id(stage.before)) if stage.before is not None else None
        sources = {numbers[name] for name in _sources(stage) if name in numbers}
        direct = sources | ({before} if before is not None else set())
        used.append(direct.union(*(used[one] for one in direct)))
        of_stage[id(stage)] = number
        numbers |= {str(number - 1): number, stage.name: number}
    return used


def _sources(stage: Stage) -> Iterator[str]:
    for part in stage.parts:
        if part.keyword in ("COPY", "RUN"):
            yield from (name.lower() for name in _SOURCE.findall(part.flags))
