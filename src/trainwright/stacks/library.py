"""The CloudFormation templates of this folder, by name, with the parameters they take and the outputs they give, so
that a plan can only name those that exist."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from trainwright.errors import UserError, did_you_mean
from trainwright.spec.source import Node, parse

FOLDER = Path(__file__).with_name("templates")


@dataclass(frozen=True, slots=True)
class Template:
    """One template: its text as it is deployed, and what goes in and comes out."""

    name: str
    text: str
    description: str
    parameters: dict[str, str]  # name -> description
    required: frozenset[str]
    defaults: dict[str, str]  # of the parameters that have one
    outputs: dict[str, str]  # name -> description


def template_names() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


@cache
def template(name: str) -> Template:
    path = FOLDER / f"{name}.yaml"
    if not path.is_file():
        raise UserError(f"no stack template {name!r}", fix=did_you_mean(name, template_names()))
    text = path.read_text(encoding="utf-8")
    (root,) = parse(text, path.name)
    parameters = dict(_section(root, "Parameters"))
    required = frozenset(key for key, node in parameters.items() if node.get("Default") is None)
    return Template(
        name=name,
        text=text,
        description=_text(root, "Description"),
        parameters={key: _text(node, "Description") for key, node in parameters.items()},
        required=required,
        defaults={key: _text(node, "Default") for key, node in parameters.items() if key not in required},
        outputs={key: _text(node, "Description") for key, node in _section(root, "Outputs")},
    )


def _section(root: Node, key: str) -> list[tuple[str, Node]]:
    node = root.get(key)
    return list(node.items()) if node is not None else []


def _text(node: Node, key: str) -> str:
    child = node.get(key)
    return child.text if child is not None else ""
