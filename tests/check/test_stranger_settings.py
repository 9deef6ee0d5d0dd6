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


PCLUSTER = "pcluster create-cluster --cluster-configuration c.yaml"


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        (f'CLUSTER=vision_train\n{PCLUSTER} --cluster-name "$CLUSTER"', ["error"]),
        (f"{PCLUSTER} -n 2vision", ["error"]),
        (f"{PCLUSTER} --cluster-name={'v' * 61}", ["error"]),
        (f"CLUSTER=${{1:-vision_train}}\n{PCLUSTER} -n $CLUSTER", ["info"]),
        ("eksctl create cluster --name=gpu_train --region us-east-2", ["error"]),
        ("eksctl create cluster gpu_train --nodes 2", ["error"]),
        ("aws --region us-east-2 eks create-cluster --name gpu.train --role-arn $ROLE", ["error"]),
        ("aws sagemaker create-cluster --cluster-name gpu_train --instance-groups file://g.json", ["error"]),
        (f'CLUSTER=vision-train\n{PCLUSTER} --cluster-name "$CLUSTER"', []),
        (f'{PCLUSTER} -n "vision_$USER"', []),
        (f"{PCLUSTER} -n <cluster_name>", []),
        (f"{PCLUSTER} --cluster-name YOUR_CLUSTER", []),
        (f"CLUSTER=vision_train\necho $CLUSTER\nread -r NAME\n{PCLUSTER} -n $NAME", []),
        ("aws eks create-cluster --name gpu_train --role-arn $ROLE", []),
        ("eksctl create cluster -f cluster_gpu.yaml", []),
        ("eksctl create nodegroup --cluster gpu --name workers_1", []),
        ("aws eks create-nodegroup --cluster-name gpu_train --nodegroup-name a_b", []),
        ("aws ecs create-cluster --cluster-name a_b  # gpu", []),
    ],
)
def test_name_of_a_cluster_that_a_script_creates(tmp_path: Path, text: str, levels: list[str]) -> None:
    findings = found(tmp_path, "create.sh", f"#!/bin/bash\n{text}\n", "CFG002")
    assert [f.level for f in findings] == levels
