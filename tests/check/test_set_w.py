"""What the judged files of set W and a first-time user's files showed: false alarms, and mistakes that were missed."""

from __future__ import annotations

from pathlib import Path

import pytest
from reported import shown


def sbatch(*lines: str) -> str:
    return "\n".join(["#!/bin/bash", *lines, ""])


ACCELERATE = "accelerate launch --main_process_ip $A --main_process_port {port} --num_processes {n} {more} train.py"


def test_job009_knows_that_accelerate_passes_the_endpoint(run) -> None:  # type: ignore[no-untyped-def]
    more = "--num_machines 2 --rdzv_backend c10d"
    launch = "srun " + ACCELERATE.format(port=29900, n=4, more=more)
    assert shown(run("a.sbatch", sbatch("#SBATCH --nodes=2", "#SBATCH --exclusive", launch), "JOB009")) == []
    one = ACCELERATE.format(port=12017, n=1, more="")
    assert shown(run("b.sbatch", sbatch("#SBATCH --nodes=1", "#SBATCH --gres=gpu:1", one), "JOB009")) == []
    free = ACCELERATE.format(port=0, n=2, more="--num_machines=1")
    assert shown(run("c.sh", sbatch(free), "JOB009")) == []
    shared = ACCELERATE.format(port=12017, n=2, more="")
    assert shown(run("d.sbatch", sbatch("#SBATCH --nodes=1", "#SBATCH --gres=gpu:2", shared), "JOB009")) == [
        "info JOB009 4"
    ]


def test_job011_leaves_the_scratch_of_other_sites_alone(run) -> None:  # type: ignore[no-untyped-def]
    launch = "srun torchrun --nnodes=2 --nproc_per_node=8 train.py --output_dir /scratch/someone/out"
    assert shown(run("a.sbatch", sbatch("#SBATCH --nodes=2", launch), "JOB011")) == ["info JOB011 3"]
    for sign in ("export NCCL_SOCKET_IFNAME=ib0", "export NCCL_NET=IB", "#SBATCH --account=proj", "module load cuda"):
        assert shown(run("b.sbatch", sbatch("#SBATCH --nodes=2", sign, launch), "JOB011")) == []


def test_env001_knows_cards_without_nvlink(run) -> None:  # type: ignore[no-untyped-def]
    lines = ["#SBATCH --gres=gpu:8", "export NCCL_P2P_DISABLE=1", "torchrun --nproc_per_node=8 train.py"]
    assert shown(run("a.sbatch", sbatch("#SBATCH --partition=gpu", *lines), "ENV001")) == ["info ENV001 4"]
    assert shown(run("b.sbatch", sbatch("#SBATCH --partition=RTX4090", *lines), "ENV001")) == []


def test_job005_leaves_the_warmup_of_torchtitan_alone(run) -> None:  # type: ignore[no-untyped-def]
    titan = "[training]\nsteps = 10\n[optimizer]\nlr = 1e-3\n[lr_scheduler]\nwarmup_steps = 200\n[parallelism]\n"
    assert shown(run("a.toml", titan, "JOB005")) == []


def test_what_was_noise_is_a_note_or_silent(run) -> None:  # type: ignore[no-untyped-def]
    launch = "torchrun --nproc_per_node=8 train.py"
    text = sbatch("export NCCL_BLOCKING_WAIT=1", launch)
    assert shown(run("a.sh", text, "ENV002")) == ["info ENV002 2"]
    off = sbatch("export NCCL_IB_DISABLE=1", "export NCCL_NET_GDR_LEVEL=0", launch)
    assert shown(run("b.sh", off, "ENV001")) == []
    assert shown(run("c.sh", off.replace("IB_DISABLE=1", "IB_DISABLE=0"), "ENV001")) == ["info ENV001 3"]
    aside = sbatch("#SBATCH --nodes=1", launch, "#SBATCH --nodelist=node1")
    assert shown(run("d.sbatch", aside, "SHL001")) == ["info SHL001 4"]
    late = sbatch("#SBATCH --nodes=1", "cd /fsx", "#SBATCH --nodelist=node1", launch)
    assert shown(run("e.sbatch", late, "SHL001")) == ["warning SHL001 4"]
    image = (
        "FROM nvidia/cuda:12.4.1-devel-ubuntu22.04\nARG TORCH_VERSION==2.3.0\nRUN pip install torch${TORCH_VERSION}\n"
    )
    assert shown(run("Dockerfile", image, "SHL001")) == []


