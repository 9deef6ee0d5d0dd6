"""YAML that explains itself: plain data in which any value may carry the reason it is there, written as a comment
above it."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Any

import yaml

WIDTH = 118


@dataclass(frozen=True, slots=True)
class Why:
    """A value and the reason for it."""

    value: Any
    why: str


def plain(data: Any) -> Any:
    """The data without the reasons."""
    if isinstance(data, Why):
        return plain(data.value)
    if isinstance(data, dict):
        return {key: plain(value) for key, value in data.items()}
    if isinstance(data, list):
        return [plain(value) for value in data]
    return data


def to_yaml(data: dict[str, Any], header: str = "") -> str:
    """The data as YAML text, reasons as comments, a header on top."""
    lines = _comment(header, 0) + ([""] if header else []) + _map(data, 0)
    return "\n".join(lines) + "\n"


def _comment(text: str, indent: int) -> list[str]:
    pad = " " * indent + "# "
    lines: list[str] = []
    for paragraph in text.splitlines():
        lines += textwrap.wrap(paragraph, WIDTH - indent, initial_indent=pad, subsequent_indent=pad) or [pad.rstrip()]
    return lines


def _map(data: dict[str, Any], indent: int) -> list[str]:
    lines: list[str] = []
    for key, value in data.items():
        value, comment = _split(value, indent)
        lines += comment
        lines += _entry(f"{' ' * indent}{_scalar(key)}:", value, indent)
    return lines


def _list(data: list[Any], indent: int) -> list[str]:
    lines: list[str] = []
    for value in data:
        value, comment = _split(value, indent)
        lines += comment
        if isinstance(value, dict) and value:
            first, *rest = _map(value, indent + 2)
            while first.lstrip().startswith("#"):
                lines.append(" " * indent + first.lstrip())
                first, *rest = rest
            lines += [f"{' ' * indent}- {first.lstrip()}", *rest]
        else:
            lines += _entry(f"{' ' * indent}-", value, indent)
    return lines


def _split(value: Any, indent: int) -> tuple[Any, list[str]]:
    if isinstance(value, Why):
        return value.value, _comment(value.why[:1].upper() + value.why[1:], indent)
    return value, []


def _entry(start: str, value: Any, indent: int) -> list[str]:
    if isinstance(value, dict) and value:
        return [start, *_map(value, indent + 2)]
    if isinstance(value, list) and value:
        return [start, *_list(value, indent + 2)]
    return [f"{start} {_scalar(value)}"]


def _scalar(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")
