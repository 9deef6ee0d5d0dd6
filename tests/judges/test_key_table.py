"""The table of keys that `check` holds ParallelCluster files to is what ParallelCluster's own schema says."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from judges.pcluster import ROOT

pytestmark = pytest.mark.judge


def test_the_table_is_the_schema(pcluster_bin: Path) -> None:
    command = [str(pcluster_bin / "python"), "-P", str(ROOT / "tools" / "parallelcluster_keys.py")]
    made = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    shipped = (ROOT / "src/trainwright/check/data/parallelcluster_keys.csv").read_text()
    assert made.splitlines() == [line for line in shipped.splitlines() if not line.startswith("# date:")]
