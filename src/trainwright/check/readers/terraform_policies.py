"""Managed policies of nodes' roles in Terraform -> model: attached by resources of their own, or listed by the role."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from trainwright.check.model import Policy, Value
from trainwright.check.readers.hcl_source import Block
from trainwright.check.readers.terraform_variables import named_value, texts_beside
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
_OF_NODES = re.compile(r"\bec2\.(amazonaws\.com|\$\{)")
_DOCUMENT = re.compile(r"data\.aws_iam_policy_document\.([\w-]+)")
_EKS_NODE = "AmazonEKSWorkerNodePolicy"


def node_policies(resources: list[Block], text: str, path: str) -> list[Policy]:
    """AWS's own policies that roles of EC2 instances are given; of kind `instance` where nothing shows that the
    instances are nodes of a cluster."""
    texts = [text, *texts_beside(path)]
    policies: list[Policy] = []
    for block in resources:
        attached = list(_attached(block, partial(named_value, path), text)) if _is_relevant(block) else []
        roles = [role for role in _roles(block) if is_of_instances(role, texts)] if attached else []
        if roles:
            sure = block.body.get("count") is None and any(is_of_cluster(role, texts) for role in roles)
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


def _attached(block: Block, named: partial[Node | None], text: str) -> Iterator[Value[str]]:
    for key in ("policy_arn", "policy_arns", "managed_policy_arns"):
        node = block.body.get(key)
        if node is not None and node.is_scalar and _EACH.match(node.text):
            node = block.body.get("for_each")
        over = _NAMED.match(node.text) if node is not None and node.is_scalar else None
        local = named(over[1]) if over is not None else None
        yield from _policies_in(local if local is not None else node, text) if node is not None else ()


def _policies_in(node: Node, text: str) -> Iterator[Value[str]]:
    """The policies that a value, a list, a map or an expression such as `toset([…])` names, at their lines."""
    lines = text.split("\n")
    for one in (scalar for scalar in node.walk() if scalar.is_scalar and "?" not in scalar.text):
        for match in _ARN.finditer(one.text):
            for number in range(one.span.line, min(len(lines), one.span.line + one.text.count("\n")) + 1):
                at = lines[number - 1].find(match["arn"])
                if at >= 0:
                    span = Span(number, at + 1, number, at + 1 + len(match["arn"]))
                    yield Value(f"arn:aws:iam::aws:policy/{match['name']}", span, match["arn"])
                    break


def _block_of(kind: str, name: str, texts: list[str]) -> str:
    pattern = re.compile(rf'^(?:resource|data)[ \t]+"{kind}"[ \t]+"{re.escape(name)}"[ \t]*\{{.*?^\}}', re.M | re.S)
    return next((match[0] for text in texts if (match := pattern.search(text)) is not None), "")


def is_of_instances(role: str, texts: list[str]) -> bool:
    """Whether instances of EC2 may assume the role."""
    written = _block_of("aws_iam_role", role, texts)
    documents = [_block_of("aws_iam_policy_document", name, texts) for name in _DOCUMENT.findall(written)]
    return any(_OF_NODES.search(part) for part in (written, *documents))


def is_of_cluster(role: str, texts: list[str]) -> bool:
    """Whether a node group names the role, or it has the policy that every node of EKS needs."""
    reference = rf"aws_iam_role\.{re.escape(role)}(\[[^\]]*\])?\."
    group = re.compile(rf"node_role_arn\s*=\s*{reference}arn")
    owner = re.compile(rf"\brole\s*=\s*\"?(\$\{{)?{reference}(name|id)")
    blocks = (part for text in texts for part in re.findall(r"^resource[^\n]*\{.*?^\}", text, re.M | re.S))
    own = [part for part in blocks if owner.search(part) or f'"aws_iam_role" "{role}"' in part]
    lists = [part for text in texts for part in re.findall(r"^locals[ \t]*\{.*?^\}", text, re.M | re.S)]
    listed = any(_EKS_NODE in part for part in lists) and any("local." in part and "for_each" in part for part in own)
    return listed or any(map(group.search, texts)) or any(_EKS_NODE in part for part in own)
