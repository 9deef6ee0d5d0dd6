"""What the judged files of set X showed: false alarms about what the caller or the place of a script decides."""

from __future__ import annotations

from reported import shown

LAUNCH = """#!/bin/bash
NNODES={nodes}
MASTER_ADDR={address}
torchrun --nnodes=$NNODES --nproc_per_node=8 --node_rank=$NODE_RANK --master_addr=$MASTER_ADDR train.py {more}
"""


def test_a_default_is_for_the_caller_to_replace(run) -> None:  # type: ignore[no-untyped-def]
    text = LAUNCH.format(nodes="${NNODES:-2}", address="${MASTER_ADDR:-localhost}", more="")
    assert shown(run("a.sh", text, "JOB009")) == []
    text = LAUNCH.format(nodes="2", address="${MASTER_ADDR:-localhost}", more="")
    assert shown(run("b.sh", text, "JOB009")) == []
    assert shown(run("c.sh", LAUNCH.format(nodes="2", address="localhost", more=""), "JOB009")) == ["info JOB009 3"]


def test_a_default_number_of_nodes_contradicts_nothing(run) -> None:  # type: ignore[no-untyped-def]
    sizes = "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 4"
    text = LAUNCH.format(nodes="${NNODES:-2}", address="$HOST", more=sizes)
    assert shown(run("a.sh", text, "JOB002")) == []
    assert shown(run("b.sh", LAUNCH.format(nodes="2", address="$HOST", more=sizes), "JOB002")) == ["error JOB002 4"]


def test_a_token_that_is_filled_in_later_is_a_note(run) -> None:  # type: ignore[no-untyped-def]
    pod = (
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec:\n  containers:\n  - name: a\n    image: b:1\n"
        "    env:\n    - name: HF_TOKEN\n      value: {}\n"
    )
    assert shown(run("a.yaml", pod.format("${HF_TOKEN}"), "K8S001")) == ["info K8S001 10"]
    assert shown(run("b.yaml", pod.format("abcdefgh0123456789ab"), "K8S001")) == ["warning K8S001 10"]


def test_a_log_directory_is_missing_where_the_job_makes_it(run) -> None:  # type: ignore[no-untyped-def]
    text = "#!/bin/bash\n#SBATCH --output=./logs/slurm/%j.out\n{}srun python train.py\n"
    assert shown(run("a.sbatch", text.format(""), "SHL001")) == ["info SHL001 2"]
    assert shown(run("b.sbatch", text.format('mkdir -p "logs/slurm"\n'), "SHL001")) == ["warning SHL001 2"]
    assert shown(run("c.sbatch", text.format("mkdir -p logs/slurmX\n"), "SHL001")) == ["info SHL001 2"]


def test_a_secret_on_a_command_line_concerns_machines_of_several_users(run) -> None:  # type: ignore[no-untyped-def]
    login = "huggingface-cli login --token {}\n"
    assert shown(run("a.sh", "#!/bin/bash\n" + login.format("$HF_TOKEN"), "SEC005")) == ["info SEC005 2"]
    assert shown(run("b.sh", "#!/bin/bash\n" + login.format("hf_abc"), "SEC005")) == ["warning SEC005 2"]
    job = "#!/bin/bash\n#SBATCH --nodes=1\n" + login.format("$HF_TOKEN")
    assert shown(run("c.sbatch", job, "SEC005")) == ["warning SEC005 3"]
    image = "FROM pytorch:1\nRUN " + login.format("$HF_TOKEN")
    assert shown(run("Dockerfile", image, "SEC005")) == ["warning SEC005 2"]


def test_a_branch_of_the_script_decides_a_variable(run) -> None:  # type: ignore[no-untyped-def]
    text = "#!/bin/bash\nexport FI_EFA_USE_DEVICE_RDMA=1\n{}export NCCL_NET_GDR_LEVEL=0\n{}srun torchrun train.py\n"
    switch = text.format('if [ "$MODE" = off ]; then\n', "fi\n")
    assert shown(run("a.sh", switch, "ENV001")) == ["info ENV001 4"]
    always = text.format("if true; then echo; fi\n", "")
    assert shown(run("b.sh", always, "ENV001")) == ["warning ENV001 4"]


def test_a_surplus_family_of_a_list_is_a_note(run) -> None:  # type: ignore[no-untyped-def]
    pool = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: a}}\nspec:\n  template:\n    spec:\n"
    pool += "      requirements:\n      - {{key: karpenter.k8s.aws/instance-family, operator: In, values: [{}]}}\n"
    assert shown(run("a.yaml", pool.format("p4, p5"), "K8S005")) == ["info K8S005 8"]
    assert shown(run("b.yaml", pool.format("p4"), "K8S005")) == ["warning K8S005 8"]
