"""What sets M and N showed: noisy and false findings, each beside what must still be found."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from reported import shown

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]
SBATCH = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gres=gpu:4\n"


@pytest.mark.parametrize("directive", ["--partition=a100#b#c", "--nodes=2#two", "--time=1:10:00#ten"])
def test_sbatch_ends_a_line_at_a_hash(run: Run, directive: str) -> None:
    assert shown(run("a.sbatch", f"{SBATCH}#SBATCH {directive}\nsrun python train.py\n", "SLU006")) == []


def test_a_path_to_change_to_takes_no_patterns(run: Run) -> None:
    findings = run("a.sbatch", SBATCH + "#SBATCH --chdir=/users/$USER/x\nsrun python train.py\n", "SLU006")
    assert [f.fix for f in findings] == [
        "write a literal path, or remove it, and pass it: sbatch --chdir=/users/$USER/x …"
    ]
    findings = run("a.sbatch", SBATCH + "#SBATCH --output=/users/$USER/x\nsrun python train.py\n", "SLU006")
    assert [f.fix for f in findings] == ["write /users/%u/x, where that directory exists"]


def test_words_that_lost_their_comment_sign_are_not_continued(run: Run) -> None:
    prose = " srun error handling:\n --wait=60: wait 60 s after the first task ends\n"
    assert shown(run("a.sbatch", SBATCH + prose, "SHL001")) == []
    options = "srun --label python train.py --lr 1e-4\n    --steps 100\n"
    assert shown(run("a.sbatch", SBATCH + options, "SHL001")) == ["warning SHL001 5"]


def test_a_variable_that_is_only_shown_is_not_needed(run: Run) -> None:
    echo = SBATCH + 'echo "GPUS" $SLURM_GPUS\nprintf "%s\\n" "$SLURM_GPUS_PER_NODE"\nsrun python train.py\n'
    assert shown(run("a.sbatch", echo, "SLU006")) == []
    used = SBATCH + "echo $SLURM_GPUS\nsrun torchrun --nproc_per_node=$SLURM_GPUS train.py\n"
    assert shown(run("a.sbatch", used, "SLU006")) == ["warning SLU006 5"]
    counted = SBATCH + "NPROC=$(echo $SLURM_GPUS | cut -d: -f2)\nsrun torchrun --nproc_per_node=$NPROC train.py\n"
    assert shown(run("a.sbatch", counted, "SLU006")) == ["warning SLU006 5"]


def test_a_comment_may_say_that_the_directory_must_exist(run: Run) -> None:
    text = SBATCH + "#SBATCH --output=logs/%j.out\n{comment}mkdir -p logs\nsrun python train.py\n"
    known = "# submit from the root, so that the logs/ directory of --output exists\n"
    assert shown(run("a.sbatch", text.format(comment=known), "SHL001")) == []
    assert shown(run("a.sbatch", text.format(comment="# write logs\n"), "SHL001")) == ["warning SHL001 4"]
    for other in (
        "# submit when the checkpoint exists, see catalogs\n",
        "# create the logs directory if it does not exist\n",
    ):
        assert shown(run("a.sbatch", text.format(comment=other), "SHL001")) == ["warning SHL001 4"]


def test_a_block_for_debugging_says_so_at_its_head(run: Run) -> None:
    block = "{head}export NCCL_DEBUG=INFO\nexport NCCL_DEBUG_SUBSYS=ALL\nsrun python train.py\n"
    assert shown(run("a.sbatch", SBATCH + block.format(head="\n## for debugging\n"), "ENV002")) == []
    assert shown(run("a.sbatch", SBATCH + block.format(head="\n## network\n"), "ENV002")) == ["warning ENV002 7"]
    other = block.format(head="\n# debug output only when something hangs\n")
    assert shown(run("a.sbatch", SBATCH + other, "ENV002")) == []  # nor who says when it is wanted
    apart = block.format(head="# for debugging\nexport A=1\n\n")
    assert shown(run("a.sbatch", SBATCH + apart, "ENV002")) == ["warning ENV002 8"]


def test_the_kernel_decides_whether_fork_support_of_rdma_core_breaks(run: Run) -> None:
    text = SBATCH + "export RDMAV_FORK_SAFE=1\nexport FI_EFA_USE_DEVICE_RDMA=1\nsrun torchrun train.py\n"
    assert "info ENV001 4" in shown(run("a.sbatch", text, "ENV001"))


CLUSTER = """Image: {{Os: ubuntu2004{ami}}}
HeadNode: {{InstanceType: m5.large, Networking: {{SubnetId: subnet-12345678}}, Ssh: {{KeyName: k}}}}
Scheduling:
  Scheduler: slurm
  SlurmQueues:
    - Name: q
      Networking: {{SubnetIds: [subnet-12345678]}}
      ComputeResources: [{{Name: p, InstanceType: p5.48xlarge, MinCount: 0, MaxCount: 2}}]
"""


def test_sockets_are_a_note_that_says_what_follows(run: Run) -> None:
    findings = run("c.yaml", CLUSTER.format(ami=""), "SLU003")
    assert shown(findings) == ["info SLU003 8"]
    assert "bind ranks" in findings[0].message
