"""Mistakes in settings, names and versions that a stranger planted and earlier versions did not report: each gives a
finding of the named rule, and what is right beside it gives none."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwright.check.engine import Selection, check
from trainwright.check.finding import Finding


def found(tmp_path: Path, name: str, text: str, code: str) -> list[Finding]:
    (tmp_path / name).write_text(text)
    return check([str(tmp_path / name)], Selection(select=(code,))).findings


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("export NCCL_PROTO=LL128", 1),
        ("export NCCL_PROTO=LL,LL128", 1),
        ("export NCCL_PROTO='ll'", 1),
        ("export NCCL_PROTO=Simple", 0),  # an old plugin needs it
        ("export NCCL_PROTO=^LL128", 0),
        ("export NCCL_PROTO=LL128,Simple", 0),
        ("export NCCL_PROTO=$PROTO", 0),
        ("export NCCL_PROTO=", 0),
        ("export NCCL_PROTO=LL128  # 12 % faster, nccl-tests of March", 0),
    ],
)
def test_forced_protocol_without_a_version(tmp_path: Path, line: str, count: int) -> None:
    text = f"#!/bin/bash\n#SBATCH --nodes=2\n{line}\nsrun torchrun --nproc_per_node=8 train.py\n"
    findings = found(tmp_path, "train.sbatch", text, "ENV002")
    assert [f.level for f in findings] == ["info"] * count
