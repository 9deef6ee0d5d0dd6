"""Mistakes of launchers that leave no doubt: each is reported, and the same file without it is not."""

from __future__ import annotations

from reported import shown

HEAD = """#!/bin/bash
#SBATCH --nodes=4
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=1
export HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
"""
MET = "--rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500 --rdzv_id=$SLURM_JOB_ID"
STARTS = [
    (f"srun torchrun --nnodes=4 --nproc_per_node=8 {MET} train.py", []),
    ("srun torchrun --nproc_per_node=8 train.py", ["warning JOB009 6"]),
    ("srun python -m torch.distributed.run --nproc_per_node=8 train.py", ["warning JOB009 6"]),
    ("srun torchrun --nproc_per_node=8 $ARGS train.py", []),
    ("srun torchrun --nproc_per_node=8 train.py --part $SLURM_NODEID", []),
    ("PET_NNODES=4 PET_RDZV_ENDPOINT=$HEAD:29500 srun torchrun --nproc_per_node=8 train.py", []),
    (f'A=(--nproc_per_node 8 --nnodes 4 {MET})\nC="torchrun ${{A[@]}} train.py"\nsrun $C', []),
    ("srun --nodes=1 torchrun --nproc_per_node=8 train.py", []),
    ("if true; then\nsrun torchrun --nproc_per_node=8 train.py\nfi", []),
    ("srun bash -c '[ $SLURM_PROCID = 0 ] && torchrun --nproc_per_node=8 train.py'", []),
    ("srun torchrun --standalone --nproc_per_node=8 train.py", ["warning JOB009 6"]),
    ("srun torchrun --standalone --nnodes=4 --nproc_per_node=8 train.py", ["error JOB009 6"]),
    ("torchrun --standalone --nproc_per_node=8 train.py", []),
    (f"srun torchrun --nnodes=4 train.py --nproc_per_node=8 {MET}", ["warning JOB009 6"]),
    (f"srun torchrun --nnodes=4 --nproc_per_node=8 {MET} train.py --rdzv_backend=c10d", []),
    (f"srun --ntasks=1 torchrun --nnodes=4 --nproc_per_node=8 {MET} train.py", ["error JOB009 6"]),
    (f"srun -N 2 torchrun --nnodes=4 --nproc_per_node=8 {MET} train.py", ["error JOB009 6"]),
    (f"srun -N 4 -n 4 torchrun --nnodes=4 --nproc_per_node=8 {MET} train.py", []),
    (f"srun hostname\nsrun -n 1 torchrun --nnodes=4 --nproc_per_node=8 {MET} train.py", ["error JOB009 7"]),
    (f"srun -N 1 bash worker.sh &\nsrun -N 1 torchrun --nnodes=4 --nproc_per_node=8 {MET} train.py", []),
    (
        'srun bash -c "torchrun --nnodes=4 --nproc_per_node=8 --rdzv_backend=c10d '
        '--rdzv_endpoint=\\$(hostname):29500 train.py"',
        ["warning JOB009 6"],
    ),
    (
        'srun bash -c "torchrun --nnodes=4 --nproc_per_node=8 --rdzv_backend=c10d '
        '--rdzv_endpoint=$(hostname):29500 train.py"',
        [],
    ),
    ("srun torchrun --nnodes=4 --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=$(hostname):29500 train.py", []),
]


def test_every_node_of_a_batch_script_joins_one_training(run) -> None:  # type: ignore[no-untyped-def]
    for line, expected in STARTS:
        assert shown(run("a.sbatch", f"{HEAD}{line}\n", "JOB009")) == expected, line


def test_tasks_that_the_file_leaves_open_are_not_counted(run) -> None:  # type: ignore[no-untyped-def]
    line = "srun torchrun --nproc_per_node=8 train.py\n"
    assert shown(run("a.sbatch", HEAD.replace("#SBATCH --ntasks-per-node=1\n", "") + line, "JOB009")) != []
    assert run("b.sbatch", HEAD.replace("--ntasks-per-node=1", "--ntasks-per-node=8") + line, "JOB009") == []
    assert run("c.sbatch", HEAD.replace("--nodes=4", "--nodes=1-4") + line, "JOB009") == []
    assert run("d.sbatch", HEAD.replace("--ntasks-per-node=1", "--ntasks=1") + line, "JOB009") == []
    met = f"srun -n 1 torchrun --nnodes=4 --nproc_per_node=8 {MET} train.py\n"
    assert run("e.sbatch", HEAD.replace("--nodes=4", "--nodes=1 --array=0-3") + met, "JOB009") == []


