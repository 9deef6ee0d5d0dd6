"""Roles of Terraform's configuration: which of them instances of EC2 have, which a cluster's nodes, and who is given a
policy that the configuration writes itself."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

from trainwright.check.readers.hcl_source import Block
from trainwright.check.readers.terraform_variables import blocks_beside

_OF_NODES = re.compile(r"\bec2\.(amazonaws\.com|\$\{)")
_DOCUMENT = re.compile(r"data\.aws_iam_policy_document\.([\w-]+)")
_EKS_NODE = "AmazonEKSWorkerNodePolicy"
_ROLE = r"aws_iam_role\.([\w-]+)(?:\[[^\]]*\])?\."
_GROUP = re.compile(rf"node_role_arn\s*=\s*{_ROLE}arn")
_OWNER = re.compile(rf"\brole\s*=\s*\"?(?:\$\{{)?{_ROLE}(?:name|id)")
_GIVEN = re.compile(r"^[ \t]*(?:role|roles|role_name)[ \t]*=[^\n]*?\baws_iam_role\.([\w-]+)", re.MULTILINE)
_POLICY = re.compile(r"\baws_iam_policy\.([\w-]+)(?:\[[^\]]*\])?\.(?:arn|id)\b")
_WRITTEN = re.compile(
    r"^[ \t]*policy[ \t]*=[ \t]*data\.aws_iam_policy_document\.([\w-]+)(?:\[[^\]]*\])?\.json", re.MULTILINE
)
_COMMENT = re.compile(r"^[ \t]*(?:#|//).*$", re.MULTILINE)
_ABOUT_ROLES = re.compile(rf"aws_iam_|node_role_arn|{_EKS_NODE}")


class Roles:
    """What the blocks of a file and of those beside it say about roles; each is looked at once."""

    def __init__(self, own: list[Block], path: str) -> None:
        self._own, self._path = own, path

    @cached_property
    def blocks(self) -> list[Block]:
        return [without_comments(block) for block in (*self._own, *blocks_beside(self._path, _ABOUT_ROLES))]

    @cached_property
    def of_instances(self) -> frozenset[str]:
        """The roles that instances of EC2 may assume."""
        documents = {b.name for b in self.blocks if _is(b, "aws_iam_policy_document") and _OF_NODES.search(b.text)}
        return frozenset(
            block.name
            for block in self.blocks
            if _is(block, "aws_iam_role")
            and (_OF_NODES.search(block.text) or documents.intersection(_DOCUMENT.findall(block.text)))
        )

    @cached_property
    def of_clusters(self) -> frozenset[str]:
        """The roles that a node group names, or that have the policy that every node of EKS needs."""
        listed = any(block.kind == "locals" and _EKS_NODE in block.text for block in self.blocks)
        roles = {role for block in self.blocks for role in _GROUP.findall(block.text)}
        for block in (one for one in self.blocks if one.kind == "resource"):
            loops = listed and "local." in block.text and "for_each" in block.text
            if loops or _EKS_NODE in block.text:
                roles |= {*_OWNER.findall(block.text), *([block.name] if _is(block, "aws_iam_role") else [])}
        return frozenset(roles)

    def given(self, block: Block) -> Iterator[str]:
        """The roles that have a policy: in its own block, by an attachment, or by what a document is written into."""
        if _is(block, "aws_iam_role_policy"):
            yield from _GIVEN.findall(block.text)
        elif _is(block, "aws_iam_role"):
            yield block.name
        elif _is(block, "aws_iam_policy"):
            for other in self._users[_POLICY, block.name]:
                yield from [other.name] if _is(other, "aws_iam_role") else _GIVEN.findall(other.text)
        elif _is(block, "aws_iam_policy_document"):
            for other in self._users[_WRITTEN, block.name]:
                yield from self.given(other)

    @cached_property
    def _users(self) -> dict[tuple[re.Pattern[str], str], list[Block]]:
        """The resources that name a policy or a document."""
        users: dict[tuple[re.Pattern[str], str], list[Block]] = defaultdict(list)
        for block in self.blocks:
            if block.kind != "resource" or not any(label.startswith("aws_iam_") for label in block.labels[:1]):
                continue
            for reference in (_POLICY, _WRITTEN):
                for name in dict.fromkeys(reference.findall(block.text)):
                    users[reference, name].append(block)
        return users


def _is(block: Block, kind: str) -> bool:
    return len(block.labels) == 2 and block.labels[0] == kind


def without_comments(block: Block) -> Block:
    """The block with blanks in place of the lines that are comments."""
    return replace(block, text=_COMMENT.sub(lambda match: " " * len(match[0]), block.text))
