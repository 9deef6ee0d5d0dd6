"""Fixes of batch scripts that a reader can follow to the letter, and mistakes that are not worth a warning."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from reported import loud

from trainwright.check.engine import check
from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]
NODES = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=4\n"
HEAD = 'head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)\n'


def fixes(findings: list[Finding]) -> list[str]:
    return [finding.fix for finding in findings if finding.level != "info"]


@pytest.mark.parametrize(
    ("lines", "part"),
    [
        ("#SBATCH --cpus-per-task=8\n", ", --cpus-per-task=32, and"),
        ("", ", --cpus-per-task for all its processes, and"),
        ("#SBATCH --cpus-per-gpu=8\n", "(--ntasks-per-node=1), and"),
    ],
)
def test_one_task_gets_the_cpus_of_all(run: Run, lines: str, part: str) -> None:
    head = f"#!/bin/bash\n#SBATCH --nodes=1 --ntasks-per-node=4 --gres=gpu:4\n{lines}"
    text = f"{head}srun torchrun --nproc_per_node=4 a.py\n"
    (fix,) = fixes(run("a.sbatch", text, "JOB001"))
    assert part in fix


def test_every_option_with_a_variable_has_its_own_way_out(run: Run) -> None:
    text = (
        "#!/bin/bash\n#SBATCH --output=$SCRATCH/%j.out\n#SBATCH --error=$SLURM_SUBMIT_DIR/logs/%j.err\n"
        "#SBATCH --mail-user=$USER@uni.edu\n#SBATCH --input=$SCRATCH/a\npython train.py\n"
    )
    (fix,) = fixes(run("a.sbatch", text, "SLU006"))
    assert fix.split("; --") == [
        "--output, --input: use a literal path of a directory that exists; %x, %j and %u are the job and the user",
        "error: write logs/%j.err, where that directory exists",
        "mail-user: remove it, and pass it: sbatch --mail-user=$USER@uni.edu …",
    ]


@pytest.mark.parametrize(
    ("option", "readme", "levels"),
    [
        ("--job-name=$NAME", "", []),  # only a name is at stake
        ("--mail-user=$MAIL", "", ["warning SLU006 2"]),
        ("--mail-user=$MAIL", "sbatch --mail-user=me@uni.edu a.sbatch", []),
        ("--nodes=$NODES", "sbatch --nodes=4 a.sbatch", ["warning SLU006 2"]),  # which sbatch refuses in any case
    ],
)
def test_a_variable_that_changes_nothing(tmp_path: Path, option: str, readme: str, levels: list[str]) -> None:
    (tmp_path / "README.md").write_text(readme)
    (tmp_path / "a.sbatch").write_text(f"#!/bin/bash\n#SBATCH {option}\npython train.py\n")
    assert loud(check([str(tmp_path / "a.sbatch")]).findings) == levels


@pytest.mark.parametrize(
    ("signal", "body", "fix"),
    [
        (
            "B:USR1@120",
            "python train.py",
            "add `trap … USR1` above, and start python in the background: `python … & wait $!; wait $!`",
        ),
        ("B:USR1@120", "python train.py &\nwait", "add `trap … USR1` above"),
        (
            "USR1@60",
            "trap 'scontrol requeue $SLURM_JOB_ID' USR1\npython train.py",
            "write --signal=B:USR1@60, and start python in the background: `python … & wait $!; wait $!`",
        ),
        ("USR1@60", "trap 'touch stop' USR1\npython train.py &\nwait $!\nwait $!", "write --signal=B:USR1@60"),
    ],
)
def test_a_trap_needs_a_shell_that_waits(run: Run, signal: str, body: str, fix: str) -> None:
    assert fixes(run("a.sbatch", f"#!/bin/bash\n#SBATCH --signal={signal}\n{body}\n", "SLU006")) == [fix]


def test_a_dependency_is_given_when_the_job_is_submitted(run: Run) -> None:
    text = "#!/bin/bash\n#SBATCH --dependency=afterok\npython train.py\n"
    assert fixes(run("a.sbatch", text, "SLU006")) == [
        "remove it, and submit with sbatch --dependency=afterok:<job id> …"
    ]


@pytest.mark.parametrize(
    ("lines", "fix"),
    [
        ("NCCL_SOCKET_IF_NAME=ib0", ["write NCCL_SOCKET_IFNAME, or remove it"]),
        ("NCCL_SOCKET_IF_NAME=ib0 NCCL_SOCKET_IFNAME=ib0", []),  # the right one is there
        ("NCCL_IB_DISABLE=1 NCCL_IB_HCA=mlx5_0", []),  # TCP may be what works
    ],
)
def test_settings_without_effect(run: Run, lines: str, fix: list[str]) -> None:
    launch = "srun torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$head:29500 a.py"
    text = f"{NODES}export {lines}\n{HEAD}{launch}\n"
    assert fixes(run("a.sbatch", text, "ENV002")) == fix


@pytest.mark.parametrize(
    ("launch", "fix"),
    [
        (
            "torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d --master_addr=$head --master_port=29411 a.py",
            'write --rdzv_endpoint=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1):29411 instead of '
            "--master_addr and --master_port",
        ),
        (
            "torchrun --nnodes=2 --node_rank=0 --nproc_per_node=4 --master_addr=$head --master_port=29500 a.py",
            "let the launcher assign it (--rdzv_backend=c10d with --rdzv_endpoint in place of --master_addr), or read "
            'it from $SLURM_NODEID, expanded by each task: srun bash -c "… --node_rank \\$SLURM_NODEID …"',
        ),
        (
            "torchrun --nnodes=2 --node_rank=$SLURM_NODEID --nproc_per_node=4 --master_addr=$head a.py",
            'let the task expand it: srun bash -c "… --node_rank \\$SLURM_NODEID …", with the backslash',
        ),
        (
            "accelerate launch --num_processes 4 a.py",  # accelerate stops without --machine_rank
            "add --num_machines=2, --num_processes with the GPUs of all nodes, --main_process_ip with the first node, "
            "--main_process_port, and --machine_rank, expanded by each task: srun bash -c "
            '"… --machine_rank \\$SLURM_NODEID …"',
        ),
    ],
)
def test_a_way_to_meet_that_works(run: Run, launch: str, fix: str) -> None:
    assert fixes(run("a.sbatch", f"{NODES}{HEAD}srun {launch}\n", "JOB008", "JOB009")) == [fix]


@pytest.mark.parametrize(("nodes", "ends"), [(1, "remove --num_nodes"), (2, "--hostfile <file>")])
def test_a_hostfile_is_for_several_nodes(run: Run, nodes: int, ends: str) -> None:
    text = (
        f"#!/bin/bash\n#SBATCH --nodes={nodes}\n#SBATCH --gpus-per-node=4\ndeepspeed --num_nodes=2 --num_gpus=4 a.py\n"
    )
    (fix,) = fixes(run("a.sbatch", text, "JOB009"))
    assert fix.endswith(ends)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("project/utils/submit.py", 'os.makedirs("logs")\nsubprocess.run(["sbatch", job])\n'),
        ("project/scripts/submit.fish", "mkdir -p logs; sbatch $job\n"),
        ("submit.bat", "mkdir logs\nsbatch job.sbatch\n"),
    ],
)
def test_who_makes_the_log_directory(tmp_path: Path, name: str, text: str) -> None:
    job = tmp_path / "project/jobs/job.sbatch"
    job.parent.mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    job.write_text("#!/bin/bash\n#SBATCH --output=logs/%j.out\nmkdir -p logs\nsrun python train.py\n")
    assert loud(check([str(job)]).findings) == ["warning SHL001 2"]
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(text)
    assert loud(check([str(job)]).findings) == []


@pytest.mark.parametrize(
    ("program", "levels"),
    [
        ("torch.save(model, args.save_path)", ["warning JOB011 3"]),
        ("torch.save(model, os.path.join(run_dir, args.save_path))", []),
        ("path = f'{args.seed}-{args.save_path}'", []),
        (None, []),
    ],
)
def test_tasks_of_an_array_whose_program_is_known(tmp_path: Path, program: str | None, levels: list[str]) -> None:
    start = "srun python train.py --seed $SLURM_ARRAY_TASK_ID --save_path out/model.pt"
    (tmp_path / "a.sbatch").write_text(f"#!/bin/bash\n#SBATCH --array=1-4\n{start}\n")
    if program is not None:
        (tmp_path / "train.py").write_text(f"import torch\n{program}\n")
    assert [one for one in loud(check([str(tmp_path / "a.sbatch")]).findings) if "JOB011" in one] == levels


SWEEP = """#!/bin/bash
#SBATCH --array=1-6
DROP=(0.0 0.1 0.2 0.3 0.4 0.5 0.6)
P=${{DROP[$SLURM_ARRAY_TASK_ID]}}
RUNS={runs}
{before}
srun {runner} torchrun --standalone --nproc_per_node=4 fit.py --dropout "$P" --runs-dir "$RUNS" --data /fsx/pile
"""
FIT = """import argparse, os, time
from pathlib import Path
import torch

