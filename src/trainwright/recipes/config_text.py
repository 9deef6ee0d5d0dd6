"""Configuration files of other trainers: built as data, written as TOML, JSON or YAML by the ending of their name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def nested(keys: Mapping[str, Any]) -> dict[str, Any]:
    """`training.steps: 5` as `{training: {steps: 5}}`."""
    tree: dict[str, Any] = {}
    for key, value in keys.items():
        *folders, name = key.split(".")
        place = tree
        for folder in folders:
            place = place.setdefault(folder, {})
        place[name] = {**place.get(name, {}), **value} if isinstance(value, Mapping) else value
    return tree


def config_text(name: str, keys: Mapping[str, Any]) -> str:
    """The text of a configuration file of that name."""
    tree = nested(keys)
    if name.endswith(".json"):
        return json.dumps(tree, indent=2) + "\n"
    if name.endswith(".toml"):
        return "\n".join(_tables(tree, ())).lstrip("\n") + "\n"
    import yaml

    text: str = yaml.safe_dump(tree, sort_keys=False, width=110)
    return text


def _tables(tree: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    """A table's own values first, as TOML wants it, then the tables in it."""
    lines = [f"{key} = {_scalar(value)}" for key, value in tree.items() if not isinstance(value, Mapping)]
    if path and lines:
        lines = ["", f"[{'.'.join(path)}]", *lines]
    for key, value in tree.items():
        if isinstance(value, Mapping):
            lines += _tables(value, (*path, key))
    return lines


def _scalar(value: Any) -> str:
    """TOML writes texts, numbers, switches and lists as JSON does."""
    return json.dumps(value)
