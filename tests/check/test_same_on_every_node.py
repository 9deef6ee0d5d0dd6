"""What must be the same on all nodes, and what must differ between the tasks of an array: rendezvous ids and ports,
directories of checkpoints (JOB009, JOB011); memory of nodes in MB (SLU005); directories of one file system (JOB017)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.check.reported import loud

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]
SBATCH = """#!/bin/bash
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
export HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
"""
TORCHRUN = "torchrun --nnodes=4 --nproc-per-node=8 --rdzv-backend=c10d"


def inside(text: str) -> str:
    return f"{SBATCH}srun bash -c '{text}'\n"


@pytest.mark.parametrize(
    "word",
    ["$RANDOM", "${RANDOM}", "$(date +%s)", "$(uuidgen)", "$HOSTNAME", "$(hostname)", "job-$SLURM_NODEID", "$$",
     "$((RANDOM % 1000))"],
)  # fmt: skip
def test_an_id_that_each_node_makes_up(run: Run, word: str) -> None:
    text = inside(f"{TORCHRUN} --rdzv-id={word} --rdzv-endpoint=$HEAD:29500 train.py")
    assert loud(run("job.sbatch", text, "JOB009")) == ["error JOB009 7"]


def test_a_variable_or_port_that_each_node_makes_up(run: Run) -> None:
    text = inside(f"ID=$RANDOM; {TORCHRUN} --rdzv-id=$ID --rdzv-endpoint=$HEAD:29500 train.py")
    assert loud(run("job.sbatch", text, "JOB009")) == ["error JOB009 7"]
    text = inside(f"{TORCHRUN} --rdzv-id=1 --rdzv-endpoint=$HEAD:$((20000 + RANDOM % 1000)) train.py")
    assert loud(run("port.sbatch", text, "JOB009")) == ["warning JOB009 7"]


@pytest.mark.parametrize(
    "text",
    [
        inside(f"{TORCHRUN} --rdzv-id=$SLURM_JOB_ID --rdzv-endpoint=$HEAD:29500 train.py"),
        inside(f"{TORCHRUN} --rdzv-id=run-$(date +%Y%m%d) --rdzv-endpoint=$HEAD:29500 train.py"),
        f"{SBATCH}srun {TORCHRUN} --rdzv-id=$RANDOM --rdzv-endpoint=$HEAD:29500 train.py\n",
        f"{SBATCH}export ID=$RANDOM\nsrun bash -c '{TORCHRUN} --rdzv-id=$ID --rdzv-endpoint=$HEAD:29500 train.py'\n",
        f'{SBATCH}srun bash -c "{TORCHRUN} --rdzv-id=$RANDOM --rdzv-endpoint=$HEAD:29500 train.py"\n',
        f"{SBATCH}srun --nodes=1 --ntasks=1 bash -c 'torchrun --standalone --rdzv-id=$RANDOM train.py'\n",
        f"{SBATCH}ID=$(date +%s)\nsrun {TORCHRUN} --rdzv-id=$ID --rdzv-endpoint=$HEAD:29500 train.py\n",
    ],
)
def test_an_id_that_all_nodes_have(run: Run, text: str) -> None:
    assert loud(run("job.sbatch", text, "JOB009")) == []


ADDRESS = "export MASTER_ADDR=$HEAD\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ADDRESS + "srun bash -c 'export MASTER_PORT=$((20000 + RANDOM % 999)); python t.py'\n", ["error JOB009 8"]),
        (ADDRESS + "srun bash -c '\nexport MASTER_PORT=$((20000 + RANDOM % 999))\npython t.py'\n", ["error JOB009 9"]),
        (ADDRESS + 'srun bash -c "export MASTER_PORT=$((20000 + RANDOM % 999)); python t.py"\n', []),
        (ADDRESS + "export MASTER_PORT=$((20000 + RANDOM % 999))\nsrun python t.py\n", []),
        ("srun bash -c 'export MASTER_ADDR=localhost MASTER_PORT=$((20000 + RANDOM % 999)); python t.py'\n", []),
        (ADDRESS + "srun -n 1 -N 1 bash -c 'export MASTER_PORT=$((20000 + RANDOM % 999)); python t.py'\n", []),
        (ADDRESS + "srun bash -c 'export MASTER_PORT=$((20000 + SLURM_JOB_ID % 999)); python t.py'\n", []),
    ],
)
def test_a_port_that_each_task_draws(run: Run, text: str, expected: list[str]) -> None:
    assert loud(run("job.sbatch", f"{SBATCH}{text}", "JOB009")) == expected


@pytest.mark.parametrize(
    ("word", "expected"),
    [("$RANDOM", ["warning JOB011 7"]), ("$(date +%s)", ["warning JOB011 7"]), ("$SLURM_JOB_ID", []), ("$HEAD", [])],
)
def test_a_directory_that_each_node_makes_up(run: Run, word: str, expected: list[str]) -> None:
    options = f"--rdzv-id=1 --rdzv-endpoint=$HEAD:29500 train.py --output_dir /fsx/runs/{word}"
    assert loud(run("job.sbatch", inside(f"{TORCHRUN} {options}"), "JOB011")) == expected


ARRAY = """#!/bin/bash
#SBATCH --array={array}
#SBATCH --gpus=8
LRS=(1e-5 3e-5 1e-4)
LR=${{LRS[$SLURM_ARRAY_TASK_ID]}}
OUT={out}
mkdir -p "$OUT"
torchrun --standalone --nproc-per-node=8 train.py {options}
"""
HUGGING = "--per_device_train_batch_size 4 --output_dir $OUT --learning_rate $LR"


@pytest.mark.parametrize(
    ("array", "out", "options", "count"),
    [
        ("0-2", "/fsx/sweep", "--lr $LR --checkpoint $OUT/last.pt", 1),
        ("0-2", "/fsx/sweep", HUGGING, 1),
        ("0,1,2", "/fsx/sweep", "--seed $SLURM_ARRAY_TASK_ID --save model.pt", 1),
        ("0-2%1", "/fsx/sweep", HUGGING, 0),
        ("0", "/fsx/sweep", HUGGING, 0),
        ("0-2", "/fsx/sweep/$LR", HUGGING, 0),
        ("0-2", "/fsx/sweep/$SLURM_ARRAY_TASK_ID", "--lr $LR --checkpoint $OUT/last.pt", 0),
        ("0-2", "/fsx/sweep/$SLURM_JOB_ID", HUGGING, 0),  # each task has a number of its own
        ("0-2", "/fsx/sweep", "--per_device_train_batch_size 4 --output_dir $OUT --shard_id $SLURM_ARRAY_TASK_ID", 0),
        ("0-2", "/fsx/sweep", "--lr $LR --output_dir $OUT", 0),  # the program may add a name
        ("0-2", "/fsx/sweep", "--lr $LR --checkpoint /fsx/pretrained.pt", 0),  # read, not written
        ("0-2", "/fsx/sweep", "--output_dir $OUT --per_device_train_batch_size 4", 0),  # parts of a chain
        ("0-1", "/fsx/sweep", "--output $OUT/a.pt --node_rank $SLURM_ARRAY_TASK_ID", 0),
    ],
)
def test_tasks_of_an_array_that_save_to_one_place(run: Run, array: str, out: str, options: str, count: int) -> None:
    text = ARRAY.format(array=array, out=out, options=options)
    assert len(run("sweep.sbatch", text, "JOB011")) == count


SLURM = """ClusterName=c
SlurmctldHost=head
SelectType=select/cons_tres
SelectTypeParameters={select}
TaskPlugin=task/cgroup
GresTypes=gpu
{comment}
NodeName=a[1-8] CPUs=128 RealMemory={memory} Gres=gpu:8
PartitionName=train Nodes={nodes} {default} Default=YES
"""


@pytest.mark.parametrize(
    ("memory", "comment", "default", "count"),
    [
        ("1000", "# 8 nodes, 1 TB", "", 1),
        ("512", "# 512 GB each", "", 1),
        ("1000", "", "DefMemPerGPU=120000", 1),
        ("256", "", "DefMemPerCPU=4000", 1),
        ("1000000", "# 1 TB", "DefMemPerGPU=120000", 0),
        ("1000", "# a node of the test cluster", "", 0),
        ("1000", "# 80 GB per GPU", "", 0),
        ("512000", "# 512 GB each", "DefMemPerCPU=4000", 0),
        ("1000", "", "MaxMemPerNode=120000", 0),
        ("${MEMORY}", "# 1 TB", "DefMemPerGPU=120000", 0),
    ],
)
def test_memory_of_nodes_is_in_megabytes(run: Run, memory: str, comment: str, default: str, count: int) -> None:
    text = SLURM.format(select="CR_Core_Memory", comment=comment, memory=memory, nodes="ALL", default=default)
    assert len(run("slurm.conf", text, "SLU005")) == count


def test_memory_of_other_nodes_or_that_is_not_scheduled(run: Run) -> None:
    other = {"comment": "NodeName=b1 CPUs=1 RealMemory=500000", "memory": "1000", "default": "DefMemPerGPU=120000"}
    assert run("slurm.conf", SLURM.format(select="CR_Core_Memory", nodes="b1", **other), "SLU005") == []
    assert run("slurm.conf", SLURM.format(select="CR_Core", nodes="ALL", **other), "SLU005") == []


@pytest.mark.parametrize(
    ("mounts", "expected"),
    [
        ("/fsx/src:/fsx/src,/fsx/ckpt:/fsx/ckpt", ["warning JOB017 8"]),
        ("/fsx:/fsx", []),
        ("/fsx/src:/fsx/src,/fsx/data:/fsx/data", []),
        ("/data:/data", []),  # a note: the image may have it
        ("/lustre/a:/fsx/src", []),
    ],
)
def test_a_directory_of_a_file_system_that_is_mounted_in_parts(run: Run, mounts: str, expected: list[str]) -> None:
    step = f"srun --container-image=/fsx/i.sqsh --container-mounts={mounts} \\\n  {TORCHRUN} --rdzv-id=1 "
    text = f"{SBATCH}{step}--rdzv-endpoint=$HEAD:1 /fsx/src/train.py --data-path /fsx/data/tokens\n"
    assert loud(run("job.sbatch", text, "JOB017")) == expected


HOST = """#!/bin/bash
RUN=seg-$(date +%s)
docker run --rm {options} -v /mnt/beegfs/scans:/scans:ro lab/seg:2 \\
  torchrun --nproc-per-node=2 fit.py --scans /scans/a --atlas {path}