def write(folder, model, epoch):
    target = {target}
    torch.save(model.state_dict(), target)

def main():
    parser = argparse.ArgumentParser()
    for name in ("--dropout", "--runs-dir", "--data"):
        parser.add_argument(name)
    args = parser.parse_args()
    for epoch in range(9):
        write({folder}, model, epoch)

main()
"""
JOINED = 'os.path.join(folder, f"epoch{epoch}.pt")'


@pytest.mark.parametrize(
    ("target", "folder", "levels"),
    [
        (JOINED, "args.runs_dir", ["warning JOB011 5"]),
        ('Path(folder) / "last.pt"', "args.runs_dir", ["warning JOB011 5"]),
        ('"{}/epoch_{:03d}.pt".format(folder, epoch)', "args.runs_dir", ["warning JOB011 5"]),
        ('folder + "/last.pt"', 'os.path.join(args.runs_dir, "best")', ["warning JOB011 5"]),
        (JOINED, 'os.path.join(args.runs_dir, f"drop{args.dropout}")', []),
        (JOINED, "args.runs_dir + os.environ['SLURM_ARRAY_TASK_ID']", []),
        (JOINED, "os.path.join(args.runs_dir, time.strftime('%H%M%S'))", []),
        (JOINED, "run_folder(args)", []),
        (JOINED, "f'{args.runs_dir}/{args.epoch}'", []),  # an option that may differ
        ('f"{folder}/{step}"\n    step = model.dropout', "args.runs_dir", []),
        (JOINED, "args.data_out", []),
        ('os.path.join(folder, wandb.run.id, "last.pt")', "args.runs_dir", []),
    ],
)
def test_tasks_of_an_array_whose_program_saves_below_a_directory(
    tmp_path: Path, target: str, folder: str, levels: list[str]
) -> None:
    (tmp_path / "a.sbatch").write_text(SWEEP.format(runs="/fsx/runs/drop", before="", runner=""))
    (tmp_path / "fit.py").write_text(FIT.format(target=target, folder=folder, epoch="{epoch}"))
    assert [one for one in loud(check([str(tmp_path / "a.sbatch")]).findings) if "JOB011" in one] == levels


@pytest.mark.parametrize("change", ["args.runs_dir += args.dropout", "args.runs_dir = args.runs_dir + args.dropout"])
def test_tasks_of_an_array_whose_program_extends_the_option(tmp_path: Path, change: str) -> None:
    (tmp_path / "a.sbatch").write_text(SWEEP.format(runs="/fsx/runs/drop", before="", runner=""))
    program = FIT.format(target=JOINED, folder="args.runs_dir", epoch="{epoch}")
    (tmp_path / "fit.py").write_text(program.replace("    for epoch", f"    {change}\n    for epoch"))
    assert [one for one in loud(check([str(tmp_path / "a.sbatch")]).findings) if "JOB011" in one] == []


@pytest.mark.parametrize(("test", "count"), [("args.keep", 0), ("epoch % args.every == 0", 1), ("rank == 0", 1)])
def test_tasks_of_an_array_whose_program_saves_when_asked(tmp_path: Path, test: str, count: int) -> None:
    (tmp_path / "a.sbatch").write_text(SWEEP.format(runs="/fsx/runs/drop", before="", runner=""))
    program = FIT.format(target=JOINED, folder="args.runs_dir").replace(
        "        write(", f"        if {test}:\n            write("
    )
    (tmp_path / "fit.py").write_text(program)
    assert len([one for one in check([str(tmp_path / "a.sbatch")]).findings if "all tasks" in one.message]) == count


@pytest.mark.parametrize(
    ("runs", "before", "runner", "count"),
    [
        ("/fsx/runs/drop", "", "", 1),
        ("runs/drop", "", "", 1),
        ("/fsx/runs/drop-$P", "", "", 0),
        ("/fsx/runs/$SLURM_JOB_ID", "", "", 0),
        ("runs/drop", 'mkdir -p "work-$P"; cd "work-$P"', "", 0),
        ("/out/drop", "", "docker run -v /fsx/$SLURM_ARRAY_TASK_ID:/out fit:1", 0),
    ],
)
def test_tasks_of_an_array_that_have_a_directory_each(
    tmp_path: Path, runs: str, before: str, runner: str, count: int
) -> None:
    (tmp_path / "a.sbatch").write_text(SWEEP.format(runs=runs, before=before, runner=runner))
    (tmp_path / "fit.py").write_text(FIT.format(target=JOINED, folder="args.runs_dir"))
    findings = [one for one in check([str(tmp_path / "a.sbatch")]).findings if one.code == "JOB011"]
    assert len([one for one in findings if "all tasks" in one.message]) == count


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("--mem=4G –-time=1:00:00", "write --time=1:00:00, with the hyphens of ASCII"),
        ("--mem=4G –t 1:00:00", "write -t, with the hyphens of ASCII"),
        ("--mail-type=END FAIL", "write END,FAIL"),
        ("--mail-type=END FAIL if it fails", "write commas without blanks between the values, and # before a comment"),
        ("--gres=gpu:1 (V100)", "write # before a comment"),
        ("--time=2:00:00:00", "write 2-00:00:00"),
        ("--time=48:00:00:00", "write days-hours:minutes:seconds"),  # 48 hours or 48 days
    ],
)
def test_what_to_write_in_a_refused_line(run: Run, line: str, fix: str) -> None:
    assert fixes(run("a.sbatch", f"#!/bin/bash\n#SBATCH {line}\npython train.py\n", "SLU006")) == [fix]
