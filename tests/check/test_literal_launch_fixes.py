"""Fixes of launches that a reader follows to the letter: the ranks of all nodes then find each other, once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]
NODES = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH {tasks}\n#SBATCH --gpus-per-node=8\n{head}srun {command}\n"
HEAD = "export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1)\n"


@pytest.mark.parametrize(
    ("command", "fix"),
    [
        (
            "torchrun --nproc_per_node 8 --master_addr $MASTER_ADDR --master_port 29500 t.py",
            "add --nnodes=2, with --rdzv_backend=c10d and --rdzv_endpoint in place of --master_addr and --master_port",
        ),
        (
            "torchrun --nproc_per_node 8 --rdzv_endpoint $MASTER_ADDR:29500 t.py",
            "add --nnodes=2, with --rdzv_backend=c10d",
        ),
        (
            "torchrun --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint $MASTER_ADDR:29500 t.py",
            "add --nnodes=2",
        ),
        (
            "torchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d --master_addr localhost --master_port 123 t.py",
            "write --rdzv_endpoint=<first node>:123 instead of --master_addr and --master_port",
        ),
        (
            "torchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend=c10d --rdzv_endpoint=localhost:29500 t.py",
            'name the first node: $(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        ),
        (
            "deepspeed --num_nodes 2 --num_gpus 8 t.py",
            "write the nodes to a file (<host> slots=<GPUs>) and add --hostfile <file>, without srun",
        ),
    ],
)
def test_every_node_joins_one_run(run: Run, command: str, fix: str) -> None:
    text = NODES.format(tasks="--ntasks-per-node=1", head=HEAD, command=command)
    assert [f.fix for f in run("job.sbatch", text, "JOB009")] == [fix]


def test_a_node_without_a_task_gets_one(run: Run) -> None:
    command = "torchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint $MASTER_ADDR:29500 t.py"
    (finding,) = run("job.sbatch", NODES.format(tasks="--ntasks=1", head=HEAD, command=command), "JOB009")
    assert finding.fix == "write --nnodes=1, or start 2 tasks (line 3)"


def test_a_node_that_the_job_does_not_have_gets_no_task(run: Run) -> None:
    command = "torchrun --nnodes 3 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint $MASTER_ADDR:29500 t.py"
    (finding,) = run("job.sbatch", NODES.format(tasks="--ntasks-per-node=1", head=HEAD, command=command), "JOB009")
    assert finding.fix == "write --nnodes=2, or ask for 3 nodes, with one task on each"


def test_one_task_per_node_starts_accelerate(run: Run) -> None:
    command = "accelerate launch --num_machines 2 --num_processes 16 --machine_rank $SLURM_NODEID t.py"
    (finding,) = run("job.sbatch", NODES.format(tasks="--ntasks-per-node=8", head=HEAD, command=command), "JOB008")
    assert "backslash, and use one task per node (--ntasks-per-node=1)" in finding.fix
    (finding,) = run("job.sbatch", NODES.format(tasks="--ntasks-per-node=1", head=HEAD, command=command), "JOB008")
    assert finding.fix.endswith("with the backslash")


def test_too_many_tasks_are_not_also_too_many_processes(run: Run) -> None:
    command = "torchrun --nnodes=2 --nproc_per_node=$SLURM_NTASKS t.py"
    (finding,) = run("job.sbatch", NODES.format(tasks="--ntasks=32", head=HEAD, command=command), "JOB001")
    assert finding.fix.startswith("write --ntasks-per-node=1 in place of --ntasks=32")


@pytest.mark.parametrize(
    ("command", "fix"),
    [
        ("accelerate launch --nproc_per_node 8 t.py", "write --num_processes, which counts those of all machines"),
        ("accelerate launch --num-gpus 8 t.py", "write --num_processes, which counts those of all machines"),
        (
            "accelerate launch --num-gpus 8 --num_machines 2 t.py",
            "write --num_processes=16, which counts those of all machines",
        ),
        (
            "accelerate launch --nproc_per_node $N --num_machines 2 t.py",
            "write --num_processes, which counts those of all machines",
        ),
        (
            "accelerate launch --n_gpus 16 --num_machines 2 t.py",  # of one machine or of both
            "write --num_processes, which counts those of all machines",
        ),
        ("torchrun --num_gpus=8 t.py", "write --nproc_per_node"),
        ("torchrun --num_processes=8 t.py", "write --nproc_per_node"),
        ("torchrun --nnodes=2 --num_processes=16 t.py", "write --nproc_per_node=8, which counts those of one node"),
        ("torchrun --nnodes 2 --num_processes 16 t.py", "write --nproc_per_node=8, which counts those of one node"),
        ("torchrun --nnodes=2 --num_processes $N t.py", "write --nproc_per_node, which counts those of one node"),
        ("torchrun --nnodes=1:4 --num_processes=16 t.py", "write --nproc_per_node, which counts those of one node"),
        ("torchrun --nnodes=2 --num_gpus=8 t.py", "write --nproc_per_node"),
        ("deepspeed --num_nodes 2 --num_processes 16 t.py", "write --num_gpus=8, which counts those of one node"),
        ("deepspeed --nproc_per_node 8 t.py", "write --num_gpus"),
        ("torchrun --nproc_per_node 8 --use_env t.py", "remove it: torchrun always sets LOCAL_RANK"),
        ("torchrun --nproc_per_node 8 --ngpu 8 t.py", "write it after t.py if it is the script's, else remove it"),
    ],
)
def test_an_option_of_another_launcher_is_not_the_scripts(run: Run, command: str, fix: str) -> None:
    (finding,) = run("run.sh", f"#!/bin/bash\n{command}\n", "JOB013")
    assert finding.fix.startswith(fix)


def test_the_processes_of_all_machines_are_counted_where_both_numbers_are_known(run: Run) -> None:
    findings = run("run.sh", "#!/bin/bash\naccelerate launch --nproc_per_node 8 --nnodes 2 t.py\n", "JOB013")
    assert [one.fix for one in findings] == [
        "write --num_processes=16, which counts those of all machines",
        "write --num_machines",
    ]


@pytest.mark.parametrize(
    ("plugins", "fix"),
    [
        ("task/none", "write TaskPlugin=task/cgroup, and ConstrainDevices=yes in cgroup.conf"),
        ("task/affinity", "write TaskPlugin=task/affinity,task/cgroup, and ConstrainDevices=yes in cgroup.conf"),
    ],
)
def test_no_plugin_is_not_beside_another(run: Run, plugins: str, fix: str) -> None:
    text = f"ClusterName=a\nSelectType=select/cons_tres\nTaskPlugin={plugins}\nGresTypes=gpu\nNodeName=a Gres=gpu:8\n"
    assert [f.fix for f in run("slurm.conf", text, "SLU005")] == [fix]


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        ("--node_rank '$SLURM_NODEID'", 'let each task expand it: srun bash -c "… --node_rank \\$SLURM_NODEID …"'),
        ("--node_rank \\$SLURM_NODEID", 'let each task expand it: srun bash -c "… --node_rank \\$SLURM_NODEID …"'),
        ("--node_rank=0 --nnodes '$SLURM_NNODES'", "write double quotes, and no backslash"),
    ],
)
def test_a_variable_of_a_task_is_not_expanded_by_the_batch_script(run: Run, words: str, fix: str) -> None:
    command = f"torchrun {words} --nproc_per_node=8 --master_addr=$MASTER_ADDR --master_port=29500 t.py"
    findings = run("job.sbatch", NODES.format(tasks="--ntasks-per-node=1", head=HEAD, command=command), "JOB013")
    assert [f.fix for f in findings] == [fix]


def test_a_part_of_the_batch_fits_the_whole(run: Run, tmp_path: Path) -> None:
    parts = {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}
    options = "--per_device_train_batch_size 8 --learning_rate 1e-4 --num_train_epochs 3 --output_dir o"
    text = f"#!/bin/bash\ndeepspeed --num_gpus 4 t.py --deepspeed ds.json {options}\n"
    for total, also in ((32, ", there also for train_batch_size"), ("auto", "")):
        (tmp_path / "ds.json").write_text(json.dumps({"train_batch_size": total, **parts}))
        fixes = [f.fix for f in run("run.sh", text, "JOB016") if "per_device" in f.message]
        assert fixes == [f'write the same value in both, or "auto" in the JSON file{also}']


def test_the_first_pod_of_a_job_has_a_name(run: Run) -> None:
    options = '"--nnodes=2", "--node_rank=$(JOB_COMPLETION_INDEX)", "--nproc_per_node=8", "--master_addr=localhost"'
    text = (
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec:\n  completions: 2\n  parallelism: 2\n"
        "  completionMode: Indexed\n  template:\n    spec:\n      restartPolicy: Never\n      containers:\n"
        f'        - {{name: a, image: "b:1", command: ["torchrun", {options}, "t.py"]}}\n'
    )
    (finding,) = run("job.yaml", text, "JOB009")
    assert finding.fix.startswith("name the first pod: <job>-0.<its headless Service>")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            "accelerate launch --main_process_port main.py --lr=1e-4 --steps 3",
            "--main_process_port has no value: accelerate takes main.py for it",
        ),
        ("deepspeed --num_gpus 2 --master_port a/t.py --lr 3", "--master_port has no value: deepspeed takes a/t.py"),
        ("torchrun --standalone --nproc_per_node $CODE/t.py --lr 3", "--nproc_per_node has no value: torchrun takes"),
        ("torchrun --rdzv_endpoint t.py --lr 3", "--rdzv_endpoint has no value: torchrun takes t.py for it"),
    ],
)
def test_a_script_is_no_value_of_the_option_before_it(run: Run, command: str, message: str) -> None:
    (finding,) = run("run.sh", f"#!/bin/bash\n{command}\n", "JOB")
    assert finding.level == "error"
    assert finding.message.startswith(message)
    option = finding.message.split()[0]
    assert finding.fix == f"write the value after {option}, or remove the option"
    assert finding.span.column == command.index(option) + 1


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            "accelerate launch --main_process_port t.py",
            "--main_process_port has no value: accelerate takes t.py for it",
        ),
        ("torchrun --nproc_per_node --nnodes 1 t.py --lr 3", "--nproc_per_node has no value"),
        ("accelerate launch --multi_gpu true t.py --lr 3", "--multi_gpu takes no value: accelerate takes true for the"),
    ],
)
def test_a_wrong_number_of_values_is_a_note_where_no_option_is_refused(run: Run, command: str, message: str) -> None:
    (finding,) = run("run.sh", f"#!/bin/bash\n{command}\n", "JOB013")
    assert finding.level == "info"
    assert finding.message.startswith(message)


@pytest.mark.parametrize(
    ("switch", "fix"),
    [
        ("--use_deepspeed true", "remove true"),
        ("--use_deepspeed 1", "remove 1"),
        ("--use_deepspeed false", "remove --use_deepspeed false"),  # the option alone enables DeepSpeed
        ("--multi_gpu no", "remove --multi_gpu no"),
        ("--multi_gpu 0", "remove --multi_gpu 0"),
    ],
)
def test_a_switch_that_is_meant_to_be_off_is_removed(run: Run, switch: str, fix: str) -> None:
    findings = run("run.sh", f"#!/bin/bash\naccelerate launch --num_processes 8 {switch} t.py --lr 1\n", "JOB013")
    assert [one.fix for one in findings] == [fix]


@pytest.mark.parametrize(
    ("command", "fix"),
    [
        ("torchrun --model resnet50 t.py", "write it after t.py if it is the script's, else remove it"),
        ("torchrun --amp --seed 0 t.py", "write it after t.py if it is the script's, else remove it"),
        ("torchrun --betas 0.9 0.99 t.py --lr 3", "write it after t.py if it is the script's, else remove it"),
        ("deepspeed --local_rank=-1 t.py", "write it after t.py if it is the script's, else remove it"),
        ("accelerate launch --cpu_offload t.py", "write it after t.py if it is the script's, else remove it"),
        ("accelerate launch --use_fp16 t.py", "write it after t.py if it is the script's, else remove it"),
        ("deepspeed --num_gpus_per_node 4 t.py", "did you mean --num_gpus?"),
        ("deepspeed --no_local_ranks t.py", "did you mean --no_local_rank?"),
        ("torchrun --master_ip localhost t.py", "write --master_addr"),
        ("torchrun --main_process_port 29500 t.py", "write --master_port"),
        ("deepspeed --machine_rank 0 t.py", "write --node_rank"),
        ("deepspeed --nnodes 1 t.py", "write --num_nodes"),
        ("deepspeed --nnodes 2 t.py", "write --num_nodes, and --hostfile with the nodes"),
        ("accelerate launch --master_port 29500 t.py", "write --main_process_port"),
        ("accelerate launch --hostfile hosts t.py", "write --deepspeed_hostfile"),
        (
            "accelerate launch --rdzv_endpoint a:1 t.py",
            "write --main_process_ip and --main_process_port in place of it",
        ),
        ("torchrun --hostfile hosts t.py", "remove it: torchrun has no equivalent option"),
        ("torchrun -m tools.train.py", "write -m tools.train"),
        ("deepspeed --module train.py", "remove --module, or write --module train"),
    ],
)
def test_an_option_before_the_script_is_one_that_the_launcher_takes(run: Run, command: str, fix: str) -> None:
    finding = run("run.sh", f"#!/bin/bash\n{command}\n", "JOB013")[0]
    assert finding.level == "error"
    assert finding.fix.startswith(fix)


def test_accelerate_takes_no_abbreviation_beside_an_option_that_it_refuses(run: Run) -> None:
    for command, names in (("--deepspeed z.json --seed 3 t.py", ["--deepspeed", "--seed"]), ("--gpu_id 0 t.py", [])):
        findings = run("run.sh", f"#!/bin/bash\naccelerate launch {command}\n", "JOB013")
        assert [f.message.split()[-1] for f in findings] == names


def test_options_without_any_script_are_a_note(run: Run) -> None:
    (finding,) = run("run.sh", "#!/bin/bash\naccelerate launch --num_processes 2 --lr 3\n", "JOB013")
    assert (finding.level, finding.fix[:24]) == ("info", "write it after the scrip")


ACCELERATE = "accelerate launch --num_machines={nodes} --main_process_ip $MASTER_ADDR --rdzv_backend c10d "


@pytest.mark.parametrize(
    ("tasks", "command", "expected"),
    [
        (
            "--ntasks=1",
            "torchrun --nnodes=$SLURM_NNODES --rdzv_backend=c10d --rdzv_endpoint=$MASTER_ADDR:1234 t.py",
            [],
        ),
        ("--ntasks=1", ACCELERATE.format(nodes="$SLURM_NNODES") + "--num_processes 8 t.py", []),
        ("--ntasks=1", "deepspeed --num_nodes=$SLURM_NNODES --num_gpus 8 t.py", []),
        (
            "--ntasks-per-node=1",
            "torchrun --nproc_per_node=16 t.py",
            ["start 8 per node, or request 16 GPUs per node"],
        ),
        (
            "--ntasks-per-node=1",
            ACCELERATE.format(nodes=1) + "--num_processes 16 t.py",
            ["write --num_machines=2: --num_processes counts the processes of all machines"],
        ),
        (
            "--ntasks-per-node=8",
            ACCELERATE.format(nodes=2) + "--num_processes 8 t.py",
            [
                "write --num_processes=16, and use one task per node (--ntasks-per-node=1), "
                "--cpus-per-task for all its processes"
            ],
        ),
    ],
)
def test_the_nodes_of_a_launch_are_those_that_slurm_gives(
    run: Run, tasks: str, command: str, expected: list[str]
) -> None:
    """Slurm 22.05 reduces the nodes to the tasks where these are fewer, and SLURM_NNODES with them."""
    text = NODES.format(tasks=tasks, head=HEAD, command=command)
    rules = ("JOB001",) if expected else ("JOB001", "JOB009")
    loud = [f for code in rules for f in run("job.sbatch", text, code) if f.level != "info"]
    assert [f.fix for f in loud] == expected


def test_a_step_of_one_task_names_the_options_that_make_it_so(run: Run) -> None:
    command = "torchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint $MASTER_ADDR:29500 t.py"
    text = NODES.format(tasks="--ntasks-per-node=1", head=HEAD, command=command).replace("srun", "srun -N1 -n1")
    assert [f.fix for f in run("job.sbatch", text, "JOB009")] == [
        "remove -N and -n of srun on line 6, or write --nnodes=1"
    ]


def test_srun_starts_as_many_as_torchrun_waits_for(run: Run) -> None:
    command = "torchrun --nnodes 3 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint $MASTER_ADDR:29500 t.py"
    text = NODES.format(tasks="--ntasks-per-node=1", head=HEAD, command=command).replace("srun ", "")
    (finding,) = [f for f in run("job.sbatch", text, "JOB009") if f.level != "info"]
    assert finding.fix == "start it with srun, one task per node, and write --nnodes=2"


def test_srun_has_no_other_number_of_tasks_beside_one_per_node(run: Run) -> None:
    command = "torchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint $MASTER_ADDR:29500 t.py"
    text = NODES.format(tasks="--ntasks-per-node=1", head=HEAD, command=command).replace("srun", "srun -N 2 -n 16")
    (finding,) = run("job.sbatch", text, "JOB001")
    assert finding.fix.startswith("write --ntasks-per-node=1 in place of -n of srun, ")


@pytest.mark.parametrize(
    ("command", "also"),
    [
        ("accelerate launch --num_processes 16 --machine_rank $SLURM_NODEID t.py", "; and add --num_machines=2"),
        ("accelerate launch --num_machines 2 --machine_rank $SLURM_NODEID t.py", "with the backslash"),
        (
            "torchrun --nnodes 2 --nproc_per_node 8 --node_rank $SLURM_NODEID t.py",
            "; and add --master_addr with the first node of the job, and --master_port",
        ),
        ("torchrun --nnodes 2 --node_rank $SLURM_NODEID --master_addr $MASTER_ADDR t.py", "with the backslash"),
    ],
)
def test_nodes_with_ranks_find_each_other(run: Run, command: str, also: str) -> None:
    text = NODES.format(tasks="--ntasks-per-node=1", head=HEAD, command=command)
    (finding,) = run("job.sbatch", text, "JOB008")
    assert finding.fix.endswith(also)


def test_the_tasks_of_a_node_are_no_nodes(run: Run) -> None:
    command = "torchrun --nnodes 2 --nproc_per_node 8 --node_rank 0 --master_addr $MASTER_ADDR t.py"
    text = NODES.format(tasks="--ntasks-per-node=8", head=HEAD, command=command)
    assert [f.message for f in run("job.sbatch", text, "JOB008")] == ["the node rank is 0 on each of the 2 nodes"]
