"""CFN, TFM: user data that EC2 refuses because it is plain text."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from trainwright.check.beside import text_beside
from trainwright.check.model import File
from trainwright.check.readers.cfn_template import Resource, Template, intrinsic
from trainwright.check.registry import Problem, problem
from trainwright.spec.source import Node

# Where EC2 takes user data in base64 only.
_PATHS = {
    "AWS::EC2::LaunchTemplate": ("LaunchTemplateData", "UserData"),
    "AWS::EC2::Instance": ("UserData",),
    "AWS::AutoScaling::LaunchConfiguration": ("UserData",),
}
# What user data begins with; in base64 it has neither.
_PLAIN = re.compile(r"\s*(#!|#cloud-|<powershell>|<script>|MIME-Version:|Content-Type: multipart|\[settings)")
# Expressions of Terraform whose value is the text itself.
_UNENCODED = re.compile(r"\$\{(templatefile\(|data\.template_file\.[\w.\[\]]+\.rendered\}$)")
_FILE = re.compile(r'\$\{file\("(?:\$\{path\.module\}/|\./)?([\w./-]+)"\)\}$')
WHY = "EC2 decodes user data as base64, and refuses the rest with `Invalid BASE64 encoding of user data`."


def _encoded(file: File) -> str:
    if file.text.lstrip().startswith("{"):
        return 'write {"Fn::Base64": …} around it'
    return "put it below a key `Fn::Base64:` of its own, on the line below UserData"


def plain_user_data(file: File, template: Template) -> Iterator[Problem]:
    """User data of instances and launch templates without Fn::Base64."""
    for resource in template.resources.values():
        for text in _texts(_user_data(resource)):
            if _PLAIN.match(text.text):
                yield problem(
                    text,
                    f"{resource.id}: the user data is plain text, and EC2 takes base64: it refuses it",
                    _encoded(file),
                    why=WHY,
                )
                break


def _user_data(resource: Resource) -> Node | None:
    path = _PATHS.get(resource.type)
    return resource.get(*path) if path is not None else None


def _texts(node: Node | None) -> Iterator[Node]:
    """The texts with which the user data may begin."""
    call = intrinsic(node) if node is not None else None
    if node is None or (call is not None and call[0] in ("Base64", "Ref", "GetAtt", "ImportValue", "Transform")):
        return
    if node.is_scalar:
        yield node
    elif call is not None and isinstance(call[1], list):
        # Sub: the text comes first; Join: in the list behind the separator; If: in both branches.
        parts = call[1][:1] if call[0] == "Sub" else call[1][1:]
        for part in parts:
            first = next(iter(part.elements()), None) if call[0] == "Join" and part.is_list else part
            yield from _texts(first)
    elif call is not None and isinstance(call[1], str) and node.is_map:
        yield from _texts(next(iter(node.value.values())))


def plain_launch_templates(file: File) -> Iterator[Problem]:
    """User data of Terraform's launch templates, which the provider does not encode as it does that of an instance."""
    for template in file.launch_templates:
        data = template.user_data
        below = file.lines[data.span.line] if data is not None and data.span.line < len(file.lines) else ""
        heredoc = data is not None and data.text == "${heredoc}" and _PLAIN.match(below) is not None
        said = data is not None and (_UNENCODED.match(data.text) or _PLAIN.match(data.text))
        if data is not None and (heredoc or said or _PLAIN.match(_text_of_file(file, data.text))):
            yield problem(
                data,
                f"{template.name}: the user data is plain text, and EC2 takes base64: it refuses it",
                "write base64encode(…) around it",
                why=WHY,
            )


def _text_of_file(file: File, value: str) -> str:
    """The text of the file beside the configuration that `file("…")` takes as it is."""
    match = _FILE.match(value) if file.path != "<stdin>" else None
    folder = os.path.dirname(os.path.abspath(file.path))
    return (text_beside(file.path, match[1], [folder]) or "") if match is not None else ""
