"""Predicts every row of a CSV of training runs or collectives; its columns tell which."""

from __future__ import annotations

import csv
from pathlib import Path

from trainwright.errors import UserError
from trainwright.predict.constants import Constants, constants
from trainwright.predict.published.rows import answer
from trainwright.predict.published.rows_collectives import answer_collective, is_collectives

NEEDED = ("model", "gpu", "num_gpus")


def answers(path: Path, c: Constants | None = None) -> list[dict[str, object]]:
    """One answer per row, in the order of the file."""
    if not path.is_file():
        raise UserError(
            f"no file {str(path)!r}", where="--rows", fix="name a CSV with the columns of a published table"
        )
    with open(path, newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        columns = list(reader.fieldnames or ())
        rows = [{key: value or "" for key, value in row.items() if key} for row in reader]
    if is_collectives(columns):
        return [answer_collective(row) for row in rows]
    missing = [name for name in NEEDED if name not in columns]
    if missing:
        raise UserError(
            f"the table has no column {', '.join(missing)}", where=str(path),
            fix="a training table has model, gpu, num_gpus, seq_len ...; a collectives table has op, bytes, gpus",
        )  # fmt: skip
    return [answer(row, c or constants()) for row in rows]
