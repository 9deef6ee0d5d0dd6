"""Merges the key tables of several ParallelCluster versions (printed by tools/parallelcluster_keys.py) into the one
that `check` ships: every key and every fixed value with the first and last version that has it.

    python tools/parallelcluster_versions.py 3.0.0.csv 3.1.1.csv … 3.16.1.csv > parallelcluster_keys.csv
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

COLUMNS = ("parent", "key", "kind", "required", "allowed", "least", "id", "since", "until")
Row = dict[str, str]


def read(path: Path) -> tuple[str, dict[tuple[str, str], Row]]:
    """A version (major.minor) and its rows by parent and key."""
    lines = path.read_text(encoding="utf-8").splitlines()
    version = next(line.split(": ")[1] for line in lines if line.startswith("# version:"))
    rows = csv.DictReader(line for line in lines if not line.startswith("#"))
    return ".".join(version.split(".")[:2]), {(row["parent"], row["key"]): row for row in rows}


def merged(tables: list[tuple[str, dict[tuple[str, str], Row]]]) -> list[Row]:
    """Tables in order of version -> one row per key."""
    versions = [version for version, _ in tables]
    names = sorted({name for _, rows in tables for name in rows})
    result = []
    for name in names:
        present = {version: rows[name] for version, rows in tables if name in rows}
        newest = present[list(present)[-1]]
        required = "yes" if all(row["required"] for row in present.values()) else ""
        since, until = period(list(present), versions)
        result.append({**newest, "required": required, "allowed": allowed(present), "since": since, "until": until})
    return result


def period(present: list[str], versions: list[str]) -> tuple[str, str]:
    """First and last version; empty where it is the table's own first or last."""
    return (
        "" if present[0] == versions[0] else present[0],
        "" if present[-1] == versions[-1] else present[-1],
    )


def allowed(present: dict[str, Row]) -> str:
    """The fixed values, each with its period (`ubuntu1804@-3.6`) where that is shorter than the key's."""
    if any(not row["allowed"] for row in present.values()):
        return ""
    choices = {version: row["allowed"].split("|") for version, row in present.items()}
    values = dict.fromkeys(value for listed in reversed(choices.values()) for value in listed)
    written = []
    for value in values:
        first, last = period([v for v, listed in choices.items() if value in listed], list(choices))
        written.append(f"{value}@{first}-{last}" if first or last else value)
    return "|".join(written)


if __name__ == "__main__":
    tables = [read(Path(name)) for name in sys.argv[1:]]
    print(f"# source: aws-parallelcluster {tables[0][0]} to {tables[-1][0]}, the fields of their cluster schemas")
    print(f"# versions: {' '.join(version for version, _ in tables)}")
    out = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    out.writeheader()
    out.writerows(merged(tables))
