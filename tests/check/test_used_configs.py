"""Trainers' configurations that nothing of the repository uses are notes; so is DeepSpeed's part of accelerate's file
where every launch chooses something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwright.check.config import Config
from trainwright.check.engine import Selection, check
from trainwright.check.runner import RunOptions, run

ZERO = """{
  "train_micro_batch_size_per_gpu": 4,
  "zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}},
  "bf16": {"enabled": true}
}
"""
ACCELERATE = """compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
deepspeed_config:
  deepspeed_config_file: ds.json
mixed_precision: fp16
num_machines: 1
num_processes: 8
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


PROGRAM = "import torch\nmodel = torch.nn.Linear(2, 2)\n"


def levels(folder: Path, name: str, code: str) -> list[str]:
    findings = check([str(folder)], Selection(select=(code,))).findings
    return [one.level for one in findings if one.file == str(folder / name)]


@pytest.mark.parametrize(
    ("others", "level"),
    [
        ({}, "warning"),  # nothing is known of who reads it
        ({"train.py": PROGRAM}, "info"),
        ({"train.py": PROGRAM, "README.md": "- `configs/zero2_cpu.json`: ZeRO-2 with offload\n"}, "info"),
        (
            {"train.py": PROGRAM, "README.md": "deepspeed train.py \\\n  --deepspeed zero2_cpu.json\n"},
            "warning",
        ),
        ({"train.py": PROGRAM, "scripts/slurm/run.sh": "deepspeed train.py --deepspeed zero2_cpu.json\n"}, "warning"),
        ({"train.py": 'args.deepspeed = "configs/zero2_cpu.json"\n'}, "warning"),
        ({"train.py": 'args.deepspeed = f"configs/zero{stage}_cpu.json"\n'}, "warning"),
        ({"run.sh": "deepspeed train.py --deepspeed configs/$CONFIG\n"}, "warning"),
        ({"train.py": PROGRAM, "run.yaml": "deepspeed: configs/zero2_cpu.json\n"}, "warning"),
        ({"train.py": PROGRAM, "Dockerfile": "CMD deepspeed train.py --deepspeed zero2_cpu.json\n"}, "warning"),
        ({"mypkg/cli/main.py": 'CONFIG = "configs/zero2_cpu.json"\n'}, "warning"),
        ({"train.py": 'path = "configs/" + sys.argv[1] + ".json"\n'}, "warning"),
        ({"train.py": 'paths = glob.glob("configs/*.json")\n'}, "warning"),
        ({"train.py": PROGRAM, **{f"data/{number}.csv": "" for number in range(500)}}, "warning"),  # too many to read
        ({"Makefile": "train:\n\tdeepspeed train.py --deepspeed configs/zero2_cpu.json\n"}, "warning"),
    ],
)
def test_a_configuration_that_nothing_names(tmp_path: Path, others: dict[str, str], level: str) -> None:
    (tmp_path / ".git").mkdir()
    for name, text in {"configs/zero2_cpu.json": ZERO, **others}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert levels(tmp_path, "configs/zero2_cpu.json", "DSP001") == [level]


def test_a_named_configuration_matters(tmp_path: Path) -> None:
    """Whoever names a file, and a hook that passes a changed one, wants to know; the cache knows the two apart."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.py").write_text(PROGRAM)
    config = tmp_path / "zero2_cpu.json"
    config.write_text(ZERO)
    for paths, level in (([tmp_path], "info"), ([config], "warning"), ([tmp_path], "info"), ([config], "warning")):
        options = RunOptions(cache=True)
        result = run([str(path) for path in paths], Selection(select=("DSP001",)), {}, Config(), options)
        assert [one.level for one in result.findings] == [level]


@pytest.mark.parametrize(
    ("launches", "expected"),
    [
        ("accelerate launch --config_file acc.yaml train.py\n", ["warning"]),
        ("accelerate launch \\\n  --config_file acc.yaml \\\n  --multi_gpu train.py\n", []),
        ("accelerate launch --config_file acc.yaml --use_fsdp train.py\n", []),
        ("srun --cpu-bind=none accelerate launch --config_file acc.yaml train.py\n", ["warning"]),
        ("accelerate launch --config_file acc.yaml train.py --cpu\n", ["warning"]),
        (
            "accelerate launch --config_file acc.yaml --cpu a.py\naccelerate launch --config_file acc.yaml b.py\n",
            ["warning"],
        ),
    ],
)
def test_a_launch_without_deepspeed(tmp_path: Path, launches: str, expected: list[str]) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "scripts/runs").mkdir(parents=True)
    (tmp_path / "scripts/runs/run.sh").write_text(launches)
    (tmp_path / "acc.yaml").write_text(ACCELERATE)
    assert levels(tmp_path, "acc.yaml", "CFG006") == expected
