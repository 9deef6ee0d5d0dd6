"""SHL001: variables that nothing sets, in scripts that read in an environment of Python."""

from __future__ import annotations

from pathlib import Path

import pytest
from reported import shown

from trainwright.check.engine import Selection, check

HEAD = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --output=%x-%j.out\n"
JOB = 'CHECKPOINTS=/fsx/checkpoints/bert\nmkdir -p "$CHECKPOINTS"\ntorchrun train.py --out "$CHECKPOINT"\n'


def found(folder: Path, text: str, files: dict[str, str] | None = None) -> list[str]:
    (folder / "a.sbatch").write_text(HEAD + text)
    for name, content in (files or {}).items():
        (folder / name).write_text(content)
    return shown(check([str(folder / "a.sbatch")], Selection(select=("SHL001",))).findings)


@pytest.mark.parametrize(
    "sourced",
    [
        "source /fsx/envs/bert/bin/activate",
        ". .venv/bin/activate",
        'source "$HOME/envs/bert/bin/activate"',
        "source activate bert",
        "source ~/miniconda3/etc/profile.d/conda.sh\nconda activate bert",
        'eval "$(conda shell.bash hook)"\nconda activate bert',
        "source /etc/profile.d/modules.sh\nmodule load cuda\nsource venv/bin/activate",
    ],
)
def test_a_misspelt_name_behind_an_environment_is_a_note(tmp_path: Path, sourced: str) -> None:
    line = 3 + len(sourced.splitlines()) + 3
    assert found(tmp_path, f"{sourced}\n{JOB}") == [f"info SHL001 {line}"]


@pytest.mark.parametrize(
    "sourced",
    [
        "source env.sh",
        "source ~/.bashrc",
        "source /fsx/team/settings.sh\nsource venv/bin/activate",
        "source venv/bin/activate\nsource ./config",
        "source $1",
        "source /opt/intel/setvars.sh",
        'eval "$(python settings.py)"',
        'eval "$(conda shell.bash hook; cat settings)"',
        "set -a; source .env; set +a\nsource venv/bin/activate",
        "source bin/activate-team",
        "source /etc/profile.d/site.sh",
        "source <(python settings.py)",
    ],
)
def test_other_files_may_set_anything(tmp_path: Path, sourced: str) -> None:
    assert found(tmp_path, f"{sourced}\n{JOB}") == []


@pytest.mark.parametrize(
    ("text", "files"),
    [
        (JOB.replace('"$CHECKPOINT"', '"$CHECKPOINTS"'), {}),
        (JOB.replace('"$CHECKPOINT"', '"${CHECKPOINT:-/tmp}"'), {}),
        (JOB.replace("torchrun", 'for CHECKPOINT in "$CHECKPOINTS"/*; do torchrun') + "done\n", {}),
        (JOB.replace("torchrun", "read -r CHECKPOINT < latest\ntorchrun"), {}),
        (JOB.replace("torchrun", "printf -v CHECKPOINT '%s/%d' \"$CHECKPOINTS\" 5\ntorchrun"), {}),
        (JOB.replace("torchrun", 'CHECKPOINT=$(ls -t "$CHECKPOINTS" | head -n 1)\ntorchrun'), {}),
        (JOB.replace("torchrun", ': "${CHECKPOINT:?give one}"\ntorchrun'), {}),
        (JOB.replace("torchrun", 'if [ -z "$CHECKPOINT" ]; then exit 1; fi\ntorchrun'), {}),
        (JOB.replace("torchrun", "mapfile -t CHECKPOINT < list\ntorchrun"), {}),
        ("# sbatch --export=ALL,CHECKPOINT=/fsx/x a.sbatch\n" + JOB, {}),
        ("# CHECKPOINT: set by the caller\n" + JOB, {}),
        (JOB, {"submit.sh": "sbatch --export=ALL,CHECKPOINT=/fsx/x a.sbatch\n"}),
        (JOB, {"submit.sh": "export CHECKPOINT=/fsx/x\nsbatch a.sbatch\n"}),
        (JOB, {"README.md": "Run `CHECKPOINT=/fsx/x sbatch a.sbatch`.\n"}),
        (JOB, {"launch.py": 'env["CHECKPOINT"] = path\nrun(["sbatch", "a.sbatch"], env=env)\n'}),
        (JOB, {"Makefile": "go:\n\tCHECKPOINT=/fsx/x sbatch a.sbatch\n"}),
        (JOB, {"site.env": "CHECKPOINT=/fsx/x\n"}),
        (JOB.replace("CHECKPOINTS", "OUT_0").replace("CHECKPOINT", "OUT_1"), {}),
        (JOB.replace("CHECKPOINTS", "TMP").replace("CHECKPOINT", "TMPDIR"), {}),
        (JOB.replace("CHECKPOINTS", "SLURM_NODE").replace("CHECKPOINT", "SLURM_NNODES"), {}),
        (JOB.replace("CHECKPOINTS", "VIRTUAL_ENVS").replace("CHECKPOINT", "VIRTUAL_ENV"), {}),
        (JOB.replace("CHECKPOINTS", "CONDA_PREFIXES").replace("CHECKPOINT", "CONDA_PREFIX"), {}),
        (JOB.replace("torchrun", "echo $CHECKPOINT\n").replace(' --out "$CHECKPOINT"', ""), {}),
        (JOB.replace('"$CHECKPOINT"', "'$CHECKPOINT'"), {}),
        (JOB.replace('"$CHECKPOINT"', '"\\$CHECKPOINT"'), {}),
    ],
)
def test_names_that_something_sets(tmp_path: Path, text: str, files: dict[str, str]) -> None:
    assert found(tmp_path, f"source venv/bin/activate\n{text}", files) == []
