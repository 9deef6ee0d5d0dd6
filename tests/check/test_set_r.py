"""Causes of noise and false alarms in set R, each with its counterpart that is still reported."""

from __future__ import annotations

from pathlib import Path

import pytest
from reported import shown

from trainwright.check.causes import merge_causes
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
    deepspeed = "zero_optimization: {stage: 2}\ntrain_batch_size: 1\ngradient_accumulation_steps: 8\n"
    assert found(tmp_path, "ds.yaml", deepspeed, "DSP") == ["error DSP001 2"]


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


BATCH = """#!/bin/bash
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=1
nodes =( $(scontrol show hostnames $SLURM_NODELIST) )
head = ${nodes[0]}
port = 29500
srun torchrun \\
--nnodes 3 \\
--nproc_per_node 2 \\ # as many as GPUs
--rdzv_backend c10d \\
--rdzv_endpoint $head:29500 train.py
"""


def test_blanks_around_equals_are_one_finding_and_an_array_is_a_syntax_error(tmp_path: Path) -> None:
    (tmp_path / "a.sbatch").write_text(BATCH)
    result = check([str(tmp_path)], Selection(select=("SHL001",)))
    merge_causes(result)
    said = [(f.span.line, f.message.partition(":")[0], len(f.also)) for f in result.findings]
    assert said[:2] == [(4, "blanks before `=(`", 0), (5, "blanks around `=`", 1)]


def test_options_behind_a_cut_line_are_not_missed(tmp_path: Path) -> None:
    """The comment after the backslash is the mistake; what follows it is there."""
    cut = "\n".join(line for line in BATCH.split("\n") if " = " not in line and " =(" not in line)
    assert found(tmp_path, "a.sbatch", cut, "JOB", "SHL") == ["warning SHL001 6"]
    whole = cut.replace(" # as many as GPUs", "").replace("--rdzv_endpoint $head:29500 ", "")
    assert found(tmp_path, "a.sbatch", whole, "JOB009") == ["warning JOB009 5"]


P4D = """Region: us-east-1
Image: {Os: alinux2023}
HeadNode: {InstanceType: c5.large, Networking: {SubnetId: subnet-01b6f2a414cc350bc}}
Scheduling:
  Scheduler: slurm
  SlurmQueues:
    - Name: q
      Networking: {SubnetIds: [subnet-01b6f2a414cc350bc], PlacementGroup: {Enabled: true}}
      ComputeResources:
        - {Name: a, InstanceType: p4d.24xlarge, MaxCount: 2, Efa: {Enabled: true}, MORE}
"""


@pytest.mark.parametrize(
    ("more", "threads"), [("MinCount: 0", True), ("DisableSimultaneousMultithreading: true", False)]
)
def test_sockets_cores_and_threads_make_the_cpus(tmp_path: Path, more: str, threads: bool) -> None:
    """Slurm resets CPUs=96 to 48 where the product is 48."""
    (tmp_path / "c.yaml").write_text(P4D.replace("MORE", more))
    [finding] = check([str(tmp_path)], Selection(select=("SLU003",))).findings
    assert ("ThreadsPerCore: 2" in finding.fix) == threads


RANKS = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
export MASTER_PORT=29500
export RANK=$SLURM_PROCID
export WORLD_SIZE=$SLURM_NTASKS
srun python train.py
"""


@pytest.mark.parametrize(
    ("program", "level"),
    [
        ("import torch.distributed as dist\ndist.init_process_group('nccl')\n", "error"),
        ("rank = int(os.environ['SLURM_PROCID'])\ndist.init_process_group('nccl', rank=rank)\n", "info"),
        ("", "info"),
    ],
)
def test_whether_the_exported_rank_is_read_the_program_decides(tmp_path: Path, program: str, level: str) -> None:
    if program:
        (tmp_path / "train.py").write_text(program)
    assert found(tmp_path, "train.sbatch", RANKS, "JOB008") == [f"{level} JOB008 6"]


def test_an_account_that_was_left_out_is_a_note(tmp_path: Path) -> None:
    text = P4D.replace("{InstanceType: c5.large,", "{InstanceType: c5.large, Iam: {AdditionalIamPolicies: "
                       "[{Policy: 'arn:aws:iam::<ACCOUNT_ID>:policy/a'}]},").replace("MORE", "MinCount: 0")  # fmt: skip
    assert found(tmp_path, "c.yaml", text, "CFG001") == ["info CFG001 3"]
    assert found(tmp_path, "c.yaml", text.replace("ACCOUNT_ID", "POLICY"), "CFG001") == ["info CFG001 3"]


def test_a_key_twice_with_one_value_is_read(tmp_path: Path) -> None:
    text = "apiVersion: v1\nkind: Pod\nspec:\n  hostIPC: true\n  hostIPC: true\n  nodeSelector: {nvidia.com/gpu: a}\n"
    assert found(tmp_path, "pod.yaml", text, "TW001") == []
    other = text.replace("hostIPC: true\n  hostIPC: true", "hostIPC: true\n  hostIPC: false")
    assert found(tmp_path, "pod.yaml", other, "TW001") == ["warning TW001 5"]


EKS = """apiVersion: eksctl.io/v1alpha5
kind: ClusterConfig
metadata: {name: a, region: us-east-1, version: "1.34"}
managedNodeGroups:
  - {name: p6, instanceTypes: [p6-b200.48xlarge], minSize: 0, maxSize: 2, MORE}
"""


@pytest.mark.parametrize(("more", "level"), [("spot: true", "info"), ("desiredCapacity: 0", "warning")])
def test_spot_nodes_without_efa_are_a_note(tmp_path: Path, more: str, level: str) -> None:
    (tmp_path / "c.yaml").write_text(EKS.replace("MORE", more))
    findings = check([str(tmp_path)], Selection(select=("EKS001",))).findings
    assert [f.level for f in findings if "without EFA" in f.message] == [level]
