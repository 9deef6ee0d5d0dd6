"""Reads the catalog's data files: shipped ones beside this module, newer ones that `trainwright catalog update` wrote
for this user. Every file opens with `# key: value` lines that name its source and date."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from trainwright.errors import UserError
from trainwright.files import write_whole

SHIPPED = Path(__file__).with_name("data")

P = ParamSpec("P")
R = TypeVar("R")
_clear_functions: list[Callable[[], None]] = []


def cached(look_up: Callable[P, R]) -> Callable[P, R]:
    """functools.cache that `clear_caches()` can empty, for look-ups that read a file `catalog update` may replace."""
    function = cache(look_up)
    _clear_functions.append(function.cache_clear)
    return function  # type: ignore[return-value]  # a cached function keeps its signature; functools does not say so


def clear_caches() -> None:
    """Drop everything that was read, so that the next look-up sees files that changed underneath."""
    for clear in _clear_functions:
        clear()


@dataclass(frozen=True, slots=True)
class Table:
    """One CSV file: its notes (source, date ...), its column names and its rows as text."""

    notes: dict[str, str]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def records(self) -> Iterator[dict[str, str]]:
        for row in self.rows:
            yield dict(zip(self.columns, row, strict=True))


def overlay_folder() -> Path:
    """Where `catalog update` keeps what it fetched; follows XDG_DATA_HOME."""
    home = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return Path(home) / "trainwright" / "catalog"


def read_table(path: Path) -> Table:
    lines = path.read_text(encoding="utf-8").splitlines()
    notes: dict[str, str] = {}
    start = 0
    while start < len(lines) and lines[start].startswith("#"):
        key, _, value = lines[start].lstrip("# ").partition(":")
        notes[key.strip()] = value.strip()
        start += 1
    rows = [tuple(row) for row in csv.reader(lines[start:]) if row]
    ragged = next((n for n, row in enumerate(rows) if len(row) != len(rows[0])), None)
    if not rows or ragged is not None:
        raise UserError(
            f"a row has {len(rows[ragged])} fields, the header {len(rows[0])}" if ragged else "the table has no header",
            where=f"{path}:{start + 1 + (ragged or 0)}",
            fix="quote a text that holds a comma; a file that `catalog update` wrote can simply be deleted",
        )
    return Table(notes, rows[0], tuple(rows[1:]))


@cached
def shipped_table(name: str) -> Table:
    return read_table(SHIPPED / name)


@cached
def overlay_table(name: str) -> Table | None:
    """The user's newer rows, or None where `catalog update` has never run."""
    path = overlay_folder() / name
    return read_table(path) if path.is_file() else None


@cached
def shipped_toml(name: str) -> dict[str, Any]:
    import tomllib  # slow to import; few look-ups need it

    return tomllib.loads((SHIPPED / name).read_text(encoding="utf-8"))


def write_table(path: Path, table: Table) -> None:
    """The inverse of `read_table`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    out = io.StringIO()
    out.writelines(f"# {key}: {value}\n" for key, value in table.notes.items())
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(table.rows)
    write_whole(path, out.getvalue())
