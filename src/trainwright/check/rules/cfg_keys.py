"""CFG: the keys of a ParallelCluster file, against the table of those that each version has."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check.finding import Edit
from trainwright.check.model import File
from trainwright.check.pcluster_schema import Key, Version, keys_of, refusals, refused, text, version_of, versions
from trainwright.check.readers.values import to_int, value_of
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.rules.cfg import placeholder_in
from trainwright.errors import did_you_mean
from trainwright.spec.source import Node, Span

# What every configuration has; a file without several of these is merged into another one.
_WHOLE = (("Image",), ("HeadNode", "InstanceType"), ("Scheduling", "Scheduler"))


@rule("CFG005", "error")
def keys_are_known(file: File) -> Iterator[Problem]:
    """A ParallelCluster file must use keys and values that ParallelCluster accepts.

    Misspelled and missing keys, values outside a fixed choice, numbers below the minimum, and malformed ids. The
    version decides which keys exist, and the message names it: the version that the configuration or a comment of the
    file states (`# ParallelCluster 3.9`), else the newest from 3.0 to 3.16 that accepts the file. A file that only an
    older version accepts is a warning. A misspelled key is not also reported as missing.

    Why: ParallelCluster refuses the file, with the path of the key but without its line.

    Fix: the key or value that the message proposes.

    Source: aws-parallelcluster 3.0.0 to 3.16.1, cluster schema.

    When to ignore: you use a ParallelCluster newer than this table.
    """
    if file.format != "parallelcluster":
        return
    for root in file.nodes:
        if root.get("Scheduling") is None:
            continue
        lacking = [".".join(path) for path in _WHOLE if root.get(*path) is None]
        if len(lacking) > 1:
            what = f"a part of a configuration: it has no {' and no '.join(lacking)}"
            yield problem(root.span, what, "check the file that it is merged into", level="info")
            continue
        version, stated = version_of(file, root)
        yield from _section(root, "", root.span, version)
        yield from _queues_missing(root, version)
        if not stated and version != versions()[0]:
            yield from _newer(root, version)


def _newer(root: Node, version: Version) -> Iterator[Problem]:
    """The first key or value that keeps the file from the newest version. An image of one's own is made for one version
    of ParallelCluster, so that whoever moves on makes another one anyway."""
    older = {(id(one.parent), one.name) for one in refusals(root, version)}
    for one in refusals(root, versions()[0]):
        if (id(one.parent), one.name) in older:
            continue
        what = f"{one.name} {one.value.text!r}" if one.value is not None else f"the key {one.name!r}"
        choices = keys_of(one.path, versions()[0]).get(one.name)
        yield problem(
            one.value or one.parent.key_span(one.name),
            f"ParallelCluster {text(versions()[0])} does not accept {what}; this file fits {text(version)}",
            f"use one of {', '.join(choices.choices(versions()[0]))}, or stay on {text(version)}"
            if choices is not None and one.value is not None
            else f"remove it, or stay on ParallelCluster {text(version)}",
            level="warning" if root.get("Image", "CustomAmi") is None else "info",
        )
        return


def _queues_missing(root: Node, version: Version) -> Iterator[Problem]:
    scheduling = root.get("Scheduling")
    scheduler = root.get("Scheduling", "Scheduler")
    if scheduling is None or scheduler is None or scheduler.text != "slurm" or not scheduling.is_map:
        return
    names = list(scheduling.value)
    if "SlurmQueues" not in names and not did_you_mean("SlurmQueues", names):
        yield problem(root.key_span("Scheduling"), "Scheduling has no SlurmQueues", "add SlurmQueues")


def _section(node: Node, path: str, at: Span, version: Version) -> Iterator[Problem]:
    keys = keys_of(path, version)
    unknown = [name for name, _ in node.items() if name not in keys]
    for name, child in node.items():
        if name not in keys:
            yield _unknown(node, name, path, keys, version)
        elif not (child.is_scalar and child.value is None):
            yield from _value(node, name, child, keys[name], f"{path}.{name}" if path else name, version)
    for name, key in keys.items():
        # A misspelled key is reported as such, not also as missing.
        if key.required and node.get(name) is None and not did_you_mean(name, unknown):
            yield problem(at, f"{path or 'the file'} has no {name}", f"add {name}")


def _unknown(node: Node, name: str, path: str, keys: dict[str, Key], version: Version) -> Problem:
    hint = did_you_mean(name, keys)
    where = f"under {path}" if path else "at the top level"
    return problem(
        node.key_span(name),
        f"ParallelCluster {text(version)} has no key {name!r} {where}",
        hint or f"it has {', '.join(keys)}",
        level=None if hint else "warning",
        edit=Edit(node.key_span(name), hint.split("'")[1], safe=False) if hint and _plain(node, name) else None,
    )


def _plain(node: Node, name: str) -> bool:
    """Whether the key is written without quotes."""
    span = node.key_span(name)
    return span.line == span.end_line and span.end_column - span.column == len(name)


def _value(node: Node, name: str, child: Node, key: Key, path: str, version: Version) -> Iterator[Problem]:
    if key.kind in ("map", "maps"):
        elements = list(child.elements()) if key.kind == "maps" and child.is_list else [child]
        for element in elements:
            if element.is_map:
                yield from _section(element, path, element.span if key.kind == "maps" else node.key_span(name), version)
            elif value_of(element).known and element.value is not None:
                yield problem(element, f"{name} expects a map here, not {element.text!r}", "indent its keys below it")
    elif key.kind in ("value", "list"):
        for element in child.elements() if child.is_list else [child]:
            if element.is_scalar and value_of(element).known and element.value is not None:
                yield from _scalar(name, element, key, version)


def _scalar(name: str, node: Node, key: Key, version: Version) -> Iterator[Problem]:
    number, choices = to_int(node.value), key.choices(version)
    if refused(node, choices):
        ever = node.text in key.allowed or str(node.value) in key.allowed
        yield problem(
            node,
            f"{name} cannot be {node.text!r} in ParallelCluster {text(version)}",
            did_you_mean(node.text, choices) or f"use one of {', '.join(choices)}",
            level="warning" if ever else None,
        )
    elif key.least is not None and number is not None and number < key.least:
        yield problem(node, f"{name} cannot be {number}", f"write {key.least} or more")
    elif key.id and not re.fullmatch(rf"{key.id}-[0-9a-z]{{8,}}", node.text) and not placeholder_in(node):
        yield problem(node, f"{node.text!r} is not a valid id for {name}", f"write {key.id}-…")
