"""CFG: the keys of a ParallelCluster file, against the table of those that each version has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from trainwright.check.finding import Edit
from trainwright.check.model import File
from trainwright.check.pcluster_schema import (
    Key,
    Version,
    is_key,
    keys_of,
    refusals,
    refused,
    sections_with,
    text,
    version_of,
    versions,
)
from trainwright.check.readers.values import is_placeholder, to_int, value_of
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.rules.cfg import placeholder_in
from trainwright.errors import nearest
from trainwright.spec.source import Node, Span

# What every configuration has; a file without several of these is merged into another one.
_WHOLE = (("Image",), ("HeadNode", "InstanceType"), ("Scheduling", "Scheduler"))
_PLACES = 3  # sections, above which a key that stands nowhere may belong to any
_WORDS = re.compile(r"[A-Z]?[^A-Z]+|[A-Z]+")
_ALIKE = 0.75  # of two names, from which one is taken for the other's misspelling
_ID = re.compile(r"[a-z]+-(?=[0-9A-Fa-f]*\d)([0-9A-Fa-f]{8,})")  # an id that was filled in, of whatever kind
_ADDRESSES = ("Script", "CustomSlurmSettingsIncludeFile")
_ADDRESS = re.compile(r"(?i:https):|s3://[^/]*/")  # as pcluster's UrlValidator has it
_COUNTED = "0123456789abcdef01234567890123456789"  # what an example id is written of


@dataclass(frozen=True, slots=True)
class Section:
    """One map of the file, with the keys that the version has there."""

    node: Node
    path: str
    at: Span  # where the section starts
    keys: dict[str, Key]

    @property
    def unknown(self) -> list[str]:
        return [name for name, _ in self.node.items() if name not in self.keys]

    @property
    def where(self) -> str:
        return f"under {self.path}" if self.path else "at the top level"


@rule("CFG005", "error")
def keys_are_known(file: File) -> Iterator[Problem]:
    """A ParallelCluster file must use keys and values that ParallelCluster accepts.

    Misspelled, misplaced and missing keys, values outside a fixed choice, numbers below the minimum, lists and maps in
    the wrong place, malformed ids, and scripts of nodes that are given by a path or by http (https and S3 are
    accepted). The version decides which keys exist: the one that the configuration or a
    comment of the file states (`# ParallelCluster 3.9`), else the newest from 3.0 to 3.16 that accepts the file. That
    newer versions refuse what an older one accepts is a note. A misspelled or misplaced key is not also reported as
    missing; a file without a whole section, or without several keys, is taken as a part of a configuration, which is a
    note, and so is an id that is still to be filled in.

    Why: ParallelCluster refuses the file, with the path of the key but without its line.

    Fix: the key or value that the message proposes.

    Source: aws-parallelcluster 3.0.0 to 3.16.1, cluster schema and UrlValidator.

    When to ignore: you use a ParallelCluster newer than this table.
    """
    if file.format != "parallelcluster":
        return
    for root in file.nodes:
        if root.get("Scheduling") is None:
            continue
        lacking = [".".join(path) for path in _WHOLE if root.get(*path) is None]
        if len(lacking) > 1:
            yield _part(root, lacking)
            continue
        version, stated = version_of(file, root)
        sections = list(_sections(root, "", root.span, version))
        taken = {(section.path, name) for section in sections for name, _ in section.node.items()}
        for section in sections:
            yield from _keys(section, version, taken)
        yield from _missing(root, sections) if not file.template else ()  # an expression may fill it in
        if not stated and version != versions()[0]:
            yield from _newer(root, version)


def _part(root: Node, lacking: list[str]) -> Problem:
    what = f"a part of a configuration: it has no {' and no '.join(lacking)}"
    return problem(root.span, what, "check the file that it is merged into", level="info")


def _newer(root: Node, version: Version) -> Iterator[Problem]:
    """What keeps the file from the newest version, at the first such key or value."""
    newest = versions()[0]
    older = {(id(one.parent), one.name) for one in refusals(root, version)}
    new = [one for one in refusals(root, newest) if (id(one.parent), one.name) not in older]
    if not new:
        return
    what = [f"{one.name} {one.value.text!r}" if one.value is not None else f"the key {one.name!r}" for one in new]
    first = new[0]
    choices = keys_of(first.path, newest).get(first.name) if first.value is not None else None
    change = f"use one of {', '.join(choices.choices(newest))}" if choices is not None else "remove it"
    yield problem(
        first.value or first.parent.key_span(first.name),
        f"ParallelCluster {text(newest)} does not accept {' and '.join(what[:2])}; {text(version)} does",
        f"stay on {text(version)}" if len(new) > 1 else f"{change}, or stay on {text(version)}",
        level="info",  # the file does not say which version reads it
    )


def _sections(node: Node, path: str, at: Span, version: Version) -> Iterator[Section]:
    """This section and those below it that the version has."""
    section = Section(node, path, at, keys_of(path, version))
    yield section
    for name, child in node.items():
        kind = section.keys[name].kind if name in section.keys else ""
        below = f"{path}.{name}" if path else name
        if kind == "map" and child.is_map:
            yield from _sections(child, below, node.key_span(name), version)
        for element in child.elements() if kind == "maps" else ():
            if element.is_map:
                yield from _sections(element, below, element.span, version)


def _missing(root: Node, sections: list[Section]) -> Iterator[Problem]:
    astray = {name for section in sections for name in section.unknown}
    absent: dict[str, list[tuple[Section, str]]] = {}
    for section in sections:
        for name in _required(section):
            either = ("InstanceType", "Instances") if name == "InstanceType" else (name,)
            if not any(one in astray or _meant(one, section.unknown) for one in either):
                absent.setdefault(f"{section.path}.{name}".lstrip("."), []).append((section, name))
    if len(absent) > 1 or any(not section.path for places in absent.values() for section, _ in places):
        yield _part(root, list(absent))
        return
    for places in absent.values():
        for section, name in places:
            yield problem(section.at, f"{section.path} has no {name}", f"add {name}")


def _required(section: Section) -> Iterator[str]:
    """Keys that every version requires here and the section lacks."""
    node = section.node
    yield from (name for name, key in section.keys.items() if key.required and node.get(name) is None)
    scheduler = node.get("Scheduler")
    if section.path == "Scheduling" and scheduler is not None and scheduler.text == "slurm":
        yield from ["SlurmQueues"] if node.get("SlurmQueues") is None else []
    if section.path == "Scheduling.SlurmQueues" and node.get("ComputeResources") is None:
        yield "ComputeResources"
    if section.path == "Scheduling.SlurmQueues.ComputeResources" and node.get("Instances") is None:
        yield from ["InstanceType"] if node.get("InstanceType") is None else []


def _meant(name: str, known: list[str]) -> str:
    """The known name that this one is a misspelling of, or lacks or adds the first words of."""
    words = _WORDS.findall(name)
    ends = [
        one
        for one in known
        if len(_WORDS.findall(one)) != len(words) and (f"{one} ".endswith(f"{name} ") or f"{name} ".endswith(f"{one} "))
    ]
    if len(ends) == 1 and name[:1].isupper():
        return ends[0]
    lowered = {one.lower().replace("_", ""): one for one in known}
    near = lowered.get(nearest(name.lower().replace("_", ""), lowered, _ALIKE), "")
    last = _WORDS.findall(near)[-1:]
    return near if len(words) < 2 or (last and nearest(words[-1], last)) else ""


def _keys(section: Section, version: Version, taken: set[tuple[str, str]]) -> Iterator[Problem]:
    for name, child in section.node.items():
        if name not in section.keys and is_placeholder(name):
            continue
        if name not in section.keys:
            yield _unknown(section, name, child, version, taken)
        elif not (child.is_scalar and child.value is None):
            yield from _value(section, name, child, version)


def _unknown(section: Section, name: str, child: Node, version: Version, taken: set[tuple[str, str]]) -> Problem:
    ever = is_key(section.path, name)
    meant = _meant(name, [one for one in section.keys if section.node.get(one) is None])
    elsewhere = _elsewhere(section.path, name, version, taken) if not ever and name.lower() != meant.lower() else ""
    fix = f"remove it; {section.path or 'the file'} takes {', '.join(section.keys)}"
    edit = None
    if elsewhere:
        fix = f"it belongs {elsewhere}"
    elif meant:
        fix = f"did you mean {meant!r}?{_shape(child, section.keys[meant])}"
        if fix.endswith("?") and _plain(section.node, name):
            edit = Edit(section.node.key_span(name), meant, safe=False)
    return problem(
        section.node.key_span(name),
        f"{f'ParallelCluster {text(version)}' if ever else _all()} has no key {name!r} {section.where}",
        fix,
        level=None if elsewhere or meant else "warning",
        edit=edit,
    )


def _elsewhere(path: str, name: str, version: Version, taken: set[tuple[str, str]]) -> str:
    """Where a key that is misplaced belongs: the nearest section above that lacks it, else those below."""
    above, below = sections_with(path, name, version)
    nearest_below = [place for place in below if not path or place.count(".") == min(p.count(".") for p in below)]
    free = [place for place in above if (place, name) not in taken][:1] or nearest_below
    if not free or len(free) > _PLACES:
        return ""
    return " or ".join(f"under {place}" if place else "at the top level" for place in free)


def _shape(child: Node, key: Key) -> str:
    """What has to change about a value beside the name of its key."""
    if key.kind in ("list", "maps") and not child.is_list and value_of(child).known:
        return " It takes a list"
    return " It takes one value" if key.kind == "value" and child.is_list else ""


def _plain(node: Node, name: str) -> bool:
    """Whether the key is written without quotes."""
    span = node.key_span(name)
    return span.line == span.end_line and span.end_column - span.column == len(name)


def _value(section: Section, name: str, child: Node, version: Version) -> Iterator[Problem]:
    key, path = section.keys[name], f"{section.path}.{name}" if section.path else name
    if key.kind in ("list", "maps") and not child.is_list:
        if child.is_map or value_of(child).known:
            at = section.node.key_span(name) if child.is_map else child.span
            yield problem(at, f"{name} is a list in ParallelCluster", _as_list(child, keys_of(path, version)))
    elif key.kind in ("map", "maps"):
        for element in child.elements() if key.kind == "maps" else [child]:
            if not element.is_map and element.value is not None and value_of(element).known:
                yield _no_map(name, element, keys_of(path, version))
    elif key.kind in ("value", "list"):
        for element in child.elements() if child.is_list else [child]:
            if element.is_scalar and value_of(element).known and element.value is not None:
                yield from _scalar(name, element, key, version)


def _as_list(child: Node, keys: dict[str, Key]) -> str:
    """What stands there, as a list."""
    if not child.is_map:
        return f"write [{child.text}]"
    if any(name in keys for name, _ in child.items()):
        return "write a dash before the first key of each element"
    return f"write a list of maps with the keys {', '.join(name for name, key in keys.items() if key.required)}"


def _no_map(name: str, node: Node, keys: dict[str, Key]) -> Problem:
    """A value where a map with keys belongs."""
    required = [one for one, key in keys.items() if key.required]
    only = next((one for one in ("Enabled", "Script") if one in keys), required[0] if len(required) == 1 else "")
    if node.is_list:
        fix = "write the list below Sequence" if "Sequence" in keys else "remove the dash"
        return problem(node, f"{name} is a map in ParallelCluster, not a list", fix)
    fix = f"write {{{only}: {node.text}}}" if only else f"it takes the keys {', '.join(keys)}"
    return problem(node, f"{name} takes a map, not {node.text!r}", fix)


def _scalar(name: str, node: Node, key: Key, version: Version) -> Iterator[Problem]:
    number, choices = to_int(node.value), key.choices(version)
    if refused(node, choices):
        ever = node.text in key.allowed or str(node.value) in key.allowed
        yield problem(
            node,
            f"{name} cannot be {node.text!r} in {f'ParallelCluster {text(version)}' if ever else _all()}",
            _choice(node.text, choices),
            level="warning" if ever else "info" if _later(node.text, key.choices(versions()[0])) else None,
        )
    elif key.least is not None and number is not None and number < key.least:
        yield problem(node, f"{name} cannot be {number}", f"write {key.least} or more")
    elif name in _ADDRESSES and not _ADDRESS.match(node.text):
        yield from _no_address(name, node)
    elif key.id and not re.fullmatch(rf"{key.id}-([0-9a-z]{{8}}|[0-9a-z]{{17}})", node.text):
        yield from _malformed(name, node, key.id)


def _no_address(name: str, node: Node) -> Iterator[Problem]:
    """A file that nodes are to fetch, from where they cannot."""
    if not placeholder_in(node) and not re.fullmatch("[A-Z_]+", node.text):
        what = f"{name} is {node.text!r}, and ParallelCluster takes addresses of https and S3 only"
        yield problem(node, what, "put the file into a bucket, and write s3://bucket/key")


def _all() -> str:
    """The versions of the table, in words."""
    return f"ParallelCluster {text(versions()[-1])} to {text(versions()[0])}"


def _later(written: str, allowed: Iterable[str]) -> bool:
    """Whether a value looks like the successor of a known one (ubuntu2604), which a newer release may accept."""
    match = re.fullmatch(r"([a-z]+)(\d+)", written)
    numbers = [int(one[len(match[1]) :]) for one in allowed if re.fullmatch(rf"{match[1]}\d+", one)] if match else []
    return bool(match and numbers) and int(match[2]) > max(numbers)  # type: ignore[index]


def _choice(written: str, choices: tuple[str, ...]) -> str:
    """A choice is proposed only where the two differ in writing: another number is another thing."""
    same = [one for one in choices if re.findall(r"\d", one) == re.findall(r"\d", written)]
    meant = _meant(written, same)
    several = f"use one of {', '.join(choices)}" if len(choices) > 1 else f"write {''.join(choices)}"
    return f"did you mean {meant!r}?" if meant else several


def _malformed(name: str, node: Node, prefix: str) -> Iterator[Problem]:
    if placeholder_in(node):
        return
    match = _ID.fullmatch(node.text)
    filled = match is not None and match[1].lower() not in _COUNTED and len(set(match[1])) > 2
    yield problem(
        node,
        f"{node.text!r} is not a valid id for {name}",
        f"write {prefix}- and 8 or 17 digits and small letters",
        level=None if filled else "info",  # still to be filled in
    )