ACCELERATE = [
    ("srun accelerate launch --multi_gpu --num_processes=32 train.py", ["warning JOB009 6"]),
    ("srun accelerate launch train.py", ["warning JOB009 6"]),
    ("srun accelerate launch --config_file a.yaml --num_processes=32 train.py", []),
    ("srun accelerate launch --multi_gpu --num_processes=32 --machine_rank $SLURM_NODEID train.py", ["info JOB009 6"]),
    ("srun accelerate launch $ARGS --num_processes=32 train.py", []),
    ("srun accelerate launch infer.py --part $SLURM_NODEID", []),
    (
        "srun bash -c 'accelerate launch --num_machines 4 --num_processes 8 --machine_rank $SLURM_PROCID "
        "--main_process_ip $HEAD --main_process_port 29500 train.py'",
        ["warning JOB001 6"],
    ),
    (
        "srun bash -c 'accelerate launch --num_machines 4 --num_processes 32 --machine_rank $SLURM_PROCID "
        "--main_process_ip $HEAD --main_process_port 29500 train.py'",
        [],
    ),
]


def test_accelerate_counts_machines_and_all_their_processes(run) -> None:  # type: ignore[no-untyped-def]
    for line, expected in ACCELERATE:
        assert shown(run("a.sbatch", f"{HEAD}{line}\n", "JOB009", "JOB001")) == expected, line


def test_the_processes_of_all_machines_are_asked_for_where_they_are_wrong(run) -> None:  # type: ignore[no-untyped-def]
    meet = "--machine_rank $SLURM_NODEID --main_process_ip $HEAD --main_process_port 29500"
    asked = "add --num_machines=4, and --num_processes with the GPUs of all nodes"
    for processes, fix in [
        ("--num_processes 32 ", "add --num_machines=4"),
        ("--num-processes=32 ", "add --num_machines=4"),
        ("--num_processes $N ", "add --num_machines=4"),  # not known
        ("--num_processes $SLURM_NTASKS ", asked),  # 4
        ("--num_processes 8 ", asked),
        ("", asked),
    ]:
        (finding,) = run("a.sbatch", f"{HEAD}srun accelerate launch {processes}{meet} train.py\n", "JOB009")
        assert finding.fix == fix, processes
    without = HEAD.replace("#SBATCH --gpus-per-node=8\n", "#SBATCH --exclusive\n")
    for processes, fix in [(16, "add --num_machines=4"), (6, asked)]:  # 6 on 4 nodes
        line = f"srun accelerate launch --num_processes {processes} {meet} train.py\n"
        assert [one.fix for one in run("a.sbatch", without + line, "JOB009")] == [fix], processes


DIRECTIVES = [
    ("--gpus-per-node=8", []),
    ("--gpus-per-node 8", []),
    ("--gpus-per-node = 8", ["error SLU006 2"]),
    ("--gpus-per-node= 8", ["error SLU006 2"]),
    ("--comment==train", []),
    ("-N = 4", ["error SLU006 2"]),
    ("--job-name = train", ["error SLU006 2"]),
    ("-ntasks-per-node=1", ["error SLU006 2"]),
    ("-n4", []),
    ("-pgpu", []),
    ("--time=12h", ["error SLU006 2"]),
    ("--time=1d12h", ["error SLU006 2"]),
    ("--time=12:00:00", []),
    ("--time=1-12", []),
    ("--time=UNLIMITED", []),
    ("--dependency=afterok", ["error SLU006 2"]),
    ("--dependency=afterok:", ["error SLU006 2"]),
    ("--dependency=afterok:17", []),
    ("--dependency=singleton", []),
]


def test_directives_that_sbatch_refuses_are_reported(run) -> None:  # type: ignore[no-untyped-def]
    for directive, expected in DIRECTIVES:
        text = f"#!/bin/bash\n#SBATCH {directive}\nsrun python train.py\n"
        assert shown(run("a.sbatch", text, "SLU006", "JOB013")) == expected, directive


def test_sbatch_refuses_dos_line_breaks(run, tmp_path) -> None:  # type: ignore[no-untyped-def]
    text = "#!/bin/bash\r\n#SBATCH --nodes=1\r\nsrun python train.py\r\n"
    assert shown(run("a.sbatch", text, "SLU006")) == ["error SLU006 1"]
    assert run("a.sh", text.replace("#SBATCH --nodes=1", "# train"), "SLU006") == []


