"""A report of Nsight Systems, exported to SQLite, as the events of a Chrome trace: what the rest reads."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainwright.errors import UserError

# category, table, and the column that names an event (a reference to StringIds, or a text)
KERNELS = ("kernel", "CUPTI_ACTIVITY_KIND_KERNEL", "demangledName")
RANGES = ("user_annotation", "NVTX_EVENTS", "text")
COPIES = (("gpu_memcpy", "CUPTI_ACTIVITY_KIND_MEMCPY"), ("gpu_memset", "CUPTI_ACTIVITY_KIND_MEMSET"))


def nsight_trace(path: Path) -> dict[str, Any]:
    """`nsys export --type=sqlite` of a report."""
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
            return {"traceEvents": list(_events(database))}
    except sqlite3.Error as error:
        raise UserError(f"not an export of Nsight Systems: {error}", where=str(path)) from None


def _events(database: sqlite3.Connection) -> Iterator[dict[str, Any]]:
    tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    names = dict(database.execute("SELECT id, value FROM StringIds")) if "StringIds" in tables else {}
    category, table, column = KERNELS
    if table in tables:
        for start, end, name in database.execute(f"SELECT start, end, {column} FROM {table}"):
            yield _event(category, start, end, str(names.get(name, name)))
    for category, table in COPIES:
        if table in tables:
            for start, end in database.execute(f"SELECT start, end FROM {table}"):
                yield _event(category, start, end, category)
    category, table, column = RANGES
    if table in tables:
        for start, end, name in database.execute(f"SELECT start, end, {column} FROM {table} WHERE end IS NOT NULL"):
            yield _event(category, start, end, str(name or ""))


def _event(category: str, start: int, end: int, name: str) -> dict[str, Any]:
    """Nsight counts nanoseconds, Chrome microseconds."""
    return {"ph": "X", "cat": category, "name": name, "ts": start / 1e3, "dur": (end - start) / 1e3}
