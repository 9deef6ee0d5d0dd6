"""HyperPod's files and jobs near the triggers of HYP001, HYP002, HYP003 and HYP006."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from reported import shown

from trainwright.check.engine import Selection, check
from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]

ROLE = "arn:aws:iam::111122223333:role/x"
SCRIPTS = {"SourceS3Uri": "s3://sagemaker-x/src", "OnCreate": "on_create.sh"}
GROUP: dict[str, Any] = {
    "InstanceGroupName": "controller", "InstanceType": "ml.m5.xlarge", "InstanceCount": 1, "ThreadsPerCore": 1,
    "LifeCycleConfig": SCRIPTS, "ExecutionRole": ROLE,
}  # fmt: skip
PARAMETERS: dict[str, Any] = {
    "version": "1.0.0", "workload_manager": "slurm", "controller_group": "controller",
    "worker_groups": [{"instance_group_name": "workers", "partition_name": "dev"}],
}  # fmt: skip


def config(**changes: Any) -> dict[str, Any]:
    return {"ClusterName": "ml", "InstanceGroups": [GROUP | changes]}


def test_an_answer_of_sagemaker_is_no_request(tmp_path: Path) -> None:
    answer = config(CurrentCount=1, TargetCount=1) | {"ClusterArn": "arn:a", "ClusterStatus": "InService"}
    (tmp_path / "cluster-config.json").write_text(json.dumps(answer))
    assert check([str(tmp_path)]).findings == []


@pytest.mark.parametrize(
    ("orchestrator", "slurm", "said"),
    [
        ({}, {}, 1),
        ({"Eks": {"ClusterArn": "arn:aws:eks:us-west-2:111122223333:cluster/x"}}, {}, 0),
        ({}, {"NodeType": "Controller"}, 0),  # the file itself says which group is what
    ],
)
def test_parameters_belong_to_a_cluster_that_reads_them(
    run: Run, tmp_path: Path, orchestrator: dict[str, Any], slurm: dict[str, Any], said: int
) -> None:
    value = config(**({"SlurmConfig": slurm} if slurm else {})) | (
        {"Orchestrator": orchestrator} if orchestrator else {}
    )
    (tmp_path / "cluster-config.json").write_text(json.dumps(value))
    assert len(run("provisioning_parameters.json", json.dumps(PARAMETERS), "HYP001")) == said


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("fs-0123456789abcdef0.fsx.us-west-2.amazonaws.com", ""),
        ("fs-abcxyz.fsx.us-west-2.amazonaws.com", ""),  # hidden
        ("FSX_DNS_NAME", ""),
        ("10.0.1.20", "info"),
        ("fs-0123456789abcdef0", "error"),
        ("fs-0123456789abcdef0.fsx.us-west-2.amazonaws.com@tcp:/abcdefgh", "error"),
        ("abcdefgh", "error"),
    ],
)
def test_names_of_file_systems(run: Run, name: str, level: str) -> None:
    text = json.dumps(PARAMETERS | {"fsx_dns_name": name, "fsx_mountname": "abcdefgh"})
    assert [f.level for f in run("provisioning_parameters.json", text, "HYP001")] == ([level] if level else [])


@pytest.mark.parametrize(
    "change",
    [
        {"ExecutionRole": "arn:aws:iam::ACCOUNT_ID:role/x"},
        {"ExecutionRole": "ROLE_ARN"},
        {"ExecutionRole": "arn:aws:iam::{account}:role/x"},
        {"ExecutionRole": "REPLACE with your role"},
        {"LifeCycleConfig": SCRIPTS | {"SourceS3Uri": "S3_LIFECYCLE_URI"}},
    ],
)
def test_what_is_still_to_be_written(run: Run, change: dict[str, Any]) -> None:
    assert run("cluster-config.json", json.dumps(config(**change)), "HYP001", "HYP003") == []


def test_one_finding_for_the_address_of_the_scripts(run: Run) -> None:
    wrong = config(LifeCycleConfig=SCRIPTS | {"SourceS3Uri": "bucket/src"})
    assert [f.code for f in run("cluster-config.json", json.dumps(wrong), "HYP001", "HYP003")] == ["HYP001"]
    wrong = config(ExecutionRole="arn:aws:iam::1111:role/x")
    [finding] = run("cluster-config.json", json.dumps(wrong), "HYP003")
    assert finding.fix.startswith("write arn:aws:iam::ACCOUNT:role/NAME")


def test_gpu_requests_may_be_set_up(run: Run) -> None:
    script = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gres=gpu:8\nMORE\nsrun --auto-resume=1 torchrun train.py\n"
    [finding] = run("a.sbatch", script.replace("MORE", ""), "HYP002")
    assert (finding.level, finding.fix) == ("info", "write --exclusive instead")
    [finding] = run("a.sbatch", script.replace("MORE", "#SBATCH --exclusive"), "HYP002")
    assert finding.fix == "remove it"


def test_a_branch_for_hyperpod_is_not_run_elsewhere(run: Run) -> None:
    script = (
        "#!/bin/bash\n#SBATCH --nodes=2\nsource /opt/parallelcluster/env\n"
        "if [[ $PLATFORM == hyperpod ]]; then\n  srun --auto-resume=1 train\nelse\n  srun train\nfi\n"
    )
    assert run("a.sbatch", script, "HYP002") == []
    plain = "#!/bin/bash\n#SBATCH --nodes=2\nsource /opt/parallelcluster/env\nsrun --auto-resume=1 train\n"
    assert shown(run("a.sbatch", plain, "HYP002")) == ["error HYP002 4"]


RESUMED = "#!/bin/bash\n{comment}\n#SBATCH --nodes=4\n#SBATCH --gpus-per-node=8\nsrun --auto-resume=1 torchrun vit.py\n"


@pytest.mark.parametrize(
    ("comment", "reported"),
    [
        ("# ViT on the lab's ParallelCluster, queue a100", ["error HYP002 5"]),
        ("# pcluster 3.13, 4 x p4de", ["error HYP002 5"]),
        ("# AWS ParallelCluster\n# 4 nodes", ["error HYP002 6"]),
        ("# the lab's cluster, queue a100", ["info HYP002 4"]),
        ("# HyperPod cluster; ParallelCluster has no auto-resume", ["info HYP002 4"]),
        ("# ported from our ParallelCluster", ["info HYP002 4"]),
        ("# written for the old\n# ParallelCluster of the lab", ["info HYP002 5"]),
        ("# see https://docs.aws.amazon.com/parallelcluster/latest/ug/", ["info HYP002 4"]),
        ("# drop --auto-resume if you run on ParallelCluster", ["info HYP002 4"]),
        ("# from 2.aws-parallelcluster/train.sbatch", ["info HYP002 4"]),
        ("# nothing like ParallelCluster", ["info HYP002 4"]),
    ],
)
def test_auto_resume_where_a_comment_names_the_cluster(run: Run, comment: str, reported: list[str]) -> None:
    assert shown(run("vit.sbatch", RESUMED.format(comment=comment), "HYP002")) == reported


CLUSTER_FILE = "Region: us-east-1\nHeadNode: {}\nScheduling:\n  Scheduler: slurm\n  SlurmQueues: []\n"


@pytest.mark.parametrize(
    ("name", "text", "readme", "reported"),
    [
        ("cluster/lab.yaml", CLUSTER_FILE, "Vision models.", ["warning HYP002 5"]),
        ("cluster/lab.yaml", CLUSTER_FILE, "Runs on HyperPod, too.", ["info HYP002 4"]),
        ("cluster/hyperpod.yaml", CLUSTER_FILE, "Vision models.", ["info HYP002 4"]),
        ("cluster/lab.yaml", "Scheduling: weekly\n", "Vision models.", ["info HYP002 4"]),
    ],
)
def test_auto_resume_beside_a_cluster_file(
    tmp_path: Path, name: str, text: str, readme: str, reported: list[str]
) -> None:
    for path, content in ((name, text), ("README.md", readme), ("jobs/vit.sbatch", RESUMED.format(comment="# ViT"))):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(content)
    (tmp_path / ".git").mkdir()
    findings = check([str(tmp_path / "jobs")], Selection(("HYP002",))).findings
    assert shown(findings) == reported


def test_auto_resume_in_a_branch_for_hyperpod(run: Run) -> None:
    branch = (
        "#!/bin/bash\n# ViT on ParallelCluster, queue a100\n#SBATCH --nodes=4\nflags=()\n"
        'if [ "$PLATFORM" = managed ]; then flags+=(--auto-resume=1); fi\nsrun "${flags[@]}" torchrun vit.py\n'
    )
    assert run("a.sbatch", branch, "HYP002") == []


@pytest.mark.parametrize(
    ("kind", "namespace", "said"),
    [
        ("PyTorchJob", "kubeflow", 0),
        ("PyTorchJob", "hyperpod-ns-a", 0),
        ("PyTorchJob", "aws-hyperpod", 0),
        ("PyTorchJob", "team-a", 1),
        ("Job", "kubeflow", 1),
        ("HyperPodPyTorchJob", "team-a", 0),
    ],
)
def test_jobs_that_start_again(run: Run, kind: str, namespace: str, said: int) -> None:
    text = (
        f"apiVersion: kubeflow.org/v1\nkind: {kind}\nmetadata:\n  name: a\n  namespace: {namespace}\n"
        "  annotations: {sagemaker.amazonaws.com/enable-job-auto-resume: 'true'}\nspec: {}\n"
    )
    assert len(run("a.yaml", text, "HYP006")) == said