def test_a_step_in_the_background_needs_wait(run) -> None:  # type: ignore[no-untyped-def]
    head = "#!/bin/bash\n#SBATCH --nodes=1\ncd /fsx\n"
    ends = [
        ("srun python train.py &\n", ["error SLU006 4"]),
        ("srun bash -c 'cd a; python train.py' > log 2>&1 &\n", ["error SLU006 4"]),
        ("srun python train.py &\necho started\n", ["error SLU006 4"]),
        ("torchrun train.py &\n", ["warning SLU006 4"]),
        ("srun python train.py &\nwait\n", []),
        ("python serve.py & python train.py\n", []),
        ("srun python train.py &\nsleep 3600\n", []),
        ("srun python train.py\n", []),
        ("tail -f log &\nsrun python train.py\n", []),
        ("for n in 1 2; do\nsrun python train.py &\ndone\n", ["error SLU006 5"]),
        ("for n in 1 2; do\npython train.py &\nsleep 2\ndone\n", ["warning SLU006 5"]),
        ("for n in 1 2; do\nsrun python train.py &\ndone\nwait\n", []),
        ("srun python train.py &\nfor i in {1..900}; do sleep 5; done\n", []),
        ("srun python train.py &\nwhile (( i++ < 900 )); do\n  sleep 5\ndone\n", []),
        ("if true; then\nsrun python train.py &\nfi\n", []),
        ("start() {\nsrun python train.py &\n}\nstart\ntail -f log\n", []),
    ]
    for end, expected in ends:
        levels = [f for f in shown(run("a.sbatch", head + end, "SLU006")) if not f.startswith("info")]
        assert levels == expected, end


def test_blanks_beside_the_equals_sign_make_a_command(run) -> None:  # type: ignore[no-untyped-def]
    head = "#!/bin/bash\n#SBATCH --nodes=1\n"
    lines = [
        ("MASTER_ADDR = $(hostname)", ["warning SHL001 3"]),
        ("MASTER_PORT =29500", ["warning SHL001 3"]),
        ("MASTER_PORT=29500", []),
        ("if [ $A = b ]; then date; fi", []),
        ("OMP_NUM_THREADS= date", []),
        ("python -c 'A = 3'", []),
        ("let A = 3", []),
        ("cat <<END > a.py\nA = 3\nEND", []),
        ("test -n a && B = 3", ["warning SHL001 3"]),
    ]
    for line, expected in lines:
        assert shown(run("a.sbatch", f"{head}{line}\nsrun python train.py\n", "SHL001")) == expected, line


def test_the_localhost_of_an_accelerate_configuration_is_reported_once(run) -> None:  # type: ignore[no-untyped-def]
    text = (
        "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_machines: 4\nnum_processes: 32\n"
        "machine_rank: {}\nmain_process_ip: 127.0.0.1\nmain_process_port: 29500\n"
    )
    assert shown(run("a.yaml", text.format(1), "JOB009", "JOB015")) == ["error JOB015 6"]
    assert shown(run("b.yaml", text.format(0), "JOB009", "JOB015")) == ["info JOB015 6"]  # the first machine's own


DEEPSPEED = [
    ('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3, "overlap_comm": true}}', []),
    (
        '{"train_micro_batch_size_per_gpu": 4, "zero_optimisation": {"stage": 3}, "bf16": {"enabled": true}}',
        ["warning"],
    ),
    ('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3, "overlap_com": true}}', ["error"]),
    ('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3}, "my_notes": {}}', []),
    ('{"train_micro_batch_size_per_gpu": -4, "zero_optimization": {"stage": 3}}', ["error"]),
    ('{"train_batch_size": 0, "zero_optimization": {"stage": 3}}', ["error"]),
    ('{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 3}}', []),
]


def test_keys_and_batches_that_deepspeed_does_not_take(run) -> None:  # type: ignore[no-untyped-def]
    for text, expected in DEEPSPEED:
        assert [finding.level for finding in run("ds.json", text, "DSP001")] == expected, text


def test_stages_and_precisions_that_accelerate_does_not_take(run) -> None:  # type: ignore[no-untyped-def]
    text = (
        "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\n"
        "deepspeed_config:\n  zero_stage: {}\nmixed_precision: {}\n"
    )
    assert shown(run("a.yaml", text.format(4, "fp17"), "DSP001")) == ["error DSP001 4", "error DSP001 5"]
    for precision in ("'no'", "bf16", "fp16", "fp8", "null", "'{{ precision }}'"):
        assert run("b.yaml", text.format(3, precision), "DSP001") == [], precision


def test_a_word_that_begins_with_the_sign_may_be_printed(run) -> None:  # type: ignore[no-untyped-def]
    text = "#!/bin/bash\nprintf '=%.0s' $(seq 1 20)\necho = done\nsrun torchrun train.py\n"
    assert run("a.sh", text, "SHL001") == []
    assert [f.span.line for f in run("b.sh", text + "HOSTS =$(hostname)\nhosts = 1\n", "SHL001")] == [5, 6]
