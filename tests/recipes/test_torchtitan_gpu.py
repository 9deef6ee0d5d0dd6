"""torchtitan trains our recipe on a GPU with the scripts that `submit` writes, and goes on from its checkpoint.
Measured on an H200 on 2026-11-15 by `benchmarks/frameworks_gpu.py`: the debug size from a loss of 8.12 to 6.79 in 30
steps, again from step 31 to 40; the 8B's widths at four layers at 63,256 tokens/s and 44 % of the peak, in 21.9 GiB."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
BENCHMARK = Path(__file__).parents[2] / "benchmarks/frameworks_gpu.py"


@pytest.mark.proves("torchtitan-llama3.1-8b", "h200")
def test_it_trains_and_goes_on(tmp_path: Path) -> None:
    pytest.importorskip("torchtitan")
    subprocess.run([sys.executable, str(BENCHMARK), "prepare", str(tmp_path)], check=True)
    done = subprocess.run([sys.executable, str(BENCHMARK), "run", str(tmp_path)], capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    rows = {row["run"]: row for row in map(json.loads, lines)}
    assert all(row["status"] == 0 for row in rows.values()), done.stdout
    assert float(rows["debug"]["last"][1]) < float(rows["debug"]["first"][1])
    assert int(rows["again"]["first"][0]) == 31
    assert float(rows["shallow"]["last"][1]) < float(rows["shallow"]["first"][1])
