"""Slurm's own files: slurm.conf, gres.conf and topology.conf, as records of `Key=Value` pairs with their places."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check.model import File, SlurmRecord, Value
from trainwright.spec.source import Span

_NAME = re.compile(r"(?:[\w.-]*[._-])?(slurm|gres|topology)[\w.-]*\.conf$")
_CONTENT = {
    "slurm": re.compile(r"^\s*(ClusterName|NodeName|PartitionName|SlurmctldHost|ControlMachine)\s*=", re.M | re.I),
    "gres": re.compile(r"^\s*(NodeName=\S+\s+)?(Name|AutoDetect)\s*=", re.M | re.I),
    "topology": re.compile(r"^\s*(SwitchName|BlockName)\s*=", re.M | re.I),
}
_PAIR = re.compile(r"(?P<key>[A-Za-z][\w/]*)\s*=\s*(?P<value>\"[^\"]*\"|\S*)")
_RECORDS = ("nodename", "partitionname", "switchname", "blockname", "nodeset", "downnodes")
_RANGE = re.compile(r"\[([\d,\s-]+)\]")
_UNFILLED = re.compile(r"[$<>{}]|__\w+__|\b[A-Z]+_[A-Z_]+\b")  # a variable, or what somebody still has to fill in
MAX_HOSTS = 20_000


def kind_of(name: str, text: str) -> str | None:
    """`slurm`, `gres` or `topology`: by the file's name, and by what it holds."""
    match = _NAME.fullmatch(name.lower())
    return match[1] if match is not None and _CONTENT[match[1]].search(text) else None


def read(file: File) -> None:
    """Fill the file's records."""
    file.slurm += list(_records(file.text, file.format == "gres.conf"))


def _records(text: str, gres: bool) -> Iterator[SlurmRecord]:
    for number, lines in _logical_lines(text):
        values: dict[str, Value[str]] = {}
        for offset, line in enumerate(lines):
            for match in _PAIR.finditer(line):
                written = match["value"]
                start = match.start("value") + 1 + written.startswith('"')
                plain = written.strip('"')
                place = Span(number + offset, start, number + offset, start + len(plain))
                key = Span(number + offset, match.start() + 1, number + offset, match.end("key") + 1)
                known = _UNFILLED.search(plain) is None
                values.setdefault(match["key"].lower(), Value(plain, place, plain, key, known))
        first = lines[0].split()
        if first[:1] and first[0].lower() == "include":
            yield SlurmRecord("include", {})
        if not values:
            continue
        kind = next((name for name in _RECORDS if name in values), "")
        kind = "gres" if gres and "name" in values else kind
        if kind:
            yield SlurmRecord(kind, values)
        else:
            yield from (SlurmRecord("setting", {name: value}) for name, value in values.items())


def _logical_lines(text: str) -> Iterator[tuple[int, list[str]]]:
    """Lines without comments; one that ends in a backslash goes on."""
    held: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        code = re.sub(r"(^|\s)#.*", "", line).rstrip()
        held.append(code.rstrip("\\"))
        if code.endswith("\\"):
            continue
        if any(part.strip() for part in held):
            yield number - len(held) + 1, held
        held = []


def hosts(text: str) -> list[str] | None:
    """The names of a host list (`gpu[01-16],login`); None where it is no plain list."""
    names: list[str] = []
    for part in re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", text):
        expanded = _expanded(part.strip())
        if expanded is None or len(names) + len(expanded) > MAX_HOSTS:
            return None
        names += expanded
    return names


def _expanded(text: str) -> list[str] | None:
    match = _RANGE.search(text)
    if match is None:
        return [text] if text and "[" not in text and "$" not in text else None
    names: list[str] = []
    for one in match[1].replace(" ", "").split(","):
        low, _, high = one.partition("-")
        if not low.isdecimal() or (high and not high.isdecimal()) or int(high or low) - int(low) > MAX_HOSTS:
            return None
        for index in range(int(low), int(high or low) + 1):
            rest = _expanded(f"{text[: match.start()]}{index:0{len(low)}d}{text[match.end() :]}")
            if rest is None or len(names) > MAX_HOSTS:
                return None
            names += rest
    return names
