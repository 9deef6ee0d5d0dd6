"""From a file to a `Spec`: several documents a file, `extends:` for a base file, `--set key=value` overrides. Every
mistake carries the place it was made at, all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from trainwright.errors import UserError, did_you_mean
from trainwright.spec.mistakes import Mistake, SpecError
from trainwright.spec.model import Spec
from trainwright.spec.source import Node, SourceError, Span, parse, read_text

MAX_EXTENDS = 8
Path_ = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class LoadedSpec:
    """A spec, the file it came from and the positions of everything in it."""

    spec: Spec
    path: str
    node: Node
    files: dict[int, str]  # id(node) -> file, for nodes that a base file brought in

    def span(self, *path: str | int) -> Span:
        return self.node.span_at(path)

    def where(self, *path: str | int) -> str:
        span = self.span(*path)
        return f"{self.path}:{span.line}:{span.column}"


def load(path: str | Path, overrides: Sequence[str] = ()) -> LoadedSpec:
    """The one spec of a file; a file with several documents needs `load_all`."""
    specs = load_all(path, overrides)
    if len(specs) != 1:
        names = ", ".join(s.spec.name for s in specs)
        raise UserError(f"the file holds {len(specs)} specs ({names})", where=str(path), fix="name a file with one")
    return specs[0]


def load_all(path: str | Path, overrides: Sequence[str] = ()) -> list[LoadedSpec]:
    """Every spec of a file."""
    documents = parse(read_text(Path(path)), str(path))
    if not documents:
        raise SourceError("the file is empty", str(path), fix="`trainwright init` writes a starter spec")
    return [load_node(document, str(path), overrides) for document in documents]


def load_node(document: Node, path: str, overrides: Sequence[str] = ()) -> LoadedSpec:
    """A spec from a parsed document: base files merged in, overrides applied, shape validated."""
    files: dict[int, str] = {}
    merged = _extend(document, path, files, 0)
    for override in overrides:
        for node in _override(merged, override).walk():
            files[id(node)] = f"--set {override}"
    mistakes = _validate(merged, path, files)
    if isinstance(mistakes, Spec):
        return LoadedSpec(mistakes, path, merged, files)
    raise SpecError(mistakes)


def _extend(document: Node, path: str, files: dict[int, str], depth: int) -> Node:
    """The document with its `extends:` base underneath; maps merge, everything else is replaced."""
    base_name = document.get("extends")
    if base_name is None:
        return document
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
    return _merge(base, _without(document, "extends"))


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
        found: Node = node.value[_index(node, step, override)]
        return found
    if not node.is_map:
        raise UserError(f"--set {override}: {step!r} is below a plain value")
    child = node.value.setdefault(step, Node({}, node.span))
    assert isinstance(child, Node)
    return child


def _index(node: Node, step: str, override: str) -> int:
    if step.isdigit() and int(step) < len(node.value):
        return int(step)
    names = [str(e.get("name").text) for e in node.elements() if e.get("name") is not None]  # type: ignore[union-attr]
    for index, element in enumerate(node.elements()):
        name = element.get("name")
        if name is not None and name.text == step:
            return index
    raise UserError(
        f"--set {override}: no element {step!r}", fix=did_you_mean(step, names) or f"there are: {', '.join(names)}"
    )


def _validate(node: Node, path: str, files: dict[int, str]) -> Spec | list[Mistake]:
    if not node.is_map:
        return [Mistake(path, node.span, "a spec is a mapping of keys", "start with `name:` and `platform:`")]
    try:
        return Spec.model_validate(node.plain())
    except ValidationError as error:
        # An element that failed makes pydantic call its list too short: that is the same mistake told twice.
        told = [dict(item) for item in error.errors() if not _echo(dict(item))]
        mistakes = [_mistake(node, path, files, item) for item in told]
        return sorted(mistakes, key=lambda m: (m.file, m.span.line, m.span.column))


def _echo(error: dict[str, Any]) -> bool:
    return error["type"] == "too_short" and bool(error.get("input"))


def _mistake(root: Node, path: str, files: dict[int, str], error: dict[str, Any]) -> Mistake:
    location = _real_path(root, error["loc"])
    kind = error["type"]
    name = ".".join(str(step) for step in location) or "the spec"
    parent = root
    for step in location[:-1]:
        parent = parent.get(step) or parent
    file = files.get(id(root.get(*location) or parent), path)
    if kind == "extra_forbidden":
        key = str(location[-1])
        known = _fields_at(location[:-1])
        hint = did_you_mean(key, known)
        span = parent.key_span(key)
        return Mistake(file, span, f"unknown key {key!r}", hint or f"known keys here: {', '.join(known)}")
    if kind == "missing":
        return Mistake(file, parent.span, f"{location[-1]!r} is missing", f"add `{location[-1]}:` here")
    message = str(error["msg"]).removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    return Mistake(file, root.span_at(location), f"{name}: {message}", _fix_for(kind, error))


def _fix_for(kind: str, error: dict[str, Any]) -> str:
    if kind == "literal_error":
        expected = str(error.get("ctx", {}).get("expected", ""))
        words = [w.strip("' ") for w in expected.replace(" or ", ", ").split(",")]
        return did_you_mean(str(error.get("input", "")), words)
    return ""


def _real_path(root: Node, loc: Sequence[str | int]) -> Path_:
    """Pydantic's location without the names of union branches and validators, which are no keys of the file."""
    path: list[str | int] = []
    node: Node | None = root
    for position, step in enumerate(loc):
        last = position == len(loc) - 1
        found = node.get(step) if node is not None else None
        if found is None and not last:
            continue
        if found is None and node is not None and not node.is_map:
            continue
        path.append(step)
        node = found
    return tuple(path)


def _fields_at(path: Path_) -> list[str]:
    """The keys the model knows at a place of the spec."""
    model: Any = Spec
    for step in path:
        if isinstance(step, int):
            continue
        field = model.model_fields.get(step) if model is not None else None
        model = _model_in(field.annotation) if field is not None else None
    return [f.alias or name for name, f in model.model_fields.items()] if model is not None else []


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in get_args(annotation):
        found = _model_in(argument)
        if found is not None:
            return found
    return None
