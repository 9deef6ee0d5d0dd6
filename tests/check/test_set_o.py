"""What set O showed: noisy and false findings, each beside what must still be found."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from reported import shown

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]
SBATCH = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gres=gpu:4\n"
LOGS = SBATCH + "#SBATCH --output=logs/%j.out\n{comment}\nset -e\nmkdir -p logs\nsrun python train.py\n"


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ("# Logs land in logs/: create the directory first if it does not exist.", []),
        ("# Usage (via the wrapper, normally): sbatch train.sbatch", ["info SHL001 4"]),
        ("# scripts/submit_until_done.sh chains another window", ["info SHL001 4"]),
        ("# submitted by the nightly pipeline", ["info SHL001 4"]),
        ("# Slurm wrapper around scripts/train.sh: sbatch submit_all.sh", ["warning SHL001 4"]),
        ("# sbatch scripts/train.sbatch", ["warning SHL001 4"]),
        ("# make logs", ["warning SHL001 4"]),
    ],
)
def test_a_comment_may_say_who_makes_the_directory(run: Run, comment: str, expected: list[str]) -> None:
    assert shown(run("submit_all.sh", LOGS.format(comment=comment), "SHL001")) == expected


POD = """apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  containers:
    - name: a
      image: a:1
      env: [{name: WANDB_API_KEY, value: KEY}]
      resources: {limits: {nvidia.com/gpu: 1}}
"""


def test_a_key_that_is_still_to_be_written_is_no_secret(run: Run) -> None:
    assert shown(run("a.yaml", POD.replace("KEY}", "YOUR_WANDB_API_KEY_HERE}"), "K8S001")) == ["info K8S001 8"]
    assert shown(run("a.yaml", POD.replace("KEY}", "local-0123456789abcdef}"), "K8S001")) == ["warning K8S001 8"]


CLASS = "apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {name: a}\nspec:\n  amiFamily: AL2\n"
GROUP = """apiVersion: eksctl.io/v1alpha5
kind: ClusterConfig
metadata: {name: a, region: us-east-1}
managedNodeGroups:
  - {name: a, instanceType: p5.48xlarge, amiFamily: AmazonLinux2}
"""


def test_karpenter_also_starts_nodes_of_other_clusters(run: Run) -> None:
    assert shown(run("a.yaml", CLASS, "EKS002")) == ["info EKS002 5"]
    assert shown(run("a.yaml", GROUP, "EKS002")) == ["warning EKS002 5"]


CLUSTER = """Region: us-east-2
Image: {{Os: {os}}}
HeadNode:
  InstanceType: t3.small
  Networking: {{SubnetId: subnet-0e5e9e09eaa14d678}}
  Imds: {{Secured: false}}
Scheduling:
  Scheduler: {scheduler}
  {queues}
"""
BATCH = """AwsBatchQueues:
  - Name: queue1
    ComputeResources: [{Name: optimal, InstanceTypes: [optimal], MinvCpus: 0, DesiredvCpus: 0, MaxvCpus: 8}]
    Networking: {SubnetIds: [subnet-0f93eb66d6fe88a1e]}
"""
SLURM = """SlurmQueues:
  - Name: queue1
    ComputeResources: [{Name: one, InstanceType: c5.large, MinCount: 0, MaxCount: 2}]
    Networking: {SubnetIds: [subnet-0f93eb66d6fe88a1e]}
"""


def test_batch_clusters_cannot_secure_the_metadata_service(run: Run) -> None:
    batch = CLUSTER.format(os="alinux2", scheduler="awsbatch", queues=BATCH)
    assert run("a.yaml", batch, "SEC002") == []
    slurm = CLUSTER.format(os="alinux2023", scheduler="slurm", queues=SLURM)
    assert shown(run("a.yaml", slurm, "SEC002")) == ["warning SEC002 6"]


@pytest.mark.parametrize(("scheduler", "queues"), [("awsbatch", BATCH), ("slurm", SLURM)])
def test_the_version_that_reads_a_file_is_not_in_it(run: Run, scheduler: str, queues: str) -> None:
    findings = run("a.yaml", CLUSTER.format(os="alinux2", scheduler=scheduler, queues=queues), "CFG005")
    assert shown(findings) == ["info CFG005 2"]
    assert ("awsbatch" in findings[0].message) == (scheduler == "awsbatch")
    assert findings[0].fix.startswith("stay on 3.15" if scheduler == "awsbatch" else "use one of alinux2023")


def test_a_login_at_another_server_names_it(run: Run) -> None:
    login = "wandb login --relogin --host https://wandb.example.com $TOKEN\nsrun python train.py\n"
    [finding] = run("a.sbatch", SBATCH + login, "SEC005")
    assert (finding.level, finding.span.column) == ("warning", 56)
    assert finding.fix == "remove the login, and set WANDB_API_KEY and WANDB_BASE_URL in the environment"
    assert shown(run("a.sbatch", SBATCH + "#SBATCH --exclusive\n" + login, "SEC005")) == ["info SEC005 5"]


SAMPLER = """import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler
dist.init_process_group("nccl")
data = load()
model = torch.nn.parallel.DistributedDataParallel(net())
optimizer = torch.optim.AdamW(model.parameters())
loader = DataLoader(data, sampler=DistributedSampler(data))
for epoch in range(10):
    for batch in loader:
        model(batch).backward()
{end}
"""


def test_a_script_that_keeps_no_model_measures(run: Run) -> None:
    assert shown(run("train.py", SAMPLER.format(end="print(seconds)"), "PYT004")) == ["info PYT004 8"]
    kept = SAMPLER.format(end="torch.save(model.state_dict(), 'a.pt')")
    assert shown(run("train.py", kept, "PYT004")) == ["warning PYT004 8"]
