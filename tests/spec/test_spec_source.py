"""Located YAML: positions survive, hostile input gets an error with a place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainwright.spec.source import MAX_BYTES, SourceError, Span, parse, read_text


def test_every_key_and_value_has_its_place() -> None:
    root = parse("a: 1\nlist:\n  - {x: yes, y: 'q'}\n", "f.yaml")[0]
    assert root.get("a").span == Span(1, 4, 1, 5)  # type: ignore[union-attr]
    assert root.key_span("list") == Span(2, 1, 2, 5)
    inner = root.get("list", 0)
    assert inner is not None
    assert inner.key_span("y") == Span(3, 14, 3, 15)
    assert inner.get("y").span == Span(3, 17, 3, 20)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("50_000", 50000), ("1e-4", 1e-4), ("4.8TiB", "4.8TiB"), ("12:30", "12:30"), ("0755", 0o755), ("yes", True),
        ("1.30", 1.30), ("~", None), ("'8'", "8"), ("0x10", 16), ("08", "08"), (".inf", float("inf")),
    ],
)  # fmt: skip
def test_scalars_are_what_people_mean(text: str, value: object) -> None:
    assert parse(f"a: {text}", "f")[0].plain() == {"a": value}


def test_placeholders_parse_inside_flow_lists() -> None:
    root = parse("subnets: [${A}, ${B_2}]\nx: {k: ${C}}\n", "f")[0]
    assert root.plain() == {"subnets": ["${A}", "${B_2}"], "x": {"k": "${C}"}}
    assert root.get("subnets", 1).span.column == 17  # type: ignore[union-attr]


def test_merge_keys_and_aliases() -> None:
    root = parse("base: &b {x: 1, y: 2}\nover:\n  <<: *b\n  y: 3\n", "f")[0]
    assert root.get("over").plain() == {"x": 1, "y": 3}  # type: ignore[union-attr]


def test_json_with_tabs() -> None:
    assert parse('{\n\t"a": [1, 2]\n}', "f.json")[0].plain() == {"a": [1, 2]}


BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 10)}]\n" for i in range(8)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", "written twice (first on line 1)"),
        (BOMB, "alias bomb"),
        ("a: &a [*a]", "refers to itself"),
        ("[" * 100_000, "nests deeper"),
        ("a: [1, 2", "not valid YAML"),
        ("? [a, b]\n: c\n", "a key must be plain text"),
        ("a:\n\t- b\n", "not valid YAML"),
    ],
)
def test_hostile_text_is_an_error_with_a_place(text: str, message: str) -> None:
    with pytest.raises(SourceError) as caught:
        parse(text, "f.yaml")
    assert message in caught.value.what
    assert caught.value.where.startswith("f.yaml:")


def test_duplicate_key_points_at_the_second(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        parse("a: 1\nb:\n  c: 1\n  c: 2\n", "f.yaml")
    assert caught.value.span == Span(4, 3, 4, 4)


def test_unreadable_files(tmp_path: Path) -> None:
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"name: x\nwhat: caf\xe9\n")
    with pytest.raises(SourceError, match="not UTF-8") as caught:
        read_text(latin)
    assert caught.value.span == Span(2, 10, 2, 11)
    huge = tmp_path / "huge.yaml"
    huge.write_bytes(b" " * (MAX_BYTES + 1))
    with pytest.raises(SourceError, match="MiB"):
        read_text(huge)
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"a\x00b")
    with pytest.raises(SourceError, match="NUL"):
        read_text(binary)
    with pytest.raises(SourceError, match="No such file"):
        read_text(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'{"a": "\ud83d\ude00!", "b": 1}', "😀!"),
        (r'{"a": "\uD83D\uDE00\uD83D\uDE00", "b": 1}', "😀😀"),
        (r'{"a": "\\uD83D\\uDE00", "b": 1}', r"\uD83D\uDE00"),
        (r'{"a": "\\\ud83d\ude00", "b": 1}', "\\😀"),
        (r'{"a": "\uDBFF\uDFFF \ud800\udc00", "b": 1}', "\U0010ffff \U00010000"),
        (r'{"a": "\u00e9\uFFFD", "b": 1}', "é\ufffd"),
    ],
)
def test_json_writes_large_characters_as_two_escapes(text: str, value: str) -> None:
    (root,) = parse(text, "x.json")
    assert root.plain() == json.loads(text) == {"a": value, "b": 1}
    assert root.keys["b"].column == text.index('"b"') + 1, "columns are those of the file"


def test_a_key_may_be_such_a_character_too() -> None:
    (root,) = parse(r'{"\ud83d\ude00": {"x": ${COUNT}}}', "x.json")
    assert root.plain() == {"😀": {"x": "${COUNT}"}}


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ('{\n  "a": "b \\ud83d"}', 2, 11),
        (r'{"a": "\ude00\ud83d"}', 1, 8),
        (r'{"a": "\ud83dx\ude00"}', 1, 8),
        (r'["\\\ud83d"]', 1, 5),
    ],
)
def test_half_a_character_is_reported_at_its_position(text: str, line: int, column: int) -> None:
    with pytest.raises(SourceError, match="half a character") as caught:
        parse(text, "x.json")
    assert (caught.value.span.line, caught.value.span.column) == (line, column)
    assert "both halves" in caught.value.fix
