"""The CloudFormation templates of this folder, by name, with the parameters they take and the outputs they give, so
that a plan can only name those that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from trainwright.errors import UserError, did_you_mean
from trainwright.spec.source import Node, parse

FOLDER = Path(__file__).with_name("templates")
# CloudFormation puts the tags of a stack on what the stack makes, and not on the machines that a launch template starts
# later. A template marks with this line each list of tags of such machines, their volumes and network interfaces.
TAGS_FOLLOW = re.compile(r"^( *)# The cluster's tags follow\.\n", re.MULTILINE)
OWN_KEY = re.compile(r'Key: "?([^",}\n]+)')


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

    def tagged(self, tags: Mapping[str, str]) -> str:
        """The text with the tags of a cluster on its machines. A key that the template gives itself stays its own:
        EC2 refuses a key that is there twice."""
        own = set(OWN_KEY.findall(self.text))
        rows = [f"- {{Key: {_quoted(k)}, Value: {_quoted(v)}}}\n" for k, v in tags.items() if k not in own]
        return TAGS_FOLLOW.sub(lambda line: "".join(line[1] + row for row in rows), self.text)


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


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _section(root: Node, key: str) -> list[tuple[str, Node]]:
    node = root.get(key)
    return list(node.items()) if node is not None else []


def _text(node: Node, key: str) -> str:
    child = node.get(key)
    return child.text if child is not None else ""
