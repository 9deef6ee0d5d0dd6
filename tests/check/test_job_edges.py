"""Edges of the job rules: when they must speak, and when they must not."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwright.catalog.instances import instance
from trainwright.check.engine import check
from trainwright.check.fixes import apply_edits
from trainwright.check.registry import all_rules
from trainwright.check.rules.ben import bandwidth_limit

HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --exclusive\n"


def codes(tmp_path: Path, text: str, name: str = "job.sbatch") -> list[str]:
    path = tmp_path / name
    path.write_text(text)
    return [f.code for f in check([str(path)]).findings]


@pytest.mark.parametrize(
    "line",
    [
        "srun -w node1 torchrun --nnodes=2 --node_rank 0 --master_addr=$M --master_port=2000 x.py",
        "srun -N1 -n1 torchrun --nnodes=2 --node_rank 0 --master_addr=$M --master_port=2000 x.py",
        "torchrun --nnodes=1 --node_rank=0 --rdzv_backend=c10d --rdzv_endpoint=localhost x.py",
        "torchrun --standalone --nproc_per_node=8 x.py",
        "srun torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$ENDPOINT x.py",
        "srun torchrun --nnodes=2 $RENDEZVOUS x.py",
        "export MASTER_ADDR=$(hostname)\nsrun torchrun --nnodes=2 x.py",
        "for n in a b; do ssh $n torchrun --nnodes=2 --rdzv_endpoint=$M:$P x.py & done",
        "srun torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$M:$P x.py --max_steps=-1 --warmup_steps=100",
        "srun torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$M:$P x.py --max_steps=10 --save_steps=100",
        "srun torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$M:$P x.py --output_dir=$TMPDIR/out",
        "srun torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$M:$P x.py --output_dir=./out",
        "srun torchrun --nnodes=$N --nproc_per_node=$G --rdzv_endpoint=$M:$P x.py --tp 3",
        "srun python -m vllm.entrypoints.openai.api_server --tensor-parallel-size 8",
        'L="accelerate launch --num_machines 2 --machine_rank \\$SLURM_NODEID "\nsrun bash -c "$L x.py"',
        "srun bash -c 'accelerate launch --num_machines 2 --machine_rank $SLURM_NODEID x.py'",
        "export NODES=( $( scontrol show hostnames ) )\nexport A=($NODES)",
        "#SBATCH --ntasks-per-node=1\n#SBATCH --gres=gpu:8\nsrun python bench.py --tp 8 --pp 3",
        "#SBATCH --job-name=llama3.1-8b-to-1b\nsrun torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$M:$P x.py "
        "--num_layers=16",
        "#SBATCH --gpus-per-node=8\n# remove this request on HyperPod\nsrun hostname",
        "#SBATCH --gpus-per-node=8\nif [ -d /opt/sagemaker_cluster ]; then R=--auto-resume=1; fi\nsrun $R hostname",
        "srun torchrun --nnodes=2 --node_rank=$SLURM_NODEID --rdzv_backend=c10d --rdzv_endpoint=$M:$P x.py",
        "srun torchrun --nnodes=2 --node_rank=0 --rdzv_backend=c10d --rdzv_endpoint=$M:$P x.py",
        "#SBATCH --partition= # yours\n{%- if time %}\n#SBATCH --time={{ time }}\n{%- endif %}\nsrun hostname",
        "srun sh -xeuc '\ntorchrun --master-addr '$M' --nnodes 2 --node-rank $SLURM_NODEID x.py'",
        "export NCCL_PROTO=simple",
        "export FI_PROVIDER=efa FI_EFA_USE_DEVICE_RDMA=1 FI_EFA_FORK_SAFE=1",
        "export NCCL_SOCKET_NTHREADS=4",
        "export NCCL_SOCKET_IFNAME=eth0",
        "NCCL_ALGO=ring",
        "srun all_reduce_perf -b 8 -e 128M -f 2",
        'if [ "$1" -gt 2 ]; then echo; fi',
        "echo \"{${HOME}}\" '{{.ID}}' ${HOME}",
    ],
)
def test_silent(tmp_path: Path, line: str) -> None:
    assert codes(tmp_path, HEAD + line + "\n") == []


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("srun torchrun --nnodes=2 --node_rank 0 --master_addr=$M --master_port=2000 x.py", "JOB008"),
        ("R=$SLURM_NODEID\nsrun torchrun --nnodes=2 --node_rank=$R --master_addr=$M --master_port=2000 x.py", "JOB008"),
        ("srun torchrun --nnodes=2 --rdzv_endpoint=$(hostname):80 x.py", "JOB009"),
        ("srun torchrun --nnodes=2 --master_addr=127.0.0.1 --master_port=2000 x.py", "JOB009"),
        ("torchrun --nnodes=2 --nproc_per_node=8 --rdzv_endpoint=$M:$P x.py", "JOB009"),
        ("srun torchrun --nnodes=2 --nproc_per_node=8 x.py", "JOB009"),
        ("srun torchrun --rdzv_endpoint=$M:$P x.py --vocab_size=32000 --tokenizer=meta-llama/Llama-3.1-8B", "JOB004"),
        ("export FI_PROVIDER=efa NCCL_SOCKET_NTHREADS=4", "ENV001"),
        ("export OFI_NCCL_VERSION=1.16.3\nexport FI_PROVIDER=efa NCCL_PROTO=simple\n", "ENV001"),
        ("mpirun -x RDMAV_FORK_SAFE=1 ./a.out", "ENV001"),
        ("srun --container-image=repo/train:latest torchrun x.py", "IMG003"),
        ("srun torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$M:$P x.py --output_dir=/dev/shm/out", "JOB011"),
    ],
)
def test_told(tmp_path: Path, line: str, code: str) -> None:
    assert code in codes(tmp_path, HEAD + line + "\n")


def test_old_plugin_may_keep_its_variables(tmp_path: Path) -> None:
    old = "export AWS_OFI_NCCL_VERSION=1.5.0\nexport FI_PROVIDER=efa NCCL_PROTO=simple FI_EFA_USE_DEVICE_RDMA=1\n"
    assert codes(tmp_path, HEAD + old) == []


def test_fixes_leave_a_file_that_is_right(tmp_path: Path) -> None:
    path = tmp_path / "job.sbatch"
    path.write_text(
        HEAD + "export RDMAV_FORK_SAFE=1\nexport FI_EFA_ENABLE_SHM_TRANSFER=1 # faster\n"
        "export NCCL_ASYNC_ERROR_HANDLING=1\nmkdir -p /fsx/${USER}}\n"
        "if true; then\n    export RDMAV_HUGEPAGES_SAFE=1\nfi\necho kept # comment\n"
    )
    findings = check([str(path)]).findings
    fixed = apply_edits(path.read_text(), [f.edit for f in findings if f.edit is not None])
    assert fixed == HEAD + (
        "# faster\nexport TORCH_NCCL_ASYNC_ERROR_HANDLING=1\nmkdir -p /fsx/${USER}\n"
        "if true; then\n    export RDMAV_HUGEPAGES_SAFE=1\nfi\necho kept # comment\n"
    )


def test_installer_flag_is_added_in_place(tmp_path: Path) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text("FROM ubuntu:22.04\nRUN cd efa && ./efa_installer.sh -y -g && cd ..\n")
    edits = [f.edit for f in check([str(path)]).findings if f.edit is not None]
    assert "./efa_installer.sh --skip-kmod -y -g" in apply_edits(path.read_text(), edits)


def test_log_folder_that_exists_is_fine(tmp_path: Path) -> None:
    text = HEAD + "#SBATCH --output=logs/%j.out\nsrun hostname\n"
    assert codes(tmp_path, text) == ["SHL001"]
    (tmp_path / "logs").mkdir()
    assert codes(tmp_path, text) == []


@pytest.mark.parametrize(
    ("name", "nodes", "best"), [("p5.48xlarge", 2, 750), ("p5.48xlarge", 16, 423), ("p4d.24xlarge", 2, 94)]
)
def test_ceiling_is_the_arithmetic_of_the_wires(name: str, nodes: int, best: float) -> None:
    assert bandwidth_limit(instance(name), nodes) == pytest.approx(best, abs=1)


SPEC = """
name: x
platform: parallelcluster
region: us-east-2
zone: use2-az3
queues: [{name: train, instance: p5.48xlarge, count: 2, capacity: {reservation: cr-0a1b2c3d4e5f67890}}]
storage: [{mount: /fsx, lustre: {capacity: 4.8TiB, throughput: 250}, bucket: s3://my-training-data}]
jobs: [{name: run, model: llama3-8b, data: /fsx/data, nodes: 2, %s}]
"""


@pytest.mark.parametrize(
    ("job", "found"),
    [
        ("parallel: {tp: 8}", []),
        ("parallel: {shard: 16}", []),
        ("parallel: {tp: 8, cp: 2}, sequence: 8191", ["JOB002"]),
        ("parallel: {tp: 3}", ["JOB002"]),
        ("recipe: llama3-8b, steps: 100", []),  # the recipe's warm-up is shortened with the run
        ("recipe: llama3-8b, steps: 100, optimizer: {warmup: 200}", ["JOB005"]),
        ("steps: 100, optimizer: {warmup: 10}", []),
        ("sequence: 16384", ["SPC015", "JOB004"]),  # twice the tokens of a micro-batch do not fit either
        ("sequence: 16384, recompute: full", ["JOB004"]),
        ("sequence: 16384, args: [--offload-activations, '1']", ["JOB004"]),
        ("sequence: 65536, args: [--offload-activations, '1']", ["SPC015", "JOB004"]),  # too much for host memory
        ("parallel: {pp: 2}, args: [--pipeline-schedule, zero-bubble]", []),
        ("parallel: {pp: 2}, args: [--pipeline-schedule, zero-bubble, --compile]", ["JOB002"]),
        ("parallel: {pp: 2}, recompute: full, args: [--pipeline-schedule, zero-bubble]", ["JOB002"]),
    ],
)
def test_specs_are_judged_as_our_trainer_would(tmp_path: Path, job: str, found: list[str]) -> None:
    assert codes(tmp_path, SPEC % job, "spec.yaml") == found


class Node:
    """A node with Ubuntu's interface names and an old EFA."""

    def path_exists(self, path: str) -> bool:
        return path == "/opt/amazon/ofi-nccl/lib/libnccl-net.so"

    def interfaces(self) -> list[str]:
        return ["lo", "ens5"]

    def version(self, software: str) -> str | None:
        return {"efa": "1.30.0", "nccl": "2.17.1"}.get(software)


def test_rules_that_ask_a_node(tmp_path: Path) -> None:
    path = tmp_path / "job.sbatch"
    path.write_text(
        "#!/bin/bash\n# Runs on p5.48xlarge.\n#SBATCH --nodes=2\n"
        "export EFA_INSTALLER_VERSION=1.43.2\n"
        "export NCCL_SOCKET_IFNAME=eth\n"
        "export LD_PRELOAD=/usr/local/cuda-12.1/lib/libnccl.so:/opt/amazon/ofi-nccl/lib/libnccl-net.so\n"
    )
    found = check([str(path)], facts={"node": Node()}).findings
    assert sorted({(f.code, f.span.line) for f in found}) == [
        ("ENV003", 5), ("ENV004", 2), ("ENV005", 6), ("IMG003", 4)
    ]  # fmt: skip
    without = check([str(path)])
    assert {s.code for s in without.skips} >= {"ENV003", "ENV004", "ENV005", "IMG003"}


def test_every_rule_explains_itself() -> None:
    for rule in all_rules():
        for part in ("Why:", "Fix:", "Source:"):
            assert part in rule.document, f"{rule.code} has no {part}"
