"""Statements that allow every action on every resource, in policies that Terraform's configuration writes itself and
gives to the roles of EC2 instances."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check.model import Policy, Value
from trainwright.check.readers.hcl_source import Block
from trainwright.check.readers.terraform_roles import Roles, without_comments
from trainwright.spec.source import Span

_INNER = re.compile(r"\{[^{}]*\}")  # a statement with a condition holds other braces
_STAR = r'(?:"\*"|\[[^\]]*"\*"[^\]]*\])'
_ACTIONS = re.compile(rf'(?:^|[{{,])[ \t]*"?actions?"?\s*[=:]\s*(?P<star>{_STAR})', re.MULTILINE | re.IGNORECASE)
_RESOURCES = re.compile(rf'(?:^|[{{,])[ \t]*"?resources?"?\s*[=:]\s*{_STAR}', re.MULTILINE | re.IGNORECASE)
_EFFECT = re.compile(r'(?:^|[{,])[ \t]*"?effect"?\s*[=:]\s*"(?P<effect>\w+)"', re.MULTILINE | re.IGNORECASE)
_OPTIONAL = re.compile(r'^[ \t]*count[ \t]*=|^[ \t]*dynamic[ \t]+"statement"', re.MULTILINE)


_WRITTEN_IN = ("aws_iam_policy_document", "aws_iam_role", "aws_iam_role_policy", "aws_iam_policy")


def open_policies(blocks: list[Block], roles: Roles) -> list[Policy]:
    """Open statements of this file: of kind `inline` where their role is one of a cluster's nodes, and
    `inline-instance` where nothing shows that its instances are nodes of a cluster."""
    policies: list[Policy] = []
    for block in (without_comments(one) for one in blocks if one.labels and one.labels[0] in _WRITTEN_IN):
        spans = list(_open(block))
        given = roles.of_instances.intersection(roles.given(block)) if spans else set()
        sure = not _OPTIONAL.search(block.text) and not roles.of_clusters.isdisjoint(given)
        policies += [Policy(Value("*", span), "inline" if sure else "inline-instance") for span in spans if given]
    return policies


def _open(block: Block) -> Iterator[Span]:
    for inner in _INNER.finditer(block.text):
        actions, effect = _ACTIONS.search(inner[0]), _EFFECT.search(inner[0])
        allows = effect["effect"] == "Allow" if effect is not None else block.kind == "data"
        if actions is not None and allows and _RESOURCES.search(inner[0]):
            at = inner.start() + actions.start("star")
            lines = block.text.count("\n", 0, at)
            column = at - block.text.rfind("\n", 0, at) + (0 if lines else block.span.column - 1)
            line = block.span.line + lines
            yield Span(line, column, line, column + len(actions["star"].partition("\n")[0]))
