"""Terraform's language as it is written: what terraform itself takes is read, and what it refuses is named where the
mistake begins. Every text here was given to `terraform fmt`."""

from __future__ import annotations

import pytest

from trainwright.check.readers.hcl_source import parse_hcl
from trainwright.spec.source import SourceError


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ('format("kubernetes.io/cluster/%s", var.name)', 'format("kubernetes.io/cluster/%s", var.name)'),
        ("1", "1"),
        ("var.name", "var.name"),
        ('local.names["a"]', 'local.names["a"]'),
        ("(var.name)", "(var.name)"),
        ('"${var.name}-b"', "${var.name}-b"),
        ("größe", "größe"),
    ],
)
def test_a_key_of_a_map_is_any_expression(key: str, name: str) -> None:
    (block,) = parse_hcl(f'resource "a" "b" {{\n  tags = {{\n    {key} = "owned"\n    other = 2\n  }}\n}}\n', "a.tf")
    tags = block.body.get("tags")
    assert tags is not None
    assert list(tags.value) == [name, "other"]


@pytest.mark.parametrize(
    ("text", "line", "what", "fix"),
    [
        ('module "eks" {\n  a = {\n    b = 1\n  }\n', 1, "what begins in line 1 is not closed", "write the `}`"),
        ('a "b" {\n  c = [1,\n', 1, "what begins in line 1 is not closed", "write the `}`"),
        ('a "b" {\n  c = "x\n}\n', 2, "a text is not ended", "close the quote"),
        ('a "b" {\n  = 1\n}\n', 2, "a name is expected here", "see what `terraform validate` says"),
    ],
)
def test_a_mistake_is_named_where_it_begins(text: str, line: int, what: str, fix: str) -> None:
    with pytest.raises(SourceError) as caught:
        parse_hcl(text, "a.tf")
    assert caught.value.span.line == line
    assert str(caught.value).splitlines()[0].endswith(what)
    assert caught.value.fix.startswith(fix)
