"""Whatever is done to a file, reading and checking it gives findings or a clear error: never a traceback, never a rule
that failed. Every example of every rule is mutated, by a generator whose seed is in the name of a failing test."""

from __future__ import annotations

import copy
import random
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainwright.check.engine import run_rule
from trainwright.check.own_codes import CRASHED
from trainwright.check.readers.recognise import read_file
from trainwright.check.registry import all_rules
from trainwright.errors import UserError
from trainwright.spec.source import decode

EXAMPLES = Path(__file__).parents[2] / "src/trainwright/check/examples"
FILES = Path(__file__).parent / "files"
SEEDS = range(8)
EACH = 150  # mutated inputs a seed; the slow test makes up the ten thousand

SCALARS = (
    "",
    "null",
    "true",
    "-1",
    "0",
    "1e999",
    ".nan",
    "99999999999999999999999",
    "[]",
    "{}",
    "[[]]",
    "[{}]",
    "{a: {b: 1}}",
    "${VAR}",
    "<your-thing>",
    "PLACEHOLDER_X",
    "!Ref Nobody",
    "!GetAtt A.B",
    "!If [A, B, C]",
    "!Sub '${A}'",
    "'",
    '"',
    "&a 1",
    "*a",
    "2024-01-01",
    "12:30",
    "0x1F",
    "0777",
    "p5.48xlarge",
    "ml.p5.48xlarge",
    "subnet-1",
    "10.0.0.0/8",
    "999.1.1.1/99",
    "ünïcödé",
    "🙂",
    "\u202e",
    "\\",
    "%",
    "@",
    "`",
    "$(x)",
    "$((1/0))",
    "a" * 5000,
    "-",
    "--",
    "|",
    ">",
    "? x",
    "1.2TiB",
    "s3://",
    "arn:aws:",
    "cr-",
    "/",
    "//",
    "..",
    "[1, two, {three: 3}]",
)
VALUE = re.compile(r"(?<=[:=\s])[^\s,{}\[\]:=#]+(?=[\s,}\]]|$)")


@cache
def sources() -> tuple[tuple[str, str], ...]:
    """(name, text) of every example and every whole file."""
    paths = [p for root in (EXAMPLES, FILES) for p in sorted(root.rglob("*")) if p.is_file()]
    skipped = {".expect", ".toml", ".py", ".pyc", ".csv"}
    return tuple((p.name, p.read_text(encoding="utf-8")) for p in paths if p.suffix not in skipped)


def mutate(text: str, pick: random.Random) -> bytes:
    """The text after one to three accidents: to its letters and lines, or (so that it still parses) to its values."""
    accidents = ACCIDENTS if pick.random() < 0.4 else (_tree,)
    for _ in range(pick.randint(1, 3)):
        text = pick.choice(accidents)(text, pick)
    data = text.encode("utf-8", "surrogatepass") if pick.random() > 0.03 else text.encode("utf-16")
    if pick.random() < 0.03 and data:
        at = pick.randrange(len(data))
        data = data[:at] + pick.randbytes(3) + data[at:]
    return data


