"""What set LL showed: noisy and false findings, each beside what must still be found."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from reported import shown

from trainwright.catalog import versions
from trainwright.catalog.versions import kubernetes_versions
from trainwright.check.engine import check
from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]
TWO_TASKS = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH {line}\nsrun torchrun --nproc_per_node 2 train.py\n"
MODULE = """module "eks" {{
  source             = "terraform-aws-modules/eks/aws"
  version            = "~> 21.0"
  kubernetes_version = {version}
  eks_managed_node_groups = {{ gpu = {{ instance_types = ["g5.xlarge"] }} }}
}}
"""
CLUSTER = (
    "apiVersion: eksctl.io/v1alpha5\nkind: ClusterConfig\n"
    "metadata: {{name: {name}, region: us-east-2, version: '{version}'}}\n"
)


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("--ntasks-per-node=2", "use one task per node (--ntasks-per-node=1)"),
        ("--ntasks=2 --gpus-per-node=2", "write --ntasks-per-node=1 in place of --ntasks=2"),
        (
            "--ntasks=2 --gpus-per-task=1",  # one task would be left with one GPU for two processes
            "write --ntasks-per-node=1 in place of --ntasks=2, --gpus-per-node=2 in place of --gpus-per-task",
        ),
    ],
)
def test_one_task_gets_the_gpus_of_all(run: Run, line: str, fix: str) -> None:
    (finding,) = run("a.sbatch", TWO_TASKS.format(line=line), "JOB001")
    assert finding.fix.startswith(f"{fix}, --cpus-per-task for all its processes, and --nproc_per_node=2:")


@pytest.mark.parametrize("command", ["mkdir -p logs && sbatch job.sbatch", "sbatch job.sbatch"])
def test_a_script_of_powershell_submits_too(tmp_path: Path, command: str) -> None:
    job = tmp_path / "job.sbatch"
    job.write_text("#!/bin/bash\n#SBATCH --output=logs/%j.out\nmkdir -p logs\nsrun python train.py\n")
    (tmp_path / "submit.ps1").write_text(f'ssh "$User@$Remote" "cd $Dir && {command}"\n')
    warnings = [f for f in check([str(job)]).findings if f.level == "warning"]
    assert len(warnings) == ("mkdir" not in command)


def supported(support: str) -> str:
    """A version of Kubernetes that has this support today, the oldest one."""
    return next(str(row.version) for row in kubernetes_versions() if row.support(versions.today()) == support)


def test_a_newer_version_is_one_that_lasts(run: Run) -> None:
    (finding,) = run("a.yaml", CLUSTER.format(name="gpu", version="1.21"), "EKS001")
    fix = finding.fix.partition(";")[0]
    proposed = fix.removeprefix("use ").split(" or ")
    later = versions.today() + timedelta(days=90)
    lasting = [str(row.version) for row in kubernetes_versions() if row.support(later) == "standard"]
    assert proposed == lasting or (not lasting and fix == "use a newer version")


@pytest.mark.parametrize(("name", "level"), [("gpu", "warning"), ("YourEKS-ClusterName", "info")])
def test_a_template_for_others_may_be_old(run: Run, name: str, level: str) -> None:
    text = CLUSTER.format(name=name, version=supported("extended"))
    assert shown(run("a.yaml", text, "EKS001")) == [f"{level} EKS001 3"]


def test_the_version_of_a_cluster_of_terraform_is_read(run: Run) -> None:
    assert shown(run("eks.tf", MODULE.format(version='"1.21"'), "EKS001")) == ["error EKS001 4"]
    assert shown(run("eks.tf", MODULE.format(version=f'"{supported("extended")}"'), "EKS001")) == ["warning EKS001 4"]
    assert shown(run("eks.tf", MODULE.format(version="var.kubernetes_version"), "EKS001")) == []
