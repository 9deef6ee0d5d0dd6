"""Terraform's language as it is written: what terraform itself takes is read, and what it refuses is named where the
mistake begins. Every text here was given to `terraform fmt`."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwright.check.engine import check
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
        ("(lower(var.name))", "(lower(var.name))"),
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
        ('module "eks" {\n  a = {\n    b = 1\n  }\n', 1, "this `{` is not closed", "write the `}` that is missing"),
        ('a "b" {\n  c = [1,\n', 2, "this `[` is not closed", "write the `]` that is missing"),
        ('a "b" {\n  c = ["x"\n}\n', 2, "this `[` is not closed", "write the `]` that is missing"),
        ('a "b" {\n  c = f({\n    d = 1\n  }\n}\n', 2, "this `(` is not closed", "write the `)` that is missing"),
        ('a "b" {\n}\n}\n', 3, "a `}` that closes nothing", "remove it"),
        ('a "b" {\n  c = "x\n}\n', 2, "a text is not ended", "close the quote"),
        ('a "b" {\n  c = 1 + /* d\n}\n', 2, "a comment is not ended", "end it with"),
        ("a = <<EOT\nb\n", 1, "the text that EOT ends is not ended", "write EOT on a line of its own"),
        ('a "b" {\n  = 1\n}\n', 2, "a name is expected here", "see what `terraform validate` says"),
    ],
)
def test_a_mistake_is_named_where_it_begins(text: str, line: int, what: str, fix: str) -> None:
    with pytest.raises(SourceError) as caught:
        parse_hcl(text, "a.tf")
    assert caught.value.span.line == line
    assert str(caught.value).splitlines()[0].endswith(what)
    assert caught.value.fix.startswith(fix)


def test_a_script_inside_of_an_expression_is_a_text() -> None:
    script = "rm -rf /tmp/*\nsed 's/\"//' x\ncase $1 in\n  a*) echo } ;;\nesac"
    (block,) = parse_hcl(
        f'resource "a" "b" {{\n  user_data = base64encode(<<-EOF\n{script}\n  EOF\n  )\n  c = 1\n}}\n', "a.tf"
    )
    assert list(block.body.value) == ["user_data", "c"]


def test_what_this_reader_does_not_know_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "main.tf"
    path.write_text('resource "aws_eks_node_group" "gpu" {\n  instance_types = ["p5.48xlarge"]\n  = 1\n}\n')
    assert [one.level for one in check([str(path)]).findings] == ["warning"]
    assert [one.level for one in check([str(tmp_path)]).findings] == ["info"]
