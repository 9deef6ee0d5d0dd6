"""Complete files of the kinds that people deploy, written after the public reference architectures: each gives exactly
the findings that are true of it. And files that are right, our own among them, give none."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwright.check.engine import check
from trainwright.platforms.plan.tree import make_plan
from trainwright.spec.load import load

ROOT = Path(__file__).parents[2]
REAL = Path(__file__).parent / "files" / "real"
RIGHT = Path(__file__).parent / "files" / "right"

# Why each is true:
# - vanilla: a template (reported once); boot scripts from a branch; filled in, Slurm is not told the sockets of p5.
# - p4de-base: Ubuntu 20.04 is gone from ParallelCluster 3.16 (as is Amazon Linux 2 in roberta); ids to fill in; a new
#   placement group on a reservation; Lustre goes with the cluster; no sockets.
# - trn1: two styles of placeholder; a named placement group is left alone, as is a count that is not known.
# - roberta: P3dn has no driver in today's images; SSM full access twice; scratch Lustre that never exports, 0.2 GB/s
#   for 16 GPUs; a boot script without a version; the list of instances is fine, as it names no reservation.
# - network in one zone: the flow log names a group that does not exist; Lustre lacks 1018 to 1020; an open endpoint
#   policy; its EFA group is right. In many zones: the EFA group does not reach itself.
# - Batch: the placement group is left out when it is asked for; an optional parameter without a default; IMDSv1 not
#   excluded; device indexes (p4d: 2 and 3, which work; p5: all 0).
# - EKS on a block: no version still supported, no zone for the reservation, no nodes for system pods.
# - HyperPod: a bucket its policy cannot read, a misspelled recovery mode, a login group that does not exist.
EXPECTED = {
    "cluster-vanilla.yaml": ["CFG001 4", "IMG002 26"],
    "cluster-vanilla-filled.yaml": ["IMG002 26", "SLU003 59"],
    "p4de-base.yaml": ["CFG005 6", "CFG001 10", "CAP004 25", "SLU003 35", "STO007 43"],
    "trn1-custom-image.yaml": ["CFG005 4", "CFG001 5"],
    "roberta.yaml": ["CFG005 4", "CFG001 8", "SEC004 15", "CAP005 28", "STO007 46", "STO003 50"],
    "vpc-one-zone.yaml": ["CFN001 47", "STO005 94", "SEC004 118"],
    "vpc-many-zones.yaml": ["NET003 34"],
    "prerequisites.yaml": ["STO007 20", "STO007 36"],
    "batch-p4d.yaml": ["CFN001 6", "SEC002 25", "NET006 45", "CFN001 66"],
    "batch-p5.yaml": ["CFN001 6", "SEC002 25", "NET006 42", "CFN001 208"],
    "eks-p5-capacity-block.yaml": ["EKS001 5", "CFG001 6", "EKS001 16", "EKS001 22"],
    "eks-g4dn.yaml": [],
    "hyperpod": ["CFG001 9", "HYP001 17", "HYP001 22", "HYP001 5"],
}


@pytest.mark.parametrize("name", EXPECTED)
def test_real_file(name: str) -> None:
    found = check([str(REAL / name)]).findings
    places = sorted((f.file, f.span.line, f.code) for f in found)
    assert [f"{code} {line}" for _, line, code in places] == EXPECTED[name]


def test_every_real_file_is_held_to_something() -> None:
    assert {path.name for path in REAL.iterdir()} == set(EXPECTED)


@pytest.mark.parametrize("path", sorted(RIGHT.iterdir()), ids=lambda p: p.name)
def test_right_file_is_met_with_silence(path: Path) -> None:
    result = check([str(path)])
    assert result.files > 0
    assert [(f.code, f.span.line, f.message) for f in result.findings] == []


SPECS = sorted((ROOT / "examples").glob("*.yaml"))


@pytest.mark.parametrize(
    "path", [*SPECS, *sorted((ROOT / "src/trainwright/stacks").rglob("*.yaml"))], ids=lambda p: p.stem
)
def test_our_own_files_are_right(path: Path) -> None:
    assert [(f.code, f.span.line, f.message) for f in check([str(path)]).findings] == []


@pytest.mark.parametrize(
    "path", [p for p in SPECS if "platform: parallelcluster" in p.read_text()], ids=lambda p: p.stem
)
def test_what_we_render_is_right(path: Path, tmp_path: Path) -> None:
    rendered = make_plan(load(path)).files["cluster.yaml"]
    (tmp_path / "cluster.yaml").write_text(rendered)
    findings = check([str(tmp_path / "cluster.yaml")]).findings
    assert [(f.code, f.span.line, f.message) for f in findings] == []
