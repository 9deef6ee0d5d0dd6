"""IMG rules near their triggers: what pip, git and Docker do with other circumstances."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from reported import loud, shown

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]
IMAGE = "FROM nvidia/cuda:12.1.0-devel-ubuntu22.04\n"


CHECKOUTS = [
    ("git checkout -b v2.12.7-1", True),
    ("git checkout -b v2.12.7-1 tags/v2.12.7-1", False),
    ("git checkout tags/v2.12.7-1 -b v2.12.7-1", False),
    ("git checkout -b v2.12.7-1 v2.12.7-1", False),
    ("git checkout -b v2.12.7-1 && git reset --hard tags/v2.12.7-1", False),
]


@pytest.mark.parametrize(("line", "wrong"), CHECKOUTS)
def test_a_branch_with_the_name_of_a_tag(run: Run, tmp_path: Path, line: str, wrong: bool) -> None:
    image = IMAGE + f"RUN git clone https://github.com/NVIDIA/nccl && cd nccl && {line} && make\n"
    assert loud(run("Dockerfile", image, "IMG002")) == (["warning IMG002 2"] if wrong else [])
    assert (_commit_after(tmp_path / "nccl", line) == "second") is wrong


def _commit_after(folder: Path, line: str) -> str:
    """What git has checked out after the line, where the tag is at the first of two commits."""
    if shutil.which("git") is None:
        pytest.skip("no git")
    folder.mkdir()
    start = (
        "git init -q . && git config user.email a@b && git config user.name a && git commit -q --allow-empty -m first"
    )
    more = "git tag v2.12.7-1 && git commit -q --allow-empty -m second"
    done = subprocess.run(
        ["sh", "-ec", f"{start} && {more} && {line} >/dev/null 2>&1 && git log -1 --format=%s"],
        cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.mark.parametrize(
    "line",
    ["git checkout -b 1.2.0-patched", "git checkout -b v1.2 && git am /p/*", "git checkout -b v1.2 && git push"],
)
def test_a_branch_of_ones_own_is_no_mistake(run: Run, line: str) -> None:
    image = IMAGE + f"RUN git clone https://github.com/NVIDIA/nccl && cd nccl && {line} && make\n"
    assert loud(run("Dockerfile", image, "IMG002")) == []


def test_a_shallow_clone_has_no_tags_to_check_out(run: Run) -> None:
    image = (
        IMAGE + "RUN git clone --depth 1 https://github.com/NVIDIA/apex && cd apex && git checkout -b 22.04 && make\n"
    )
    (finding,) = run("Dockerfile", image, "IMG002")
    assert "--branch 22.04" in finding.fix


CURL = "curl -O https://efa-installer.amazonaws.com/aws-efa-installer-{}.tar.gz"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("Dockerfile",
         f"{IMAGE}ARG EFA_VERSION=1.30.0\nRUN {CURL.format('1.29.1')} && tar xf aws-efa-installer-1.29.1.tar.gz\n",
         ["warning IMG003 3"]),
        ("Dockerfile", f"FROM a/b:efa1.43.2\nARG EFA_VERSION=1.44.0\nRUN {CURL.format('${EFA_VERSION}')}\n", []),
        ("Dockerfile", f"{IMAGE}ARG EFA_VERSION=1.29.0\n{IMAGE}ARG EFA_VERSION=1.30.0\n", []),
        ("a.sh", "#!/bin/bash\nif [ $OS = a ]; then\n  EFA_VERSION=1.30.0\nelse\n  EFA_VERSION=1.29.0\nfi\n", []),
        ("a.sh", f"#!/bin/bash\ncd aws-efa-installer-1.29.0 && ./efa_installer.sh -u\n{CURL.format('1.30.0')}\n", []),
    ],
)  # fmt: skip
def test_two_versions_of_one_image(run: Run, name: str, text: str, expected: list[str]) -> None:
    assert loud(run(name, f"{text}# nccl\n", "IMG003")) == expected


@pytest.mark.parametrize(
    ("gpus", "more", "level"),
    [
        ("all", "--nproc_per_node=8 train.py --num_workers 8", "warning"),
        ("all", "--nproc_per_node=8 train.py", "info"),
        ("all", "--nproc_per_node=8 train.py --num_workers 0", "info"),
        ("all", "--nproc_per_node=1 train.py --num_workers 8", ""),
        ("device=0", "train.py --num_workers 8", ""),
        ("1", "train.py --num_workers 8", ""),
        ("all", "--help", ""),
    ],
)
def test_shared_memory_of_a_container(run: Run, gpus: str, more: str, level: str) -> None:
    findings = run("a.sh", f"#!/bin/bash\ndocker run --gpus {gpus} img:1 torchrun {more}\n", "IMG004")
    assert shown(findings) == ([f"{level} IMG004 2"] if level else [])


TRAINS = "torchrun --standalone --nproc_per_node=4 -m seg.fit --num_workers 6"


@pytest.mark.parametrize(
    ("options", "level"),
    [
        ('--name "seg-$1" "$IMAGE"', "warning"),
        ("--rm --name seg-$USER -v $HOME/data:/data --ulimit memlock=-1 seg:4.1", "warning"),
        ("-it -e RUN=${RUN} --user $(id -u):$(id -g) seg:$TAG", "warning"),
        ('--rm "registry.example.com/seg:${TAG}"', "warning"),
        ("--rm $SEG_IMAGE", "warning"),
        ('--rm "$1"', "warning"),
        ("$DOCKER_ARGS seg:4.1", ""),
        ('"${ARGS[@]}" seg:4.1', ""),
        ("--rm $EXTRA seg:4.1", ""),
        ("-it ${EXTRA} seg:4.1", ""),
        ("--network=host $EXTRA seg:4.1", ""),
        ("--name a $EXTRA", ""),  # options and the image
        ("--ipc=$IPC seg:4.1", ""),
        ('--name "seg-$1" --ipc host "$IMAGE"', ""),
        ('--name "seg-$1" --shm-size "$SHM" "$IMAGE"', ""),
        ("--name $NAME --tmpfs /dev/shm:size=32g seg:4.1", ""),
    ],
)
def test_shared_memory_of_a_container_with_open_words(run: Run, options: str, level: str) -> None:
    findings = run("fit.sh", f"#!/bin/bash\ndocker run --gpus all {options} {TRAINS}\n", "IMG004")
    assert shown(findings) == ([f"{level} IMG004 2"] if level else [])


def test_the_driver_is_the_nodes(run: Run) -> None:
    image = f"{IMAGE}ARG NVIDIA_DRIVER_VERSION=470.57.02\n"
    assert shown(run("Dockerfile", image, "IMG005")) == ["info IMG005 2"]
    node = "#!/bin/bash\nCUDA_VERSION=12.1\nwget https://example.com/NVIDIA-Linux-x86_64-470.57.02.run\n"
    assert shown(run("a.sh", node, "IMG005")) == ["error IMG005 3"]


WRONG = "pip install {}torch==2.1.0 torchvision==0.16.1"


@pytest.mark.parametrize(
    ("line", "level"),
    [
        (WRONG.format(""), "error"),
        (WRONG.format("") + " || exit 1", "error"),
        (WRONG.format("") + " || pip install torch==2.1.0 torchvision==0.16.0", ""),
        (WRONG.format("") + " \\\n  || conda install pytorch", ""),
        (WRONG.format("--no-index "), "info"),
        ("uv " + WRONG.format("--override o.txt "), ""),
        ("pip install torch==1.4.0 torchvision==0.6.0", "warning"),
        ("pip download torch==2.1.0 torchvision==0.16.1", ""),
        ("echo 'pip install torch==2.1.0 torchvision==0.16.1'", ""),
    ],
)
def test_pins_of_torch_with_another_way_out(run: Run, line: str, level: str) -> None:
    findings = run("a.sh", f"#!/bin/bash\n{line}\n", "IMG006")
    assert [one.level for one in findings] == ([level] if level else [])


def test_an_old_driver_with_forward_compatibility(run: Run) -> None:
    text = "#!/bin/bash\nNVIDIA_DRIVER_VERSION=470.57.02\nCUDA_VERSION=12.1.0\n"
    assert [finding.level for finding in run("setup.sh", text, "IMG005")] == ["error"]
    text += "apt-get install -y cuda-compat-12-1\n"
    assert [finding.level for finding in run("setup.sh", text, "IMG005")] == ["info"]


TOOLKIT = "apt-get install -y cuda-toolkit-13-1\n"


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        ("sudo apt-get install -y nvidia-driver-570\n" + TOOLKIT, 2),
        ("apt install -y nvidia-headless-535-server nvidia-utils-535-server\n" + TOOLKIT, 2),
        ("dnf module install -y nvidia-driver:575-dkms\ndnf install -y cuda-toolkit-13\n", 2),
        ("yum install -y cuda-drivers-550.54.15\nsh cuda_13.0.1_580.82.07_linux.run --silent --toolkit\n", 2),
        (
            "apt-get install -y cuda-drivers-560\npip install torch --index-url https://download.pytorch.org/whl/cu130\n",
            2,
        ),
        (TOOLKIT + "NVIDIA_DRIVER_VERSION=570.133.20\n", 3),
        ("CUDA_VERSION=12.4.1\napt-get install -y nvidia-driver-515\n", 3),
    ],
)
def test_packages_of_a_driver_that_cuda_does_not_take(run: Run, lines: str, line: int) -> None:
    assert shown(run("setup.sh", f"#!/bin/bash\n{lines}", "IMG005")) == [f"error IMG005 {line}"]


@pytest.mark.parametrize(
    "lines",
    [
        "apt-get install -y nvidia-driver-580-server\n" + TOOLKIT,
        "apt-get purge -y nvidia-driver-550\napt-get install -y nvidia-driver-580\n" + TOOLKIT,
        "if grep -q focal /etc/os-release; then apt-get install -y nvidia-driver-550; fi\n" + TOOLKIT,
        "old() { apt-get install -y nvidia-driver-550; }\nnew() { apt-get install -y nvidia-driver-580; }\n" + TOOLKIT,
        "apt-get install -y nvidia-driver-525\napt-get install -y cuda-toolkit-12-8\n",  # minor versions are compatible
        "apt-get install -y nvidia-driver-550\napt-get install -y cuda-toolkit-12-4 cuda-toolkit-13-0\n",
        "apt-get install -y nvidia-driver-550\napt-get install -y cuda-13-0\n",  # brings its own driver
        "apt-get install -y nvidia-driver-550\nsh cuda_13.0.1_580.82.07_linux.run --silent --driver --toolkit\n",
        "apt-mark hold nvidia-driver-550\n" + TOOLKIT,
        "apt-get install -y nvidia-utils-550\n" + TOOLKIT,
        "apt-get install -y nvidia-driver-$BRANCH\n" + TOOLKIT,
        "FABRIC_MANAGER_VERSION=580.95.05\napt-get install -y nvidia-driver-580-server\n" + TOOLKIT,
    ],
)
def test_packages_that_go_together(run: Run, lines: str) -> None:
    assert run("setup.sh", f"#!/bin/bash\n{lines}", "IMG005") == []
