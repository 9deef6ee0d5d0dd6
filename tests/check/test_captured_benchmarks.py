"""BEN001: sizes of messages where a script keeps the benchmark's output in a variable."""

from __future__ import annotations

from pathlib import Path

import pytest
from reported import shown

from trainwright.check.engine import Selection, check

HEAD = """#!/bin/bash
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --constraint=p5.48xlarge
BINARY=/fsx/nccl-tests/build/all_reduce_perf
LAST=256M
MIN_BUSBW=400
"""
TAIL = """
echo "$out" | awk '{print $8}'
"""


def found(folder: Path, text: str) -> list[str]:
    (folder / "a.sbatch").write_text(HEAD + text + TAIL)
    return shown(check([str(folder)], Selection(select=("BEN001",))).findings)


@pytest.mark.parametrize(
    "text",
    [
        'out=$(srun --mpi=pmix "$BINARY" -b 8 -e "$LAST" -f 2 -g 1)',
        'out="$(srun --mpi=pmix "$BINARY" -b 8 -e "$LAST" -f 2 -g 1)"',
        "out=$(srun /opt/nccl-tests/build/all_reduce_perf -b 8 -e $LAST -f 2 | tee log.txt)",
        'out=$(srun \\\n  "$BINARY" \\\n  -b 8 \\\n  -e "$LAST" \\\n  -g 1 2>&1)',
        'out=$(mpirun -np 32 -N 8 -x NCCL_DEBUG=INFO "$BINARY" -b 8 -e "${LAST}" -g 1)',
        'if ! out=$(srun "$BINARY" -e $LAST); then exit 1; fi',
        'measure() {\n  local out=$(srun "$BINARY" -e $LAST)\n  echo "$out"\n}\nmeasure',
    ],
)
def test_small_messages_of_a_kept_output(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, text) == ["info BEN001 7"]


@pytest.mark.parametrize(
    "text",
    [
        'LAST=4G\nout=$(srun "$BINARY" -b 8 -e "$LAST" -f 2 -g 1)',
        'out=$(srun "$BINARY" -b 8 -e 16G -f 2 -g 1)',
        'out=$(srun "$BINARY" -b 8 -e "$1" -f 2 -g 1)',
        'out=$(srun "$BINARY" -b 8 -f 2 -g 1)',
        'for LAST in 64M 1G 8G; do out=$(srun "$BINARY" -e "$LAST"); done',
        'if [ -n "$LONG" ]; then LAST=8G; fi\nout=$(srun "$BINARY" -e "$LAST")',
        'LAST=$(cat size.txt)\nout=$(srun "$BINARY" -e "$LAST")',
        'out=$(srun hostname)\nsrun "$BINARY" -e 8G',
        "out=$(srun nvidia-smi -q | grep -e $LAST)",
        '# out=$(srun "$BINARY" -e "$LAST")',
        "out=$(cat result.txt)",
        "out=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)",
        "cat > check.sh <<'EOF'\nout=$(srun /opt/all_reduce_perf -e 8G)\nEOF",
        'out=$(ssh node1 "all_reduce_perf -e $LAST")',
        'out=$(srun python bench.py -e "$LAST")',
        'out=$(srun "$BINARY" -e "$LAST"',  # torn
    ],
)
def test_large_unknown_or_other(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, text) == []


def test_a_test_of_latency(tmp_path: Path) -> None:
    text = HEAD.replace("MIN_BUSBW=400\n", "") + 'out=$(srun "$BINARY" -b 8 -e 64K -f 2)\n'
    (tmp_path / "latency.sbatch").write_text(text)
    assert check([str(tmp_path)], Selection(select=("BEN001",))).findings == []
