"""Causes of noise and false alarms in set R, each with its counterpart that is still reported."""

from __future__ import annotations

from pathlib import Path

import pytest
from reported import shown

from trainwright.check.engine import Selection, check


def found(folder: Path, name: str, text: str, *codes: str) -> list[str]:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return shown(check([str(folder)], Selection(select=codes)).findings)


AXOLOTL = """base_model: ./qwen
optimizer: adamw_torch
train_batch_size: 1
micro_batch_size: 1
gradient_accumulation_steps: 8
"""


def test_a_trainers_own_file_is_not_deepspeeds(tmp_path: Path) -> None:
    assert found(tmp_path, "axolotl.yaml", AXOLOTL, "DSP") == []
    deepspeed = AXOLOTL.replace("base_model: ./qwen", "fp16: {enabled: true}")
    assert found(tmp_path, "ds.yaml", deepspeed, "DSP") == ["error DSP001 3"]


HJSON = """{
  "train_batch_size": 12,
  "train_micro_batch_size_per_gpu": 8, // per card, not "all"
  "zero_optimization": {
    "stage": 2, /* was 3 */
    # "offload_param": {"device": "cpu"},
  },
}
// {"old": 1}
"""


def test_deepspeed_reads_hjson(tmp_path: Path) -> None:
    """What is written there is checked; that other readers refuse it is a note."""
    assert found(tmp_path, "ds_config.json", HJSON, "DSP", "TW") == ["error DSP001 2", "info DSP001 3"]
    whole = "\n".join(line for line in HJSON.split("\n") if "//" not in line and "#" not in line).replace("},\n}", "}}")
    plain = (
        whole.replace("/* was 3 */", "")
        .replace("2, \n", "2\n")
        .replace("12,", '8, "train_micro_batch_size_per_gpu": 8,')
    )
    assert found(tmp_path, "ds_config.json", plain, "DSP", "TW") == []


@pytest.mark.parametrize("broken", ['{"zero_optimization": {"stage": 2}', '{"zero_optimization": {"stage" 2}}'])
def test_what_no_reader_takes_is_reported(tmp_path: Path, broken: str) -> None:
    assert [line.rpartition(" ")[0] for line in found(tmp_path, "ds_config.json", broken, "TW")] == ["warning TW001"]