def _delete(text: str, pick: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    if lines:
        at = pick.randrange(len(lines))
        del lines[at : at + pick.randint(1, 4)]
    return "".join(lines)


def _duplicate(text: str, pick: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    if lines:
        lines.insert(pick.randrange(len(lines)), pick.choice(lines))
    return "".join(lines)


def _swap(text: str, pick: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    if len(lines) > 1:
        one, two = pick.sample(range(len(lines)), 2)
        lines[one], lines[two] = lines[two], lines[one]
    return "".join(lines)


def _indent(text: str, pick: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    if lines:
        at = pick.randrange(len(lines))
        lines[at] = "  " + lines[at] if pick.random() < 0.5 else lines[at].removeprefix("  ")
    return "".join(lines)


def _truncate(text: str, pick: random.Random) -> str:
    return text[: pick.randrange(len(text) + 1)]


def _scalar(text: str, pick: random.Random) -> str:
    values = list(VALUE.finditer(text))
    if not values:
        return text + pick.choice(SCALARS)
    spot = pick.choice(values)
    new = pick.choice(SCALARS) if pick.random() < 0.7 else pick.choice(values)[0]
    return text[: spot.start()] + new + text[spot.end() :]


def _insert(text: str, pick: random.Random) -> str:
    at = pick.randrange(len(text) + 1)
    return (
        text[:at]
        + pick.choice(("\t", "\x00", "\u2028", "🙂", "{", "]", ": ", "- ", "\n", "'", '"', "#", "\r", "$"))
        + text[at:]
    )


def _graft(text: str, pick: random.Random) -> str:
    """Lines of another example, of whatever format."""
    other = pick.choice(sources())[1].splitlines(keepends=True)
    at = pick.randrange(len(other)) if other else 0
    lines = text.splitlines(keepends=True)
    place = pick.randrange(len(lines) + 1)
    return "".join(lines[:place] + other[at : at + pick.randint(1, 6)] + lines[place:])


VALUES: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1.5, 10**30, float("inf")),
    *("", " ", "x", "${VAR}", "p5.48xlarge", "ünï 🙂", "1,2", "a:b:c", "NA"),
    *([], {}, [[]], [{}], [None], [1, "b", {}], {"": ""}),
    *({"Ref": "X"}, {"Ref": ["X"]}, {"Fn::GetAtt": []}, {"Fn::If": ["a"]}),
)


def _tree(text: str, pick: random.Random) -> str:
    """One value of a structured file replaced, removed, copied or put elsewhere."""
    try:
        documents = list(yaml.load_all(text, Loader=yaml.CSafeLoader))
    except (yaml.YAMLError, ValueError):
        return _scalar(text, pick)
    holders = [holder for document in documents for holder in _holders(document)]
    if not holders:
        return _scalar(text, pick)
    holder, other = pick.choice(holders), pick.choice(holders)
    key = pick.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    value = pick.choice(list(other.values()) if isinstance(other, dict) else other)
    choice = pick.random()
    if choice < 0.5:
        holder[key] = pick.choice(VALUES)
    elif choice < 0.7:
        del holder[key]
    elif isinstance(holder, list):
        holder.append(copy.deepcopy(value))
    else:
        holder[key] = copy.deepcopy(value)
    return yaml.dump_all(documents, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True)


def _holders(node: Any) -> list[Any]:
    """Every map and list that holds something."""
    if not isinstance(node, dict | list) or not node:
        return []
    children = node.values() if isinstance(node, dict) else node
    return [node, *(holder for child in children for holder in _holders(child))]


ACCIDENTS = (_delete, _duplicate, _swap, _indent, _truncate, _scalar, _scalar, _scalar, _scalar, _insert, _graft)


def check_bytes(name: str, data: bytes) -> list[str]:
    """The rules that failed; errors that a user can cause are fine."""
    try:
        file = read_file(name, decode(data, name))
    except UserError:
        return []
    if file is None:
        return []
    found = [finding for rule in all_rules() if rule.needs == "offline" for finding in run_rule(rule, file)]
    return [finding.message for finding in found if finding.code == CRASHED]


def run(seed: int, count: int) -> None:
    pick = random.Random(seed)
    for _ in range(count):
        name, text = pick.choice(sources())
        data = mutate(text, pick)
        try:
            crashed = check_bytes(name, data)
        except Exception as error:
            raise AssertionError(f"{name}: {error!r} on {data!r}") from error
        assert crashed == [], f"{name}: {data!r}"


@pytest.mark.parametrize("seed", SEEDS)
def test_mutated_inputs_never_crash(seed: int) -> None:
    run(seed, EACH)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 108))
def test_ten_thousand_mutated_inputs_never_crash(seed: int) -> None:
    run(seed, 1250)
