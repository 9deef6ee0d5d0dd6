"""The reference of the spec: every field with its type and default, read from the model by way of its JSON schema."""

from __future__ import annotations

from typing import Any

from trainwright.spec.renamed import SPEC
from trainwright.spec.schema import schema

# How a unit's examples in the schema tell which unit it is (see spec/units.py).
UNITS = {"15min": "time", "4.8TiB": "size", "4M": "count", "2k": "count"}
INTRODUCTION = """# Every field of the spec

Written from the model by `make docs`; `trainwright schema` prints the same as a JSON schema. [The spec](../spec.md)
shows a whole file and explains units, `extends` and `--set`. A field without a default may be left out unless it is
required; `trainwright plan --explain` prints what is filled in for it, and why."""


def spec_page() -> str:
    """The page: the top of a spec first, then each part in the order in which the fields name it."""
    document = schema()
    parts: dict[str, dict[str, Any]] = document["$defs"]
    sections = [INTRODUCTION, _section("Spec", {**document, "required": ["name", "platform", "queues"]}, [], parts)]
    used = _users(document, parts)
    sections += [_section(name, parts[name], used[name], parts) for name in used]
    return "\n\n".join([*sections, _former_words()]) + "\n"


def _users(document: dict[str, Any], parts: dict[str, dict[str, Any]]) -> dict[str, list[str]]:
    """Part -> the paths of the fields that hold it; parts in the order of their first use."""
    users: dict[str, list[str]] = {}

    def visit(path: str, part: dict[str, Any]) -> None:
        for name, field in part.get("properties", {}).items():
            for reference in _references(field):
                users.setdefault(reference, []).append(f"{path}{name}")
                visit(f"{path}{name}.", parts[reference])

    visit("", document)
    return users


def _references(field: dict[str, Any]) -> list[str]:
    own = [field["$ref"].rpartition("/")[2]] if "$ref" in field else []
    inner = _alternatives(field)
    inner += [field[key] for key in ("items", "additionalProperties") if isinstance(field.get(key), dict)]
    return own + [name for item in inner for name in _references(item)]


def _alternatives(field: dict[str, Any]) -> list[dict[str, Any]]:
    return [kind for key in ("anyOf", "allOf", "oneOf") for kind in field.get(key, ())]


def _section(name: str, part: dict[str, Any], users: list[str], parts: dict[str, dict[str, Any]]) -> str:
    title = "Top level" if name == "Spec" else ", ".join(f"`{path}`" for path in users)
    lines = [f"## {title} {{ #{_anchor(name)} }}", "", _cell(part.get("description", "")), ""]
    lines += ["| field | type | default | what it is |", "| --- | --- | --- | --- |"]
    for key, field in part["properties"].items():
        default = "**required**" if key in part.get("required", ()) else _default(field)
        # pydantic leaves a field's description out where the part that it holds says the same.
        texts = [field.get("description"), *(parts[other].get("description") for other in _references(field))]
        lines.append(f"| `{key}` | {_type(field)} | {default} | {_cell(next(filter(None, texts), ''))} |")
    return "\n".join(lines)


def _type(field: dict[str, Any]) -> str:
    """A field's type in the words of the page: a link where it is a part, the choices where it is one of several."""
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name.strip('_').removesuffix('Input').lower()}](#{_anchor(name)})"
    if unit := UNITS.get(next((str(example) for example in field.get("examples", ())), "")):
        return f"[{unit}](../spec.md#units)"
    if alternatives := _alternatives(field):
        kinds = [_type(kind) for kind in alternatives if kind.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if choices := field.get("enum") or ([field["const"]] if "const" in field else []):
        return ", ".join(f"`{choice}`" for choice in choices)
    if field.get("type") == "array":
        return f"list of {_type(field['items'])}"
    if field.get("type") == "object":
        return f"map of {_type(field['additionalProperties'])}"
    words = {"boolean": "true or false", "integer": "whole number"}
    return f"{words.get(field['type'], field['type'])}{_range(field)}"


def _range(field: dict[str, Any]) -> str:
    low, high, above = (field.get(key) for key in ("minimum", "maximum", "exclusiveMinimum"))
    if low is not None and high is not None:
        return f", {low} to {high}"
    return f", at least {low}" if low is not None else f", above {above}" if above is not None else ""


def _default(field: dict[str, Any]) -> str:
    default = field.get("default")
    if default in (None, [], {}, "") or isinstance(default, dict):
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _anchor(name: str) -> str:
    return f"part-{name.strip('_').removesuffix('Input').lower()}"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _former_words() -> str:
    """The words of earlier versions, which are still read."""
    lines = ["## Words of earlier versions", "", "Still accepted; `check` notes the word of today.", ""]
    lines += ["| where | earlier | now |", "| --- | --- | --- |"]
    for table in (SPEC.keys, SPEC.values):
        for place, words in table.items():
            lines += [f"| `{'.'.join(place)}` | `{old}` | `{new}` |" for old, new in words.items()]
    return "\n".join(lines)
