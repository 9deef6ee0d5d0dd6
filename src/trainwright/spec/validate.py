"""Pydantic's errors turned into mistakes with places: what is wrong, where in the file, and the key that was meant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticCustomError

from trainwright.errors import did_you_mean
from trainwright.spec.mistakes import Mistake, SpecError
from trainwright.spec.source import Node

M = TypeVar("M", bound=BaseModel)
Path_ = tuple[str | int, ...]
PLACED = "placed"


def misplaced(what: str, *path: str, fix: str = "") -> PydanticCustomError:
    """A mistake about the value at a path, found by a validator of the whole."""
    return PydanticCustomError(PLACED, "{what}", {"what": what, "path": path, "fix": fix})


def validated(model: type[M], node: Node, path: str, files: dict[int, str] | None = None) -> M:
    """The document as a model; a SpecError with every mistake when it does not fit. `files` maps nodes that came from
    another file (by id) to its name."""
    if not node.is_map:
        raise SpecError([Mistake(path, node.span, "the file is not a mapping of keys", "write `key: value` lines")])
    try:
        return model.model_validate(node.plain())
    except ValidationError as error:
        # An element that failed makes pydantic call its list too short: that is the same mistake told twice.
        told = [dict(item) for item in error.errors() if not _echo(dict(item))]
        mistakes = [_mistake(model, node, path, files or {}, item) for item in told]
        raise SpecError(sorted(mistakes, key=lambda m: (m.file, m.span.line, m.span.column))) from error


def _echo(error: dict[str, Any]) -> bool:
    return error["type"] == "too_short" and bool(error.get("input"))


def _mistake(model: type[BaseModel], root: Node, path: str, files: dict[int, str], error: dict[str, Any]) -> Mistake:
    location = _real_path(root, error["loc"])
    kind = error["type"]
    name = ".".join(str(step) for step in location) or "the spec"
    parent = root
    for step in location[:-1]:
        parent = parent.get(step) or parent
    file = files.get(id(root.get(*location) or parent), path)
    if kind == "extra_forbidden":
        key = str(location[-1])
        known = _fields_at(model, location[:-1])
        hint = did_you_mean(key, known)
        span = parent.key_span(key)
        return Mistake(file, span, f"unknown key {key!r}", hint or f"known keys here: {', '.join(known)}")
    if kind == PLACED:  # a check of several values together names the key that it is about
        at, text = tuple(error["ctx"]["path"]), str(error["msg"])
        keyed = (root.get(*at[:-1]) or root).keys.get(str(at[-1]))
        return Mistake(file, keyed or root.span_at(at), text, error["ctx"]["fix"])
    if kind == "missing":
        return Mistake(file, parent.span, f"{location[-1]!r} is missing", f"add `{location[-1]}:` here")
    if kind in ("model_type", "model_attributes_type"):
        return Mistake(
            file, root.span_at(location), f"{name}: {error['input']!r} does not fit here", _shape_at(model, location)
        )
    if kind in ("tuple_type", "list_type"):
        hint = "write each on a line that starts with `- `"
        return Mistake(file, root.span_at(location), f"{name}: a list belongs here", hint)
    if kind == "int_parsing":
        return Mistake(file, root.span_at(location), f"{name}: {error['input']!r} is not a whole number")
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
        child = node.get(step) if node is not None else None
        if child is None and not last:
            continue
        if child is None and node is not None and not node.is_map:
            continue
        path.append(step)
        node = child
    return tuple(path)


def _shape_at(top: type[BaseModel], path: Path_) -> str:
    """How a part is written: its field's own words where they show it, or else its keys."""
    names = [step for step in path if isinstance(step, str)]
    owner = _model_at(top, names[:-1])
    field = owner.model_fields.get(names[-1]) if owner is not None and names else None
    if field is not None and "{" in (field.description or ""):
        return str(field.description)
    return "write its keys, such as {" + ", ".join(f"{key}: …" for key in _fields_at(top, path)[:4]) + "}"


def _fields_at(top: type[BaseModel], path: Path_) -> list[str]:
    """The keys the model knows at a place of the file."""
    model = _model_at(top, [step for step in path if isinstance(step, str)])
    return [f.alias or name for name, f in model.model_fields.items()] if model is not None else []


def _model_at(top: type[BaseModel], names: Sequence[str]) -> type[BaseModel] | None:
    model: type[BaseModel] | None = top
    for name in names:
        field = model.model_fields.get(name) if model is not None else None
        model = _model_in(field.annotation) if field is not None else None
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in get_args(annotation):
        model = _model_in(argument)
        if model is not None:
            return model
    return None
