"""Statements that allow every action on every resource, in policies that Terraform's configuration writes itself and
gives to the roles of EC2 instances."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check.model import Policy, Value
from trainwright.check.readers.terraform_policies import is_of_cluster, is_of_instances
from trainwright.check.readers.terraform_variables import texts_beside
from trainwright.spec.source import Span

_BLOCK = re.compile(
    r'^(?P<kind>resource|data)[ \t]+"(?P<type>aws_iam_\w+)"[ \t]+"(?P<name>[\w-]+)"[ \t]*\{.*?^\}',
    re.MULTILINE | re.DOTALL,
)
_COMMENT = re.compile(r"^[ \t]*(?:#|//).*$", re.MULTILINE)
_INNER = re.compile(r"\{[^{}]*\}")  # a statement with a condition holds other braces
_STAR = r'(?:"\*"|\[[^\]]*"\*"[^\]]*\])'
_ACTIONS = re.compile(rf'(?:^|[{{,])[ \t]*"?actions?"?\s*[=:]\s*(?P<star>{_STAR})', re.MULTILINE | re.IGNORECASE)
_RESOURCES = re.compile(rf'(?:^|[{{,])[ \t]*"?resources?"?\s*[=:]\s*{_STAR}', re.MULTILINE | re.IGNORECASE)
_EFFECT = re.compile(r'(?:^|[{,])[ \t]*"?effect"?\s*[=:]\s*"(?P<effect>\w+)"', re.MULTILINE | re.IGNORECASE)
_ROLE = re.compile(r"^[ \t]*(?:role|roles|role_name)[ \t]*=[^\n]*?\baws_iam_role\.([\w-]+)", re.MULTILINE)
_OPTIONAL = re.compile(r'^[ \t]*count[ \t]*=|^[ \t]*dynamic[ \t]+"statement"', re.MULTILINE)


def open_policies(text: str, path: str) -> list[Policy]:
    """Open statements of this file: of kind `inline` where their role is one of a cluster's nodes, and
    `inline-instance` where nothing shows that its instances are nodes of a cluster."""
    own = [block for block in _blocks(text) if block["kind"] == "data" or block["type"] != "aws_iam_policy_document"]
    wide = [(block, spans) for block in own if (spans := list(_open(text, block)))]
    if not wide:
        return []
    texts = [text, *texts_beside(path)]
    every = [block for one in texts for block in _blocks(one)]
    policies: list[Policy] = []
    for block, spans in wide:
        roles = [role for role in _roles(block, every) if is_of_instances(role, texts)]
        sure = not _OPTIONAL.search(block[0]) and any(is_of_cluster(role, texts) for role in roles)
        policies += [Policy(Value("*", span), "inline" if sure else "inline-instance") for span in spans if roles]
    return policies


def _blocks(text: str) -> list[re.Match[str]]:
    return list(_BLOCK.finditer(_without_comments(text)))


def _without_comments(text: str) -> str:
    return _COMMENT.sub(lambda match: " " * len(match[0]), text)


def _open(text: str, block: re.Match[str]) -> Iterator[Span]:
    for inner in _INNER.finditer(block[0]):
        actions, effect = _ACTIONS.search(inner[0]), _EFFECT.search(inner[0])
        allows = effect["effect"] == "Allow" if effect is not None else block["kind"] == "data"
        if actions is not None and allows and _RESOURCES.search(inner[0]):
            at = block.start() + inner.start() + actions.start("star")
            start = text.rfind("\n", 0, at) + 1
            line = text.count("\n", 0, at) + 1
            yield Span(line, at - start + 1, line, at - start + 1 + len(actions["star"].partition("\n")[0]))


def _roles(block: re.Match[str], every: list[re.Match[str]]) -> Iterator[str]:
    """The roles that are given a policy: in its own block, by an attachment, or by what a document is written into."""
    if block["type"] == "aws_iam_role_policy":
        yield from _ROLE.findall(block[0])
    elif block["type"] == "aws_iam_role":
        yield block["name"]
    elif block["type"] == "aws_iam_policy":
        reference = re.compile(rf"\baws_iam_policy\.{re.escape(block['name'])}(?:\[[^\]]*\])?\.(?:arn|id)\b")
        for other in (one for one in every if reference.search(one[0])):
            yield from [other["name"]] if other["type"] == "aws_iam_role" else _ROLE.findall(other[0])
    elif block["type"] == "aws_iam_policy_document":
        name = re.escape(block["name"])
        given = rf"^[ \t]*policy[ \t]*=[ \t]*data\.aws_iam_policy_document\.{name}(?:\[[^\]]*\])?\.json"
        users = re.compile(given, re.MULTILINE)
        for other in (one for one in every if one["kind"] == "resource" and users.search(one[0])):
            yield from _roles(other, every)
