"""Managed policies of nodes' roles in Terraform -> model: attached by resources of their own, or listed by the role."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from trainwright.check.model import Policy, Value
from trainwright.check.readers.hcl_source import Block
from trainwright.check.readers.terraform_roles import Roles
from trainwright.spec.source import Node, Span

_ROLE = re.compile(r"^(?:\$\{)?aws_iam_role\.([\w-]+)(?:\[[^\]]*\])?\.(?:name|id|arn)\}?$")
_ARN = re.compile(
    r"(?:^\$?\{?\"?|\")(?P<arn>(?:arn:[^\"\s]*?iam::aws:policy|\$\{[^}\s]*\})/(?:[\w-]+/)*(?P<name>\w+))(?=\"|\"?\}?$)"
)
_NAMED = re.compile(r"^\$\{(?:toset\()?(local\.[\w-]+)\)?\}$")
_EACH = re.compile(r"^\$\{each\.(?:value|key)\}$")
_ATTACHMENTS = (
    "aws_iam_role_policy_attachment",
    "aws_iam_policy_attachment",
    "aws_iam_role_policy_attachments_exclusive",
)


def node_policies(
    resources: list[Block], roles: Roles, named: Callable[[str], Node | None], lines: list[str]
) -> list[Policy]:
    """AWS's own policies that roles of EC2 instances are given; of kind `instance` where nothing shows that the
    instances are nodes of a cluster."""
    policies: list[Policy] = []
    for block in resources:
        attached = list(_attached(block, named, lines)) if _is_relevant(block) else []
        given = roles.of_instances.intersection(_roles(block)) if attached else set()
        if given:
            sure = block.body.get("count") is None and not roles.of_clusters.isdisjoint(given)
            policies += [Policy(one, "managed" if sure else "instance") for one in attached]
    return policies


def _is_relevant(block: Block) -> bool:
    return block.labels[0] in _ATTACHMENTS or (
        block.labels[0] == "aws_iam_role" and block.body.get("managed_policy_arns") is not None
    )


def _roles(block: Block) -> list[str]:
    """The roles of the resource, by the names that the configuration gives them."""
    if block.labels[0] == "aws_iam_role":
        return [block.name]
    nodes = [block.body.get(key) for key in ("role", "role_name", "roles")]
    texts = [one.text for node in nodes if node is not None for one in (node.elements() if node.is_list else [node])]
    matches = (_ROLE.match(text.replace('${"', "").replace('"}', "")) for text in texts)
    return [match[1] for match in matches if match is not None]


def _attached(block: Block, named: Callable[[str], Node | None], lines: list[str]) -> Iterator[Value[str]]:
    for key in ("policy_arn", "policy_arns", "managed_policy_arns"):
        node = block.body.get(key)
        if node is not None and node.is_scalar and _EACH.match(node.text):
            node = block.body.get("for_each")
        over = _NAMED.match(node.text) if node is not None and node.is_scalar else None
        local = named(over[1]) if over is not None else None
        yield from _policies_in(local if local is not None else node, lines) if node is not None else ()


def _policies_in(node: Node, lines: list[str]) -> Iterator[Value[str]]:
    """The policies that a value, a list, a map or an expression such as `toset([…])` names, at their lines."""
    for one in (scalar for scalar in node.walk() if scalar.is_scalar and "?" not in scalar.text):
        for match in _ARN.finditer(one.text):
            for number in range(one.span.line, min(len(lines), one.span.line + one.text.count("\n")) + 1):
                at = lines[number - 1].find(match["arn"])
                if at >= 0:
                    span = Span(number, at + 1, number, at + 1 + len(match["arn"]))
                    yield Value(f"arn:aws:iam::aws:policy/{match['name']}", span, match["arn"])
                    break
