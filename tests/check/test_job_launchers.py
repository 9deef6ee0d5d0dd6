"""Complete launchers as people write them: exactly these codes, and silence on those that are right."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwright.check.engine import check
from trainwright.check.readers.recognise import read_file

JOBS = Path(__file__).parent / "files" / "jobs"
FOUND = {
    "Dockerfile.nccl-unpinned": ["1 IMG003", "1 IMG004", "7 IMG004", "10 IMG002"],
    "composer-sd.sbatch": ["8 JOB009"],
    "ddp-venv.sbatch": [],
    "distillation.yaml": ["21 SEC005", "25 JOB008", "31 K8S001", "33 ENV003", "37 IMG004", "49 K8S001"],
    "esm2-fsdp.sbatch": ["5 HYP002", "9 JOB008"],
    "fsdp-llama3-small-kv.sbatch": ["10 JOB004"],
    "fsdp-llama3.sbatch": ["5 SHL001", "47 JOB011"],
    "megatron-gpt3.sbatch": ["18 SHL001", "27 ENV002"],
    "nccl-tests-p5.yaml": [],
    "operators.yaml": ["8 JOB001", "10 JOB002", "32 JOB004", "33 JOB004"],
    "preload.sh": [],
    "roberta-job.slurm": ["6 JOB006"],
    "roberta-train.sh": ["5 ENV002", "10 JOB005"],
}


@pytest.mark.parametrize("name", FOUND)
def test_launcher(name: str) -> None:
    found = check([str(JOBS / name)]).findings
    assert [f"{f.span.line} {f.code}" for f in found] == FOUND[name]


@pytest.mark.parametrize("path", sorted(JOBS.glob("good-*")), ids=lambda path: path.name)
def test_right_launcher_is_silent(path: Path) -> None:
    assert [(f.code, f.span.line, f.message) for f in check([str(path)]).findings] == []


def test_the_silence_is_not_blindness() -> None:
    """The right launchers are read in full: sizes, model and schedule are there to be judged."""
    path = JOBS / "good-megatron.sbatch"
    file = read_file(str(path), path.read_text())
    assert file is not None
    job = file.jobs[0]
    values = {n: getattr(job, n).value for n in ("nodes", "tp", "pp", "global_batch", "steps", "warmup")}
    assert values == {"nodes": 8, "tp": 8, "pp": 4, "global_batch": 1024, "steps": 20000, "warmup": 500}
    assert job.model is not None
    assert job.model.hidden is not None
    assert job.model.hidden.value == 8192


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("--nodes=8", "--nodes=7", "JOB002"),
        ("--global-batch-size 1024", "--global-batch-size 1023", "JOB003"),
        ("--num-query-groups 8", "--num-query-groups 16", "JOB004"),
        ("--lr-warmup-iters 500", "--lr-warmup-iters 50000", "JOB005"),
        ("--save /fsx/", "--save /root/", "JOB011"),
        ("gpus-per-node=8", "gpus-per-node=8\n#SBATCH --cpus-per-task=0", "SLU006"),
    ],
)
def test_one_wrong_number_is_one_finding(tmp_path: Path, old: str, new: str, code: str) -> None:
    text = (JOBS / "good-megatron.sbatch").read_text()
    assert old in text
    broken = tmp_path / "job.sbatch"
    broken.write_text(text.replace(old, new))
    assert [f.code for f in check([str(broken)]).findings] == [code]
