"""From a file to a `Spec`: several documents a file, `extends:` for a base file, `--set key=value` overrides. Every
mistake carries the place it was made at, all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainwright.errors import UserError, did_you_mean
from trainwright.spec.model import Spec
from trainwright.spec.renamed import SPEC, Renamed, modernise
from trainwright.spec.source import Node, SourceError, Span, parse, read_text
from trainwright.spec.validate import validated

MAX_EXTENDS = 8
# Keys by which a file of another tool is known; `check` reads those, the other verbs do not.
FOREIGN = (
    ({"HeadNode", "Scheduling"}, "a ParallelCluster configuration"),
    ({"Resources"}, "a CloudFormation template"),
    ({"apiVersion", "kind"}, "a Kubernetes manifest"),
)


@dataclass(frozen=True, slots=True)
class LoadedSpec:
    """A spec, the file it came from and the positions of everything in it."""

    spec: Spec
    path: str
    node: Node
    files: dict[int, str]  # id(node) -> file, for nodes that a base file brought in
    renamed: tuple[Renamed, ...] = ()  # words of earlier versions that the file still uses

    def span(self, *path: str | int) -> Span:
        return self.node.span_at(path)

    def where(self, *path: str | int) -> str:
        """The place of a path as messages show it: a file with line and column, or the flag that gave the value."""
        return self.span(*path).at(self.path)

    def with_jobs(self, *jobs: Node) -> LoadedSpec:
        """The same spec with these jobs instead of its own."""
        value = {**self.node.value, "jobs": Node(list(jobs), self.node.key_span("jobs"))}
        node = replace(self.node, value=value)
        return replace(self, spec=validated(Spec, node, self.path, self.files), node=node)


def load(path: str | Path, overrides: Sequence[str] = ()) -> LoadedSpec:
    """The one spec of a file; a file with several documents needs `load_all`."""
    specs = load_all(path, overrides)
    if len(specs) != 1:
        names = ", ".join(s.spec.name for s in specs)
        raise UserError(f"the file holds {len(specs)} specs ({names})", where=str(path), fix="name a file with one")
    return specs[0]


def load_text(text: str, name: str) -> LoadedSpec:
    """A spec that stands in no file; `name` is what messages call it."""
    return load_node(parse(text, name)[0], name)


def load_all(path: str | Path, overrides: Sequence[str] = ()) -> list[LoadedSpec]:
    """Every spec of a file."""
    text = read_text(Path(path))
    if text.startswith("#!"):
        raise _foreign("a script", path)
    documents = parse(text, str(path))
    if not documents:
        raise SourceError("the file is empty", str(path), fix="`trainwright init` writes a starter spec")
    for document in documents:
        keys = {key for key, _ in document.items()} if document.is_map else set()
        if kind := next((kind for marks, kind in FOREIGN if marks <= keys), None):
            raise _foreign(kind, path)
    return [load_node(document, str(path), overrides) for document in documents]


def _foreign(kind: str, path: str | Path) -> UserError:
    return UserError(
        f"this is {kind}, not a Trainwright spec", where=str(path),
        fix="`trainwright check` reads it as it is; other verbs want a spec, and `trainwright init` lists starters",
    )  # fmt: skip


def load_node(document: Node, path: str, overrides: Sequence[str] = ()) -> LoadedSpec:
    """A spec from a parsed document: base files merged in, overrides applied, shape validated."""
    files: dict[int, str] = {}
    merged = _extend(document, path, files, 0)
    for override in overrides:
        flag = f"--set {override}"
        for node in _override(merged, override).walk():
            node.span = flag_span(flag)
            node.keys = dict.fromkeys(node.keys, node.span)
            files[id(node)] = flag
    renamed = modernise(merged, SPEC)
    return LoadedSpec(validated(Spec, merged, path, files), path, merged, files, tuple(renamed))


def flag_span(flag: str) -> Span:
    """The place of a value that was given on the command line."""
    return Span(1, 1, 1, 1, flag)


def flag_node(value: Any, flag: str) -> Node:
    """A value of the command line as a value of the spec."""
    span = flag_span(flag)
    if isinstance(value, tuple):
        return Node([flag_node(item, flag) for item in value], span)
    return Node(value, span, str(value))


def _extend(document: Node, path: str, files: dict[int, str], depth: int) -> Node:
    """The document with its `extends:` base underneath; maps merge, everything else is replaced."""
    base_name = document.get("extends")
    if base_name is None:
        return document
    if not (base_name.is_scalar and base_name.text):
        raise SourceError(
            "`extends` takes the name of one file", path, base_name.span, "for example `extends: base.yaml`"
        )
    if depth >= MAX_EXTENDS:
        raise SourceError(f"`extends` goes deeper than {MAX_EXTENDS} files (a circle?)", path, base_name.span)
    base_path = Path(path).parent / base_name.text
    if not base_path.is_file():
        raise SourceError(
            f"the base file {base_name.text!r} does not exist", path, base_name.span, "name a file beside this one"
        )
    bases = parse(read_text(base_path), str(base_path))
    if len(bases) != 1:
        raise SourceError(f"the base file {base_name.text!r} must hold one document", path, base_name.span)
    base = _extend(bases[0], str(base_path), files, depth + 1)
    for node in base.walk():
        files.setdefault(id(node), str(base_path))
        node.span = _in_file(node.span, str(base_path))
        node.keys = {key: _in_file(span, str(base_path)) for key, span in node.keys.items()}
    return _merge(base, _without(document, "extends"))


def _in_file(span: Span, path: str) -> Span:
    return span if span.file or span.source else replace(span, file=path)


def _without(node: Node, key: str) -> Node:
    return replace(node, value={k: v for k, v in node.items() if k != key})


def _merge(base: Node, over: Node) -> Node:
    if not (base.is_map and over.is_map):
        return over
    value = dict(base.value)
    for key, node in over.items():
        value[key] = _merge(value[key], node) if key in value else node
    return Node(value, over.span, over.text, over.tag, {**base.keys, **over.keys})


def _override(root: Node, override: str) -> Node:
    """Apply one `--set a.b.0.c=value` and return the new value; list elements go by index or by their name."""
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise UserError(f"--set takes key=value, not {override!r}", fix="for example --set queues.train.count=8")
    values = parse(text, f"--set {override}")
    value = values[0] if values else Node(None, root.span)
    node, steps = root, key.strip().split(".")
    for step in steps[:-1]:
        node = _step(node, step, override)
    last = steps[-1]
    if node.is_list:
        node.value[_index(node, last, override)] = value
    elif node.is_map:
        node.value[last] = value
    else:
        raise UserError(f"--set {key}: {steps[-2]!r} is a plain value and has no {last!r}")
    return value


def _step(node: Node, step: str, override: str) -> Node:
    if node.is_list:
        element: Node = node.value[_index(node, step, override)]
        return element
    if not node.is_map:
        raise UserError(f"--set {override}: {step!r} is below a plain value")
    child = node.value.setdefault(step, Node({}, node.span))
    assert isinstance(child, Node)
    return child


def _index(node: Node, step: str, override: str) -> int:
    # At most nine digits: no list is longer, and Python refuses to read a number of thousands.
    if step.isascii() and step.isdecimal() and len(step) < 10 and int(step) < len(node.value):
        return int(step)
    names = [str(e.get("name").text) for e in node.elements() if e.get("name") is not None]  # type: ignore[union-attr]
    for index, element in enumerate(node.elements()):
        name = element.get("name")
        if name is not None and name.text == step:
            return index
    raise UserError(
        f"--set {override}: no element {step!r}", fix=did_you_mean(step, names) or f"there are: {', '.join(names)}"
    )
