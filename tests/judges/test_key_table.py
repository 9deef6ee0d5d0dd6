"""The table of keys that `check` holds ParallelCluster files to is, for its newest version, what ParallelCluster's own
schema says."""

from __future__ import annotations

import csv
import subprocess
from pathlib import Path

import pytest

from judges.pcluster import ROOT
from trainwright.check.pcluster_schema import keys_of, versions

pytestmark = pytest.mark.judge


def test_the_table_is_the_schema(pcluster_bin: Path) -> None:
    command = [str(pcluster_bin / "python"), "-P", str(ROOT / "tools" / "parallelcluster_keys.py")]
    made = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    rows = list(csv.DictReader(line for line in made if not line.startswith("#")))
    newest = versions()[0]
    assert {(row["parent"], row["key"]) for row in rows} == {
        (parent, key) for parent in {row["parent"] for row in rows} for key in keys_of(parent, newest)
    }
    for row in rows:
        key = keys_of(row["parent"], newest)[row["key"]]
        assert (key.kind, key.id) == (row["kind"], row["id"])
        assert set(key.choices(newest)) == set(row["allowed"].split("|") if row["allowed"] else ())
