"""Result files: JSON for programs, CSV for spreadsheets, written whole; and where they go by default."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainwright.errors import UserError
from trainwright.files import write_text


def write_result(result: dict[str, Any], path: Path | None) -> Path | None:
    """Write the result where the user said, else into the run folder that `submit` names, else nowhere."""
    if path is None:
        folder = os.environ.get("TRAINWRIGHT_RUN")
        if not folder:
            return None
        path = Path(folder) / f"bench-{result['kind']}.json"
    write_text(path, json.dumps(result, indent=1) + "\n")
    return path


def read_result(path: Path) -> dict[str, Any]:
    """A result file, told from any other file by its `kind`."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read the result: {error.strerror}", where=str(path)) from error
    except ValueError as error:
        raise UserError(
            "not a result file: no JSON", where=str(path), fix="give a file that `bench -o` wrote"
        ) from error
    if not isinstance(result, dict) or "kind" not in result:
        raise UserError("not a result file: no `kind`", where=str(path), fix="give a file that `bench -o` wrote")
    return result


def csv_text(rows: Sequence[dict[str, Any]]) -> str:
    """Rows with the same keys as CSV."""
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def parse_size(text: str) -> int:
    """Bytes from `8`, `64K`, `1M`, `16GiB`: powers of two, as nccl-tests reads them."""
    units = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
    word = text.strip().lower().removesuffix("b").removesuffix("i")
    number, unit = (word[:-1], word[-1]) if word and word[-1] in "kmgt" else (word, "")
    try:
        value = float(number) * units[unit]
        if not math.isfinite(value):
            raise ValueError(text)
    except ValueError as error:
        raise UserError(f"{text!r} is not a size", fix="such as 8, 64K, 1M or 16G") from error
    if value < 1:
        raise UserError(f"{text!r} is not a size", fix="at least one byte")
    return int(value)


def positive(text: str) -> float:
    """A number above 0, as an option's type."""
    value = float(text)
    if not 0 < value < math.inf:
        raise ValueError(text)
    return value


def whole_number(text: str) -> int:
    """A whole number from 1 up, as an option's type."""
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def size_word(size: float) -> str:
    """1048576 is 1 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{size:g} {unit}" if size == int(size) else f"{size:.1f} {unit}"