"""


@pytest.mark.parametrize(
    ("options", "path", "fix"),
    [
        ('-v "/runs/$RUN:/out"', "/mnt/beegfs/scans/atlas.nii", "write /scans/atlas.nii"),
        ('--volume="$PWD/$RUN:/out:rw"', "/mnt/beegfs/scans/atlas.nii", "write /scans/atlas.nii"),
        ('--mount "type=bind,source=$HOME/$RUN,target=/out"', "/mnt/beegfs/scans/atlas.nii", "write /scans/atlas.nii"),
        ('-v "/runs/$RUN:/out"', "/scans/atlas.nii", ""),
        ('-v "/runs/$RUN:/mnt/beegfs"', "/mnt/beegfs/scans/atlas.nii", ""),
        ('-v "$RUN:$WHERE"', "/mnt/beegfs/scans/atlas.nii", ""),
        ('-v "$MOUNT"', "/mnt/beegfs/scans/atlas.nii", ""),
        ('"${OPTIONS[@]}"', "/mnt/beegfs/scans/atlas.nii", ""),
        ('-v "/runs/$RUN:/out"', "/opt/atlas.nii", ""),
    ],
)
def test_a_path_of_the_host_beside_mounts_of_variables(run: Run, options: str, path: str, fix: str) -> None:
    findings = run("start.sh", HOST.format(options=options, path=path), "JOB017")
    assert [(one.level, one.fix) for one in findings] == ([("info", fix)] if fix else [])


STARTER = f"{SBATCH}export HEAD ID=7\nsrun --label bash worker.sh\n"
WORKER = "#!/bin/bash\nset -e\nexec {launch} --rdzv-endpoint=$HEAD:{port} --rdzv-id={id} train.py\n"


def worker(id: str = "$SLURM_JOB_ID", port: str = "29500", launch: str = TORCHRUN) -> str:
    return WORKER.format(id=id, port=port, launch=launch)


@pytest.mark.parametrize(
    "text",
    [
        worker(id="$(date +%s)"),
        worker(id="run-$RANDOM"),
        worker(id="$(hostname)"),
        worker(port="$((20000 + RANDOM % 999))"),
        worker(launch="accelerate launch --main_process_port $((20000 + RANDOM % 99))"),
    ],
)
@pytest.mark.parametrize(
    "start",
    [
        "srun bash worker.sh",
        "srun ./worker.sh",
        "cd /lustre/clip\nsrun --kill-on-bad-exit=1 bash worker.sh",
        "srun bash /lustre/clip/worker.sh",
    ],
)
def test_a_script_that_srun_starts_on_every_node(tmp_path: Path, run: Run, text: str, start: str) -> None:
    run("job.sbatch", f"{SBATCH}{start}\n", "JOB009")
    (tmp_path / "README.md").write_text("`job.sbatch` starts `worker.sh` on each node.\n")
    assert [(f.level, f.span.line) for f in run("worker.sh", text, "JOB009")] == [("info", 3)]


def test_a_host_or_a_directory_of_each_node(run: Run) -> None:
    run("job.sbatch", STARTER, "JOB009")
    text = worker().replace("$HEAD", "$HOSTNAME").replace("train.py", "train.py --output_dir /fsx/$(date +%s)")
    assert [(f.code, f.level) for f in run("worker.sh", text, "JOB009", "JOB011")] == [
        ("JOB009", "info"),
        ("JOB011", "info"),
    ]


@pytest.mark.parametrize(
    ("starter", "text"),
    [
        (STARTER, worker()),
        (STARTER, worker(id="$ID", port="$((20000 + SLURM_JOB_ID % 999))")),
        (STARTER, worker(id="${ID:-$RANDOM}")),
        (STARTER, '#!/bin/bash\n[ -n "$ID" ] || ID=$RANDOM\n' + worker(id="$ID")),
        (STARTER, worker(id="$RANDOM", launch="torchrun --nnodes=1 --nproc-per-node=8")),
        (f"{SBATCH}srun -N 1 -n 1 bash worker.sh\n", worker(id="$RANDOM")),
        (f"{SBATCH}bash worker.sh\n", worker(id="$RANDOM")),
        (STARTER + "bash worker.sh --debug\n", worker(id="$RANDOM", launch="srun torchrun --nnodes=4")),
        (STARTER.replace("worker.sh", "tools/worker.sh"), worker(id="$RANDOM")),
    ],
)
def test_a_script_that_gets_what_all_nodes_have(run: Run, starter: str, text: str) -> None:
    run("job.sbatch", starter, "JOB009")
    assert run("worker.sh", text, "JOB009") == []


@pytest.mark.parametrize(
    ("name", "line"), [("README.md", "    bash worker.sh"), ("local.sh", "HEAD=localhost bash worker.sh")]
)
def test_a_script_that_something_else_starts_too(tmp_path: Path, run: Run, name: str, line: str) -> None:
    run("job.sbatch", STARTER, "JOB009")
    (tmp_path / name).write_text(f"On one machine:\n\n{line}\n")
    assert run("worker.sh", worker(id="$RANDOM"), "JOB009") == []
