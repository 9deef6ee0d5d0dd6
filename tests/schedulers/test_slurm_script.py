"""The sbatch script: everything a job asks for is in it, nothing else, and it is clean bash."""

from __future__ import annotations

import dataclasses
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from trainwright.catalog.capabilities import schedulers
from trainwright.catalog.environment import EnvVar
from trainwright.schedulers.base import Launch, assert_honoured
from trainwright.schedulers.process import ProcessScheduler
from trainwright.schedulers.slurm import SlurmScheduler, clock, pyxis_image
from trainwright.schedulers.torchrun import stop_forwarder

PLAIN = Launch("train", ("python", "-m", "trainwright.train", "--steps", "10"), Path("/runs/a b"), nodes=4, processes=8)
FULL = dataclasses.replace(
    PLAIN,
    cpus=12,
    gpus=8,
    queue="gpu",
    environment=(EnvVar("NCCL_DEBUG", "it's $HOME", "to see"),),
    array="0-3%2",
    time=90_061,
    grace=300,
    exclusive=True,
    account="team",
    qos="high",
    constraint="h100",
    reservation="block",
    after="17",
    container="/fsx/image.sqsh",
    mounts=("/fsx", "/host:/inside"),
    venv="/fsx/venv",
    health=True,
)


def text(job: Launch, **fields: str) -> str:
    return SlurmScheduler(python="python3", **fields).render(job).text