EFA = ("#SBATCH --nodes=2", "#SBATCH --ntasks-per-node=1", "#SBATCH --exclusive", "export FI_EFA_USE_HUGE_PAGE=0")
TORCHRUN = "srun torchrun --nnodes=2 --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=$head:29500 train.py"


def test_env003_says_what_loopback_does(run) -> None:  # type: ignore[no-untyped-def]
    [finding] = run("a.sbatch", sbatch(*EFA, "export NCCL_SOCKET_IFNAME=lo", TORCHRUN), "ENV003")
    assert (finding.level, finding.span.line) == ("error", 6)
    assert "127.0.0.1" in finding.message
    one = sbatch("#SBATCH --nodes=1", "export NCCL_SOCKET_IFNAME=lo", "torchrun --nproc_per_node=8 train.py")
    assert shown(run("b.sbatch", one, "ENV003")) == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("FI_PROVIDER=tcp", "error ENV001 6"),
        ("FI_PROVIDER=sockets", "error ENV001 6"),
        ("NCCL_NET_PLUGIN=none", "error ENV001 6"),
        ("NCCL_SHM_DISABLE=1", "info ENV002 6"),
        ("NCCL_IB_HCA=mlx5_0", "info ENV002 6"),
        ("CUDA_LAUNCH_BLOCKING=1", "warning ENV002 6"),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING=0", "info ENV002 6"),
        ("OFI_NCCL_PROTOCOL=SENDREC", "info ENV002 6"),
    ],
)
def test_variables_that_cost_speed_or_safety(run, line: str, expected: str) -> None:  # type: ignore[no-untyped-def]
    text = sbatch(*EFA, f"export {line}", TORCHRUN)
    assert shown(run("a.sbatch", text, "ENV001", "ENV002", "JOB001")) == [expected]
    plain = sbatch("export FI_PROVIDER=tcp", "export NCCL_IB_HCA=mlx5_0", "mpirun -np 8 ./solver")
    assert shown(run("b.sh", plain, "ENV001", "ENV002")) == []


def test_threads_and_minutes(run) -> None:  # type: ignore[no-untyped-def]
    lines = ["#SBATCH --nodes=8", "#SBATCH --ntasks-per-node=8", "#SBATCH --time=10:00", "export OMP_NUM_THREADS={}"]
    text = sbatch(*lines, "srun python train.py")
    assert shown(run("a.sbatch", text.format(192), "JOB006", "SLU006")) == ["info SLU006 4", "warning JOB006 5"]
    assert shown(run("b.sbatch", text.format(12).replace("10:00", "10:00:00"), "JOB006", "SLU006")) == []


RANKS = ("#SBATCH --nodes=4", "#SBATCH --ntasks-per-node=8", "export MASTER_ADDR=$(hostname)")


def test_job008_reads_what_the_batch_script_exports(run, tmp_path) -> None:  # type: ignore[no-untyped-def]
    lines = (*RANKS, "export WORLD_SIZE=8", "export RANK=$SLURM_LOCALID", "srun python train.py")
    (tmp_path / "train.py").write_text("import torch\ntorch.distributed.init_process_group('nccl')\n")
    assert shown(run("a.sbatch", sbatch(*lines), "JOB008")) == ["error JOB008 5", "error JOB008 6"]
    right = (*RANKS, "export WORLD_SIZE=$SLURM_NTASKS", "srun bash -c 'export RANK=$SLURM_PROCID; python train.py'")
    assert shown(run("b.sbatch", sbatch(*right), "JOB008")) == []
    once = (*RANKS, "export WORLD_SIZE=32", "srun torchrun --nnodes=4 --nproc_per_node=8 train.py")
    assert shown(run("c.sbatch", sbatch(*once), "JOB008")) == []
    through = ("export RANK=$SLURM_PROCID", "srun accelerate launch --num_machines 4 --machine_rank $RANK train.py")
    assert shown(run("d.sbatch", sbatch("#SBATCH --nodes=4", *through), "JOB008")) == ["error JOB008 3"]


