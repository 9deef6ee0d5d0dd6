"""The data files beside the rules: limits, deny lists, patterns. Read once, when first needed."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from trainwright.catalog.instances import InstanceType, find_instance, instance_names
from trainwright.check.finding import Edit
from trainwright.check.model import File, Queue, Value

_FOLDER = Path(__file__).with_name("data")


@cache
def table(name: str) -> dict[str, Any]:
    """One data file, parsed."""
    import tomllib

    return tomllib.loads((_FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def machine(value: Value[str] | None) -> InstanceType | None:
    """The catalog's row for an instance type, where the file states one and the catalog has it."""
    return find_instance(value.value) if value is not None and value.known else None


def machines(queue: Queue) -> list[tuple[Value[str], InstanceType]]:
    """The instance types of a queue that the catalog knows."""
    pairs = ((value, machine(value)) for value in queue.instances)
    return [(value, type_) for value, type_ in pairs if type_ is not None]


def sizes_of(family: str) -> tuple[str, ...]:
    """The sizes of an instance family in the catalog; empty for an unknown family."""
    return tuple(name.partition(".")[2] for name in instance_names() if name.startswith(f"{family}."))


def edit_to(file: File, value: Value[Any], text: str) -> Edit:
    """The edit that replaces a value and keeps its quotes."""
    line = file.text.splitlines()[value.span.line - 1 : value.span.line]
    quote = line[0][value.span.column - 1 : value.span.column] if line else ""
    quote = quote if quote in ("'", '"') else ""
    return Edit(value.span, f"{quote}{text}{quote}")
