"""Settings, exports and limits that are written down and do not reach the job: variables that nothing exports or reads,
steps that get a part of the environment, partitions and nodes of slurm.conf that take no such job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from check.reported import loud, shown
from trainwright.check.engine import check
from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]


def inside(*lines: str, directives: str = "#SBATCH --nodes=2") -> str:
    return "\n".join(("#!/bin/bash", directives, *lines, ""))


@pytest.mark.parametrize(
    "lines",
    [
        ("NCCL_IB_HCA=mlx5_0", "srun python train.py"),
        ("# NCCL_DEBUG=INFO helps", "NCCL_DEBUG=WARN", "torchrun --standalone train.py"),
        ("source ~/venv/bin/activate", "FI_EFA_FORK_SAFE=1", "srun ./start.sh train.py"),
        ("if true; then", "  TORCH_NCCL_BLOCKING_WAIT=0", "fi", "srun python train.py"),
    ],
)
def test_a_variable_of_nccl_without_export(run: Run, lines: tuple[str, ...]) -> None:
    assert [one.split()[:2] for one in loud(run("job.sbatch", inside(*lines), "SHL001"))] == [["warning", "SHL001"]]


@pytest.mark.parametrize(
    "lines",
    [
        ("NCCL_IB_HCA=mlx5_0", "export NCCL_IB_HCA", "srun python train.py"),
        ("NCCL_IB_HCA=mlx5_0 srun python train.py",),
        ("NCCL_IB_HCA=mlx5_0 \\", "  srun python train.py"),
        ("set -a", "NCCL_IB_HCA=mlx5_0", "set +a", "srun python train.py"),
        ("NCCL_IB_HCA=mlx5_0", "mpirun -x NCCL_IB_HCA python train.py"),
        ("NCCL_IB_HCA=mlx5_0", "docker run -e NCCL_IB_HCA=$NCCL_IB_HCA a:1 torchrun train.py"),
        ("NCCL_IB_HCA=mlx5_0", 'srun --export="ALL,NCCL_IB_HCA=${NCCL_IB_HCA}" python train.py'),
        ("declare -x NCCL_IB_HCA=mlx5_0", "srun python train.py"),
        ("source site.sh", "NCCL_IB_HCA=mlx5_0", "srun python train.py"),  # which may export it
        ("srun python train.py", "NCCL_IB_HCA=mlx5_0"),
        ("LR=1e-4", "BATCH=8", "srun python train.py"),
    ],
)
def test_a_variable_that_reaches_the_program(run: Run, lines: tuple[str, ...]) -> None:
    assert loud(run("job.sbatch", inside(*lines), "SHL001")) == []


EXPORTS = ("export MASTER_ADDR=$(hostname)", "export MASTER_PORT=29500", "export NCCL_IB_HCA=mlx5_0")


@pytest.mark.parametrize(
    ("step", "directives"),
    [
        ("srun --export=SEED=1 python train.py", "#SBATCH --nodes=2"),
        ("srun --export=NONE /opt/bin/python train.py", "#SBATCH --nodes=2"),
        ("srun --export SEED,LR torchrun --nnodes=2 train.py", "#SBATCH --nodes=2"),  # NCCL_IB_HCA
        ("srun python train.py", "#SBATCH --nodes=2\n#SBATCH --export=NONE"),
    ],
)
def test_a_step_that_gets_a_part_of_the_environment(run: Run, step: str, directives: str) -> None:
    text = inside(*EXPORTS, 'echo "head: $MASTER_ADDR"', step, directives=directives)
    (finding,) = run("job.sbatch", text, "SLU006")
    assert finding.level == "warning"
    assert "the tasks do not get" in finding.message
    assert "--export=ALL" in finding.fix


@pytest.mark.parametrize(
    ("lines", "directives"),
    [
        ((*EXPORTS, "srun --export=ALL,SEED=1 python train.py"), "#SBATCH --nodes=2"),
        ((*EXPORTS, "srun --export=MASTER_ADDR,MASTER_PORT,NCCL_IB_HCA python train.py"), "#SBATCH --nodes=2"),
        ((*EXPORTS[:2], "srun --export=SEED=1 torchrun --nnodes=2 train.py"), "#SBATCH --nodes=2"),
        ((*EXPORTS[:1], "srun --export=SEED=1 python train.py --head $MASTER_ADDR"), "#SBATCH --nodes=2"),
        (("export DATA=/fsx/data", "srun --export=SEED=1 python train.py --data $DATA"), "#SBATCH --nodes=2"),
        ((*EXPORTS, "unset SLURM_EXPORT_ENV", "srun python train.py"), "#SBATCH --nodes=2\n#SBATCH --export=NONE"),
        ((*EXPORTS, "srun --export=ALL python train.py"), "#SBATCH --nodes=2\n#SBATCH --export=NONE"),
        ((*EXPORTS, "srun --export=$VARIABLES python train.py"), "#SBATCH --nodes=2"),
    ],
)
def test_a_step_that_gets_what_it_needs(run: Run, lines: tuple[str, ...], directives: str) -> None:
    assert loud(run("job.sbatch", inside(*lines, directives=directives), "SLU006")) == []


CACHES = ("export HF_HOME=/gpfs/cache", "export WANDB_MODE=offline", "mkdir -p logs", "source venv/bin/activate")
NONE = "#SBATCH --nodes=2\n#SBATCH --export=NONE"


@pytest.mark.parametrize(
    "step",
    [
        "srun python train.py",
        "srun --exact -n 1 lm_eval --model hf > logs/a 2>&1 &\nwait",
        "for n in 1 2; do\n  srun --exact -n 1 vllm bench --seed $n &\ndone\nwait",
        "srun --export=NONE python train.py",
        "srun --export=SEED=1 accelerate launch train.py",
    ],
)
def test_what_libraries_read_does_not_reach_the_tasks(run: Run, step: str) -> None:
    (finding,) = run("job.sbatch", inside(*CACHES, step, directives=NONE), "SLU006")
    assert finding.level == "warning"
    assert "the tasks do not get HF_HOME, WANDB_MODE" in finding.message
    assert "HF_HOME" in finding.why


@pytest.mark.parametrize(
    "lines",
    [
        ("hf download org/model", "srun --export=NONE python train.py"),  # for the download
        ("python fetch.py", "srun python train.py"),
        ("srun --export=ALL python train.py",),
        ("srun bash train.sh",),  # which may export them itself
        ("srun ./train.sh",),
        ("srun nvidia-smi", "srun --export=ALL python train.py"),
        ("srun -n 1 stress-test", "srun --export=ALL python train.py"),
        ("export SLURM_EXPORT_ENV=ALL", "srun python train.py"),
        ("torchrun --standalone train.py",),
        ("srun --export=HF_HOME,WANDB_MODE python train.py",),
        ("srun env HF_HOME=$HF_HOME WANDB_MODE=$WANDB_MODE python train.py",),
    ],
)
def test_what_the_batch_script_exports_for_itself(run: Run, lines: tuple[str, ...]) -> None:
    assert loud(run("job.sbatch", inside(*CACHES, *lines, directives=NONE), "SLU006")) == []


CONF = """ClusterName=c
SlurmctldHost=head
{extra}
NodeName=a[1-4] CPUs=8 RealMemory=64000
PartitionName=DEFAULT MaxTime=1-00:00:00
PartitionName=short Nodes=a[1-4] MaxTime=240 Default=YES
PartitionName=wide Nodes=ALL MaxTime=UNLIMITED MaxNodes=2
PartitionName=day Nodes=ALL
PartitionName=shared Nodes=ALL QOS=shared
"""


@pytest.mark.parametrize(
    ("options", "effect"),
    [
        ("--partition=short --time=4:01:00", "waits for ever"),
        ("-p day -t 30:00:00", "waits for ever"),
        ("-p day -t 2-0", "waits for ever"),
        ("-p wide -N 3-4", "waits for ever"),
        ("-p short -t 300", "refuses"),
    ],
)
def test_a_job_above_the_limits_of_its_partition(run: Run, tmp_path: Path, options: str, effect: str) -> None:
    conf = CONF.format(extra="EnforcePartLimits=ALL" if effect == "refuses" else "")
    (tmp_path / "slurm.conf").write_text(conf)
    (finding,) = run("job.sbatch", inside("srun python train.py", directives=f"#SBATCH {options}"), "SLU006")
    assert (finding.level, effect in finding.message) == ("warning", True)


@pytest.mark.parametrize(
    "options",
    [
        "-p short -t 4:00:00",
        "-p day -t 1-0",
        "-p wide -N 2 -t 30-0",
        "-p other -t 30-0",
        "-p shared -t 2-0",  # whose QOS may raise the limit
        "-p day -t 2-0 --qos=long",
        "-p short,wide -t 2-0",  # one of them takes it
        "-t 2-0",
        "-p day -t $LIMIT",
    ],
)
def test_a_job_within_the_limits_of_its_partition(run: Run, tmp_path: Path, options: str) -> None:
    (tmp_path / "slurm.conf").write_text(CONF.format(extra=""))
    text = inside("srun python train.py", directives=f"#SBATCH {options}")
    assert [one for one in run("job.sbatch", text, "SLU006") if "has Max" in one.message] == []


def test_another_file_gives_another_partition(run: Run, tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text(CONF.format(extra=""))
    (tmp_path / "README.md").write_text("    sbatch -p wide job.sbatch\n")
    assert loud(run("job.sbatch", inside("srun python a.py", directives="#SBATCH -p day -t 2-0"), "SLU006")) == []


MEMORY = """ClusterName=c
SlurmctldHost=head
SelectType=select/cons_tres
SelectTypeParameters={select}
{extra}
NodeName=a[1-8] CPUs=128 {node}
PartitionName=train Nodes=ALL {default} Default=YES
"""


@pytest.mark.parametrize(
    ("select", "extra", "node", "default", "expected"),
    [
        ("CR_CPU_Memory", "", "", "DefMemPerCPU=4000", ["warning SLU005 6"]),
        ("CR_Core_Memory", "DefMemPerNode=4000", "RealMemory=1", "", ["warning SLU005 6"]),
        ("CR_Core_Memory", "", "", "", []),  # a job without --mem starts
        ("CR_Core", "", "", "DefMemPerCPU=4000", []),
        ("CR_Core_Memory", "NodeName=DEFAULT RealMemory=500000", "", "DefMemPerCPU=4000", []),
        ("CR_Core_Memory", "Include nodes.conf", "", "DefMemPerCPU=4000", []),
        ("CR_Core_Memory", "FastSchedule=0", "", "DefMemPerCPU=4000", []),
        ("CR_Core_Memory", "", "State=FUTURE", "DefMemPerCPU=4000", []),
        ("CR_Core_Memory", "", "RealMemory=$MEMORY", "DefMemPerCPU=4000", []),
    ],
)
def test_nodes_without_memory(run: Run, select: str, extra: str, node: str, default: str, expected: list[str]) -> None:
    conf = MEMORY.format(select=select, extra=extra, node=node, default=default)
    assert loud(run("slurm.conf", conf, "SLU005")) == expected


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("NCCL_SOCKETIFNAME", "NCCL_SOCKET_IFNAME"),
        ("NCCL_IB_TIMEUOT", "NCCL_IB_TIMEOUT"),
        ("NCCL_SHM_DISABEL", "NCCL_SHM_DISABLE"),
        ("NCCL_NSOCKS_PER_THREAD", "NCCL_NSOCKS_PERTHREAD"),
        ("GLOO_SOCKET_IF_NAME", "GLOO_SOCKET_IFNAME"),
        ("NCCL_IB_HCAS", "NCCL_IB_HCA"),
    ],
)
def test_a_name_that_nccl_does_not_read(run: Run, name: str, meant: str) -> None:
    text = f"#!/bin/bash\nexport {name}=4\ntorchrun --standalone train.py\n"
    (finding,) = run("run.sh", text, "ENV002")
    assert (finding.level, finding.fix) == ("warning", f"write {meant}, or remove it")


@pytest.mark.parametrize(
    "lines",
    [
        "export NCCL_IB_SPLIT_DATA_ON_QPS=0",
        "export NCCL_NET_GDR_C2C=1",  # real, and near to no other
        "export NCCL_MAX_P2P_NCHANNELS=8",
        "export NCCL_SOCKET_IF_NAME=eth0\nexport NCCL_SOCKET_IFNAME=$NCCL_SOCKET_IF_NAME",
        "export MY_NCCL_IB_HCAS=4",
    ],
)
def test_other_names_are_left_alone(run: Run, lines: str) -> None:
    assert loud(run("run.sh", f"#!/bin/bash\n{lines}\ntorchrun --standalone train.py\n", "ENV002")) == []


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("net.env", "NCCL_SOCKET_IFNAME=^docker,^lo\n", ["warning ENV003 1"]),
        ("net.env", 'export NCCL_SOCKET_IFNAME="^docker,virbr,^lo"  # of the hosts\n', ["warning ENV003 1"]),
        ("run.sh", "#!/bin/bash\nexport NCCL_SOCKET_IFNAME=^lo,^br\ntorchrun train.py\n", ["warning ENV003 2"]),
        ("net.env", "NCCL_SOCKET_IFNAME=^docker,lo\n", []),
        ("net.env", "NCCL_SOCKET_IFNAME=eth,ib\n", []),
        ("net.env", "# NCCL_SOCKET_IFNAME=^docker,^lo\nNCCL_DEBUG=WARN\n", []),
        ("nodes.env", "export NUM_NODES=4\nexport NCCL_SOCKET_IFNAME=lo\n", ["error ENV003 2"]),
        ("nodes.env", "export NNODES=1\nexport NCCL_SOCKET_IFNAME=lo\n", []),
        ("nodes.env", "export NNODES=${NNODES:-2}\nexport NCCL_SOCKET_IFNAME=lo\n", []),
        ("nodes.env", "export NCCL_SOCKET_IFNAME=lo\n", []),
    ],
)
def test_interfaces_of_a_file_of_variables(run: Run, name: str, text: str, expected: list[str]) -> None:
    assert loud(run(name, text, "ENV003")) == expected


def test_only_variables_of_nccl_make_a_file_one_of_ours(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("DATABASE_PASSWORD=abcdef0123456789abcdef\nDEBUG=1\n")
    (tmp_path / "nccl.env").write_text("NCCL_DEBUG=WARN\nHF_HOME=/fsx/hf\nSAY=two words # and more\n")
    result = check([str(tmp_path)])
    assert (result.files, shown(result.findings)) == (1, [])


@pytest.mark.parametrize(
    ("out", "count"),
    [
        ("$SCRATCH/sweep", 1),
        ("${HOME}/sweep/$SLURM_ARRAY_JOB_ID", 1),
        ("$SCRATCH/sweep/$SLURM_JOB_ID", 0),
        ("$TMPDIR/sweep", 0),
        ("$HOME/sweep/$(date +%s%N)", 0),
        ("${SCRATCH:-/tmp}/sweep", 0),
        ("$SCRATCHES/sweep", 0),
    ],
)
def test_tasks_of_an_array_below_a_directory_of_the_user(run: Run, out: str, count: int) -> None:
    start = 'srun python train.py --seed $SLURM_ARRAY_TASK_ID --save_path "$OUT/model.pt"'
    text = inside(f"OUT={out}", start, directives="#SBATCH --array=1-4")
    assert len(run("sweep.sbatch", text, "JOB011")) == count


@pytest.mark.parametrize(
    ("first", "lines", "count"),
    [
        ("#!/bin/bash", ("python train.py | tee log", "[[ $? == 0 ]] && rm -rf old"), 1),
        ("#!/usr/bin/env bash", ("if torchrun train.py |& tee log; then", "  mv new best", "fi"), 1),
        ("#!/bin/bash", ("deepspeed train.py | tee log || exit 1", "python eval.py"), 1),
        ("#!/bin/bash", ("python train.py | tee log", "[ ${PIPESTATUS[0]} -eq 0 ] && rm -rf old"), 0),
        ("#!/bin/bash", ("set -euo pipefail", "python train.py | tee log || exit 1"), 0),
        ("#!/bin/bash", ("set -e", "python train.py | tee log", "python eval.py"), 0),
        ("#!/bin/bash", ("python train.py > log", "[ $? -eq 0 ] && rm -rf old"), 0),
        ("# sourced by run.sh", ("python train.py | tee log", "[ $? -eq 0 ] && rm -rf old"), 0),
    ],
)
def test_a_plain_script_asks_for_the_status_of_tee(run: Run, first: str, lines: tuple[str, ...], count: int) -> None:
    assert len(loud(run("nightly.sh", "\n".join((first, *lines, "")), "SLU006"))) == count
