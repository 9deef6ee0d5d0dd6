"""Takes out the branches of a script that are not taken: `if [ -n "$IMAGE" ]` is decided where the script itself says
what IMAGE is, or never sets it. Lines stay where they are, so that every position still fits the file."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_IF = re.compile(r"^\s*if\s+(?P<condition>.*?)\s*;?\s*(?P<then>\bthen\b)?\s*(?:#.*)?$")
_TEST = re.compile(r"(?P<not>!\s+)?\[\[?\s+(?P<words>.*?)\s+\]\]?")
_NAME = re.compile(r"[\"']?\$(?:\{(\w+)(?::?-)?\}|(\w+))[\"']?(?:x|X)?")
_ASSIGNED = re.compile(r"^\s*(?:export\s+|declare\s+(?:-\w+\s+)?|:\s+\"?\$\{)?([A-Za-z_]\w*)(:?=)(.*)$")
HYPERPOD = "/opt/sagemaker_cluster"


@dataclass(slots=True)
class _Block:
    start: int
    branch: int = -1  # where `else` stands
    condition: str = ""
    plain: bool = True  # no elif


@dataclass(slots=True)
class Folded:
    """The script without the branches that are not taken, and what was decided, by line."""

    text: str
    decided: list[tuple[int, str]] = field(default_factory=list)


def fold(text: str) -> Folded:
    """A script with every decidable `if` replaced by the branch that runs."""
    lines = text.split("\n")
    folded = Folded(text)
    open_blocks: list[_Block] = []
    for number, line in enumerate(lines):
        match = _IF.match(line)
        word = line.strip().split(" ")[0].rstrip(";") if line.strip() else ""
        if match is not None and not re.search(r"\bfi\b", line):
            open_blocks.append(_Block(number, condition=match["condition"]))
        elif word == "elif" and open_blocks:
            open_blocks[-1].plain = False
        elif word == "else" and open_blocks:
            open_blocks[-1].branch = number
        elif word == "fi" and open_blocks:
            _close(lines, open_blocks.pop(), number, folded)
    folded.text = "\n".join(lines)
    return folded


def _close(lines: list[str], block: _Block, end: int, folded: Folded) -> None:
    taken = _decided(block.condition, lines[: block.start]) if block.plain else None
    if taken is None or lines[end].strip() not in ("fi", "fi;"):
        return
    first = block.start + 1
    if "then" not in lines[block.start].split():
        first += next((i for i, line in enumerate(lines[first:end]) if line.strip() == "then"), 0) + 1
    middle = block.branch if block.branch >= 0 else end
    kept = range(first, middle) if taken else range(middle + 1, end)
    for number in range(block.start, end + 1):
        if number not in kept:
            lines[number] = ""
    folded.decided.append((block.start + 1, f"{block.condition}: {'true' if taken else 'false'}"))


def _decided(condition: str, before: list[str]) -> bool | None:
    """Whether a condition holds; None where only the cluster can tell."""
    match = _TEST.fullmatch(condition.strip())
    if match is None:
        return None
    words = match["words"].split()
    negated = bool(match["not"])
    while words and words[0] == "!":
        negated, words = not negated, words[1:]
    if len(words) == 2 and words[0] in ("-d", "-f", "-e") and words[1].strip("\"'") == HYPERPOD:
        return negated  # platform hyperpod adds what this branch does
    answer = _compared(words, before)
    return None if answer is None else answer != negated


def _compared(words: list[str], before: list[str]) -> bool | None:
    if len(words) == 2 and words[0] in ("-z", "-n"):
        value = _value(words[1], before)
        return None if value is None else bool(value) == (words[0] == "-n")
    if len(words) == 3 and words[1] in ("=", "==", "!="):
        left, right = _value(words[0], before), _value(words[2], before)
        return None if left is None or right is None else (left == right) == (words[1] != "!=")
    return None


def _value(word: str, before: list[str]) -> str | None:
    """A constant, or what a variable holds here: "" where the script never sets it, None where that is open."""
    match = _NAME.fullmatch(word)
    if match is None:
        return word.strip("\"'") if "$" not in word and "`" not in word else None
    name = match[1] or match[2]
    if name.startswith("SLURM_"):
        return "set by Slurm"
    if name.isdecimal():
        return ""  # the script is submitted without arguments
    value: str | None = ""
    for line in before:
        assignment = _ASSIGNED.match(line)
        if assignment is not None and assignment[1] == name:
            text = re.sub(r"\s+#.*$", "", assignment[3]).strip().rstrip('"').removesuffix("}").strip("\"'")
            value = text if "$" not in text and "`" not in text else (None if not text.strip("${}") else f"({text})")
    return value