@pytest.mark.parametrize("launcher", ["srun", "torchrun", "plain"])
@pytest.mark.parametrize("job", [PLAIN, FULL, dataclasses.replace(FULL, requeue=False, array="")])
def test_the_script_passes_shellcheck(job: Launch, launcher: str, tmp_path: Path) -> None:
    path = tmp_path / "job.sbatch"
    path.write_text(text(dataclasses.replace(job, launcher=launcher)))
    done = subprocess.run(["shellcheck", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "line",
    [
        "--nodes=4",
        "--ntasks-per-node=8",
        "--cpus-per-task=12",
        "--partition=gpu",
        "--gres=gpu:8",
        "--time=1-01:01:01",
        "--account=team",
        "--qos=high",
        "--constraint=h100",
        "--reservation=block",
        "--array=0-3%2",
        "--dependency=afterok:17",
        "--kill-on-invalid-dep=yes",
        "--exclusive",
        "--signal=USR1@300",
        "--requeue",
    ],
)
def test_what_was_asked_for_is_in_the_script(line: str) -> None:
    assert f"#SBATCH {line}\n" in text(FULL)


def test_what_was_not_asked_for_is_not_in_the_script() -> None:
    script = text(PLAIN)
    for word in (
        "--account",
        "--qos",
        "--time",
        "--array",
        "--exclusive",
        "container",
        "health",
        "activate",
    ):
        assert word not in script


def test_containers_mount_the_run_folder_too() -> None:
    script = text(FULL)
    assert "--container-image=/fsx/image.sqsh" in script
    assert "--container-mounts=/fsx:/fsx,/host:/inside,/runs/a b:/runs/a b" in script.replace("'", "")


def test_no_random_port_and_no_literal_rank() -> None:
    script = text(FULL)
    assert "RANDOM" not in script
    assert "SLURM_JOB_ID + 7919 * ${SLURM_RESTART_COUNT:-0}" in script
    assert "RANK=$SLURM_PROCID" in script


def test_values_are_quoted() -> None:
    assert """export NCCL_DEBUG='it'"'"'s $HOME'  # to see""" in text(FULL)


def test_under_torchrun_a_node_has_one_task() -> None:
    script = text(dataclasses.replace(FULL, launcher="torchrun"))
    assert "#SBATCH --ntasks-per-node=1\n" in script
    assert "#SBATCH --cpus-per-task=96\n" in script
    assert "--nnodes=4 --nproc-per-node=8" in script
    assert "#SBATCH --signal=USR1@" in script
    assert 'trap "" USR1; exec' in script, "torchrun itself would die of the notice"


def test_the_process_scheduler_refuses_what_it_cannot_honour(tmp_path: Path) -> None:
    asked = dataclasses.replace(FULL, secrets=(("TOKEN", "vault"),), kind="jobset")
    for path in schedulers()["process"].cannot:
        job = dataclasses.replace(PLAIN, nodes=1, **{path[-1]: getattr(asked, path[-1])})
        with pytest.raises(AssertionError, match=path[-1]):
            ProcessScheduler().render(job)
    with pytest.raises(AssertionError, match="SPC003"):
        ProcessScheduler().render(PLAIN)
    assert_honoured(FULL, "slurm")


def test_the_process_script_passes_shellcheck(tmp_path: Path) -> None:
    path = tmp_path / "job.sh"
    job = dataclasses.replace(PLAIN, nodes=1, venv="/venv", environment=FULL.environment)
    path.write_text(ProcessScheduler(python="python3").render(job).text)
    done = subprocess.run(["shellcheck", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("seconds", "words"), [(59, "00:00:59"), (3600, "01:00:00"), (90_061, "1-01:01:01")])
def test_time_limits(seconds: int, words: str) -> None:
    assert clock(seconds) == words


# A rank that starts for a while, listens to the notice, and then takes long to end, without a handler: as an
# interpreter does while it shuts down.
SLOW_END = """
import os, signal, sys, time
time.sleep(1.0)
def notice(*_):
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    time.sleep(6.5)
    os._exit(75)
signal.signal(signal.SIGUSR1, notice)
open(sys.argv[1], "w").close()
time.sleep(20)
"""


def test_the_notice_reaches_a_rank_that_still_starts_and_ends_none_that_already_saves(tmp_path: Path) -> None:
    """The shell around a rank, as rendered, with a real rank: noticed before it listens, it still saves and ends."""
    around = text(PLAIN).split("bash -c '", 1)[1].split("' rank ", 1)[0]
    saved = tmp_path / "saved"
    here = {
        **os.environ,
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURM_NODEID": "0",
        "TRAINWRIGHT_SAVED": str(saved),
    }
    command = ["bash", "-c", around, "rank", sys.executable, "-c", SLOW_END, str(tmp_path / "listens")]
    shell = subprocess.Popen(command, env={**os.environ, **here})
    while not (children := Path(f"/proc/{shell.pid}/task/{shell.pid}/children").read_text().split()):
        assert shell.poll() is None
    while b"python" not in Path(f"/proc/{children[0]}/cmdline").read_bytes().split(b"\0")[0]:
        assert shell.poll() is None
    shell.send_signal(signal.SIGUSR1)
    assert not (tmp_path / "listens").exists()
    assert shell.wait(timeout=30) == 0
    assert saved.exists()


# Every rank ends at once when it is told, and the shell around it is slow to notice: as on a loaded machine.
SLOW_SHELL = 'kill() { if [ "$1" = -0 ]; then sleep 1; fi; builtin kill "$@"; }\n'
ENDS_AT_ONCE = """
import os, signal, sys, time
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, lambda *_: os._exit(75))
open(sys.argv[1], "w").close()
time.sleep(20)
"""


def ended_by(command: list[str], told: int, tmp_path: Path, environment: dict[str, str]) -> int:
    """The status of a shell whose rank ends while the shell handles the signal."""
    slow = tmp_path / "slow"
    slow.write_text(SLOW_SHELL)
    listens = tmp_path / "listens"
    words = [*command, sys.executable, "-c", ENDS_AT_ONCE, str(listens)]
    shell = subprocess.Popen(words, env={**os.environ, **environment, "BASH_ENV": str(slow)})
    while not listens.exists():
        assert shell.poll() is None
    shell.send_signal(told)
    return shell.wait(timeout=30)


def test_a_rank_that_ends_while_its_shell_is_noticed_keeps_its_status(tmp_path: Path) -> None:
    around = text(PLAIN).split("bash -c '", 1)[1].split("' rank ", 1)[0]
    places = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"}
    saved = tmp_path / "saved"
    environment = {**places, "TRAINWRIGHT_SAVED": str(saved)}
    assert ended_by(["bash", "-c", around, "rank"], signal.SIGUSR1, tmp_path, environment) == 0
    assert saved.exists()


def test_torchrun_that_ends_while_it_is_stopped_keeps_its_status(tmp_path: Path) -> None:
    words = shlex.split(stop_forwarder().replace("/task/*/children", "/none"))  # here torchrun has no ranks
    assert ended_by(words, signal.SIGTERM, tmp_path, {}) == 75


@pytest.mark.parametrize(
    ("image", "named"),
    [
        ("nvcr.io/nvidia/nemo:25.07", "nvcr.io#nvidia/nemo:25.07"),
        ("localhost:5000/train:1", "localhost:5000#train:1"),
        ("nvidia/cuda:12.8", "nvidia/cuda:12.8"),
        ("nvcr.io#nvidia/nemo:25.07", "nvcr.io#nvidia/nemo:25.07"),
        ("/fsx/images/train.sqsh", "/fsx/images/train.sqsh"),
        ("./train.sqsh", "./train.sqsh"),
        ("docker://nvcr.io#nvidia/nemo:1", "docker://nvcr.io#nvidia/nemo:1"),
    ],
)
def test_an_image_is_named_as_enroot_names_it(image: str, named: str) -> None:
    assert pyxis_image(image) == named