def test_an_unknown_nnodes_does_not_hide_the_job(run) -> None:  # type: ignore[no-untyped-def]
    lines = ("#SBATCH --nodes=16", "#SBATCH --ntasks-per-node=1", "#SBATCH --exclusive")
    options = "--num-layers 32 --micro-batch-size 1 --global-batch-size 100 --save /tmp/ckpt --bf16 --fp16"
    for nodes in ("16", "$SLURM_NTASKS", "${NODES}"):
        launch = f"srun torchrun --nnodes={nodes} --nproc_per_node=8 pretrain_gpt.py {options}"
        codes = ("JOB003", "JOB011", "JOB013")
        assert sorted(f.code for f in run("a.sbatch", sbatch(*lines, launch), *codes)) == sorted(codes)


def test_job016_compares_the_precision(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    launch = "torchrun --nproc_per_node 8 train.py --deepspeed ds.json --output_dir /fsx/o --bf16"
    for text, expected in (('{"fp16": {"enabled": true}}', ["error JOB016 2"]), ('{"bf16": {"enabled": "auto"}}', [])):
        stage = ', "zero_optimization": {"stage": 3}}'
        (tmp_path / "ds.json").write_text(text[:-1] + stage)
        assert shown(run("run.sh", sbatch(launch), "JOB016")) == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["export NEPTUNE_API_TOKEN=" + "eyJhcGlfYWRk" * 4 + "=="], "error SEC003 2"),
        (["export HF_HOME /fsx/cache"], "warning SHL001 2"),
        (["torchrun --nproc_per_node=8 \\", "  train.py", "  --lr 1e-4 \\", "  --epochs 3"], "warning SHL001 4"),
        (["#SBATCH --nodes=1", "#sBATCH --mem=8G", "srun python train.py"], "warning SLU006 3"),
        (["#SBATCH --ntasks-per-node=1# one", "srun python train.py"], None),
        (["#SBATCH --nodes=1", "##SBATCH --mem=8G", "# SBATCH -n 1", "srun python train.py --lr 1e-4"], None),
        (["ARGS=(", "  --lr 1e-4", "  --epochs 3", ")", 'python train.py "${ARGS[@]}"'], None),
        (["for a; do case $a in", "  --steps) shift;;", "  --lr|-l)", "    shift;;", "esac; done"], None),
        (["cat <<END", "usage:", "  --lr 1e-4", "END", 'echo "a', '--lr"', "export PATH HOME"], None),
    ],
)
def test_lines_that_slurm_or_bash_reads_otherwise(run, lines: list[str], expected: str | None) -> None:  # type: ignore[no-untyped-def]
    findings = run("a.sbatch", sbatch(*lines), "SEC003", "SHL001", "SLU006")
    assert shown(findings) == ([expected] if expected else [])


def test_offloaded_parameters_need_stage_3_in_accelerate_too(run) -> None:  # type: ignore[no-untyped-def]
    text = (
        "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\n"
        "deepspeed_config:\n  offload_param_device: cpu\n  zero_stage: {}\n"
    )
    assert shown(run("a.yaml", text.format(2), "DSP001")) == ["warning DSP001 4"]
    assert shown(run("b.yaml", text.format(3), "DSP001")) == []


MPIJOB = """apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: nccl}
spec:
  slotsPerWorker: 8
  mpiReplicaSpecs:
    Launcher:
      template:
        spec:
          containers:
          - name: nccl
            image: registry.example.com/nccl:1
            command: [mpirun, -np, "RANKS", -N, "8", /opt/nccl-tests/build/all_reduce_perf, -g, "1"]
    Worker:
      replicas: 16
      template:
        spec:
          containers:
          - {name: nccl, image: 'registry.example.com/nccl:1', resources: {limits: {nvidia.com/gpu: 8}}}
"""


def test_idle_workers_of_mpirun_are_one_finding(run) -> None:  # type: ignore[no-untyped-def]
    idle = MPIJOB.replace("RANKS", "16")
    [finding] = run("a.yaml", idle, "K8S002", "JOB001")
    assert (finding.code, finding.level) == ("K8S002", "warning")
    assert "2 of the 16 workers" in finding.message
    assert shown(run("b.yaml", MPIJOB.replace("RANKS", "128"), "K8S002", "JOB001")) == []
