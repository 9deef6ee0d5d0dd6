"""Scaling: efficiency as published runs state it, and a job of the real local machine at one and two ranks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainwright.errors import UserError
from trainwright.report.scaling import Speed, efficiency, facts, scaling_picture, scaling_text, speed_of


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
