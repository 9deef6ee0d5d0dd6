"""The starter specs: the files of examples/, in the repository or inside an installed package, each with a header that
says what it is for, what it costs and what to change."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import trainwright
from trainwright.errors import UserError, did_you_mean

SCHEMA_FILE = "trainwright.schema.json"
_PACKAGE = Path(trainwright.__file__).parent


@dataclass(frozen=True, slots=True)
class Starter:
    """One starter spec."""

    name: str
    text: str
    purpose: str
    cost: str
    change: str


def folder() -> Path:
    """Where the starters lie: packaged beside the code, or in a checkout at examples/."""
    packaged = _PACKAGE / "starters"
    return packaged if packaged.is_dir() else _PACKAGE.parents[1] / "examples"


def starters() -> tuple[Starter, ...]:
    return tuple(_read(path) for path in sorted(folder().glob("*.yaml")))


def starter(name: str) -> Starter:
    path = folder() / f"{name}.yaml"
    names = [p.stem for p in folder().glob("*.yaml")]
    if name not in names:
        raise UserError(f"no starter spec {name!r}", fix=did_you_mean(name, names) or "`trainwright init` lists them")
    return _read(path)


def renamed(text: str, name: str) -> str:
    """The spec with another cluster name."""
    return re.sub(r"(?m)^name: .*$", f"name: {name}", text, count=1)


def _read(path: Path) -> Starter:
    text = path.read_text(encoding="utf-8")
    lines = [line.removeprefix("#").strip() for line in text.splitlines() if line.startswith("#")][1:]
    header = " ".join(lines)
    match = re.fullmatch(r"(?P<purpose>.*?) Cost: (?P<cost>.*?) Change: (?P<change>.*)", header)
    if match is None:
        raise ValueError(f"{path}: the header lacks `Cost:` or `Change:`")
    return Starter(path.stem, text, match["purpose"], match["cost"].rstrip("."), match["change"])
