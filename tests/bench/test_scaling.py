"""Scaling: efficiency as published runs state it, and a job of the real local machine at one and two ranks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from trainwright.errors import UserError
from trainwright.platforms.local.daemons import missing_programs
from trainwright.report.scaling import Speed, efficiency, facts, node_counts, scaling_picture, scaling_text, speed_of


def test_the_published_vision_case() -> None:
    """504, 258, 177 and 137 s per epoch at 4, 8, 12 and 16 GPUs."""
    seconds = {4: 504, 8: 258, 12: 177, 16: 137}
    parts = efficiency([(gpus, 1 / s) for gpus, s in seconds.items()])
    assert [round(part, 3) for part in parts] == [1.0, 0.977, 0.949, 0.92]


def run_folder(folder: Path, rates: list[float], predicted: float | None) -> Path:
    folder.mkdir()
    lines = [json.dumps({"step": step, "tokens_per_s": rate}) for step, rate in enumerate(rates)]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    if predicted:
        (folder / "prediction.json").write_text(json.dumps({"tokens_per_s": predicted}))
    return folder


def test_the_first_steps_do_not_count(tmp_path: Path) -> None:
    speed = speed_of(run_folder(tmp_path / "a", [1, 2, 100, 101, 99, 100, 100, 100, 100, 100], 110.0), 2)
    assert speed == Speed(2, 100.0, 110.0)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no metrics"):
        speed_of(tmp_path / "empty", 1)


def test_measured_stands_beside_predicted() -> None:
    speeds = [Speed(1, 100, 90), Speed(2, 180, 180), Speed(4, 320, None)]
    rows = facts(speeds)
    assert [row["efficiency"] for row in rows] == pytest.approx([1.0, 0.9, 0.8])
    assert [row["predicted_efficiency"] for row in rows] == [1.0, 1.0, None]
    assert rows[0]["off"] == pytest.approx(1 / 9)
    assert "+11%" in scaling_text(rows)
    assert scaling_picture("x", speeds).count("<polyline") == 3


SPEC = """
name: scaled
platform: local
queues: [{name: q, count: 2}]
jobs: [{name: train, recipe: cpu-ddp, steps: 12}]
"""


@pytest.mark.slow
def test_a_job_of_the_local_slurm_at_one_and_two_nodes(tmp_path: Path) -> None:
    """Through the public commands, with no `trainwright` on the PATH: measured beside predicted at each count."""
    if missing_programs():
        pytest.skip("no Slurm on this machine")
    home = tempfile.mkdtemp(prefix="tw")  # short, since unix sockets lie below it
    here = {**os.environ, "TRAINWRIGHT_HOME": home, "XDG_CACHE_HOME": str(tmp_path), "PATH": "/usr/sbin:/usr/bin:/bin"}
    (tmp_path / "spec.yaml").write_text(SPEC)

    def trainwright(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "trainwright", *words]
        return subprocess.run(command, cwd=tmp_path, env=here, capture_output=True, text=True, check=False)

    try:
        assert trainwright("up", "spec.yaml").returncode == 0
        done = trainwright("bench", "scaling", "spec.yaml", "train", "--nodes", "1,2", "--json", "--plot", "s.svg")
        assert done.returncode == 0, done.stderr
        rows = json.loads(done.stdout)["rows"]
    finally:
        trainwright("down", "spec.yaml", "--force")
        shutil.rmtree(home)
    assert [row["nodes"] for row in rows] == [1, 2]
    assert all(row["tokens_per_s"] > 0 and row["predicted"] > 0 and row["off"] is not None for row in rows)
    assert (tmp_path / "s.svg").read_text().count("<polyline") >= 2


@pytest.mark.parametrize("text", ["1,b", "0", "", "2,,4", "-1"])
def test_node_counts_are_numbers(text: str) -> None:
    with pytest.raises(UserError, match="no list of node counts"):
        node_counts(text)
    assert node_counts("1, 2,4") == [1, 2, 4]
