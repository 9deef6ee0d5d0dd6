"""JOB009 on the deepspeed launcher over several nodes, as its runner of 0.12.6 to 0.19.8 reads its options, and the
script beside a launcher whose change makes the cache forget."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from reported import shown

from trainwright.check.finding import Finding
from trainwright.cli.check import command

Run = Callable[..., list[Finding]]
BATCH = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n#SBATCH --exclusive\n"
SHELL = "#!/bin/bash\nexport NCCL_DEBUG=INFO\n"


@pytest.mark.parametrize(
    "line",
    [
        "deepspeed --num_nodes 2 --num_gpus 8 train.py --deepspeed ds.json",
        "deepspeed --num_nodes=$SLURM_NNODES train.py",
        "deepspeed --num_nodes 2 --launcher slurm train.py",
        "deepspeed --num_nodes 2 --launcher openmpi --force_multi train.py",
        "deepspeed --no_ssh --node_rank 0 --master_addr a --num_nodes 2 train.py",
        "srun deepspeed --num_nodes 2 --bind_cores_to_rank train.py",
        "deepspeed --num_nodes 2 train.py --hostfile hosts",  # after the script it is the script's
    ],
)
def test_several_nodes_without_a_hostfile_stop_the_launcher(run: Run, line: str) -> None:
    (finding,) = run("a.sbatch", BATCH + line + "\n", "JOB009")

    assert (finding.level, finding.span.line) == ("error", 5)
    assert "--num_nodes 2" in finding.message
    assert "hostfile" in finding.message


def test_where_the_machine_may_have_the_default_hostfile_it_is_no_error(run: Run) -> None:
    assert shown(run("a.sh", SHELL + "deepspeed --num_nodes=2 train.py\n", "JOB009")) == ["info JOB009 3"]
    inside = "srun --container-image=a.sqsh deepspeed --num_nodes 2 train.py\n"
    assert shown(run("a.sbatch", BATCH + inside, "JOB009")) == ["warning JOB009 5"]


@pytest.mark.parametrize(
    "lines",
    [
        "deepspeed --hostfile=hosts --num_nodes 2 train.py",
        "deepspeed -H hosts --num_nodes 2 train.py",
        "deepspeed --num_nodes 1 train.py",
        "mkdir -p /job && scontrol show hostnames > /job/hostfile\ndeepspeed --num_nodes 2 train.py",
        "echo PATH=$PATH > .deepspeed_env\ndeepspeed --num_nodes 2 train.py",
        "deepspeed --num_nodes ${NODES:-2} train.py",
        "deepspeed $OPTIONS --num_nodes 2 train.py",
        "if [ -n $A ]; then deepspeed --num_nodes 2 train.py; fi",
        "deepspeed train.py --num_nodes 2",
        "python train.py --num_nodes 2",
    ],
)
def test_a_hostfile_or_a_doubt_is_not_reported(run: Run, lines: str) -> None:
    assert run("a.sh", f"{SHELL}{lines}\n", "JOB009") == []


def test_nodes_that_the_launcher_never_learns_of(run: Run) -> None:
    (alone,) = run("a.sbatch", BATCH + "deepspeed --num_gpus 8 train.py --deepspeed ds.json\n", "JOB009")
    assert (alone.level, alone.span.line) == ("warning", 5)
    assert "first of 2 nodes" in alone.message

    (each,) = run("b.sbatch", BATCH + "srun --ntasks-per-node=1 deepspeed train.py\n", "JOB009")
    assert (each.level, each.span.line) == ("warning", 5)
    assert "2 nodes each start a run of their own" in each.message


@pytest.mark.parametrize(
    "lines",
    [
        "deepspeed --hostfile hosts train.py",
        "scontrol show hostnames > hostfile\ndeepspeed train.py",
        "ssh b deepspeed train.py\ndeepspeed train.py",
        "srun -N 1 deepspeed train.py",
        "deepspeed $OPTIONS train.py",
        "srun deepspeed train.py --shard $SLURM_NODEID",
        "for a in 1 2; do deepspeed train.py; done",
        "srun -w a deepspeed train.py &\nsrun -w b deepspeed train.py &\nwait",
        "source hosts.sh\ndeepspeed train.py",
    ],
)
def test_nodes_that_may_be_used_are_not_reported(run: Run, lines: str) -> None:
    assert run("a.sbatch", f"{BATCH}{lines}\n", "JOB009") == []
    one = BATCH.replace("nodes=2", "nodes=1")
    assert run("b.sbatch", f"{one}deepspeed train.py\n", "JOB009") == []


def test_a_changed_script_makes_the_cache_forget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    meet = "--nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500"
    folder = tmp_path / "work" / "jobs"  # the cache watches the two folders above a file anyway
    (folder / "src").mkdir(parents=True)
    (folder / "a.sbatch").write_text(
        f"{BATCH}HEAD=$(scontrol show hostnames | head -1)\nsrun torchrun {meet} src/train.py --nproc_per_node 8\n"
    )
    (folder / "src" / "train.py").write_text("print(1)\n")

    def found() -> bool:
        answer = CliRunner().invoke(command, [str(folder), "--select", "JOB009", "--cache", "--format", "json"])
        return "takes no option after" in answer.stdout

    assert found()
    (folder / "src" / "train.py").write_text('parser.add_argument("--nproc_per_node")\n')
    assert not found()


def test_a_script_is_read_wherever_it_is(run: Run, tmp_path: Path) -> None:
    meet = "--nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500"
    program = tmp_path / "elsewhere" / "train.py"
    program.parent.mkdir()
    text = f"{BATCH}HEAD=$(scontrol show hostnames | head -1)\nsrun torchrun {meet} {program} --rdzv_id=5\n"
    program.write_text("print(1)\n")
    assert any("takes no option after" in finding.message for finding in run("a.sbatch", text, "JOB009"))
    for reads in ('parser.add_argument("--rdzv_id")\n', "#" * 2**21):
        program.write_text(reads)
        assert run("a.sbatch", text, "JOB009") == []


@pytest.mark.parametrize("option", ["--master-port 29511", "--num-gpus=4", "--no-ssh", "--launcher-args '-p gpu'"])
def test_the_launcher_takes_underscores_only(run: Run, option: str) -> None:
    (finding,) = run("a.sh", f"{SHELL}deepspeed --hostfile hosts {option} train.py\n", "JOB013")

    assert (finding.level, finding.span.line) == ("error", 3)
    name = option.partition(" ")[0].partition("=")[0]
    assert f"no option {name}" in finding.message
    assert f"did you mean --{name[2:].replace('-', '_')}?" in finding.fix


@pytest.mark.parametrize(
    "line",
    [
        "deepspeed --master_port 29511 --num_gpus=4 train.py",
        "deepspeed --master_po 29511 train.py",  # argparse takes the beginning of an option
        "deepspeed --num_gpus 4 train.py --per-device-train-batch-size 2",
        "torchrun --nproc_per_node 4 --master-port 29511 train.py",
        "accelerate launch --num-processes 4 --main_process_port 29511 train.py",
    ],
)
def test_other_parsers_take_both_spellings(run: Run, line: str) -> None:
    assert run("a.sh", f"{SHELL}{line}\n", "JOB013") == []
