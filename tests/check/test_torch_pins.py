"""IMG006 on pins of torch, torchvision and torchaudio. What pip and uv do with each form was tried with packages of
these versions and requirements."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from reported import shown

from trainwright.catalog.tables import read_table
from trainwright.check.finding import Finding
from trainwright.check.rules.img_torch import TABLE

Run = Callable[..., list[Finding]]
HEAD = "#!/bin/bash\nset -e\n"
IMAGE = "FROM nvidia/cuda:12.4.1-devel-ubuntu22.04\n"


def test_the_table_holds_what_wheels_require() -> None:
    rows = {(row["software"], row["version"]): row["torch"] for row in read_table(TABLE).records()}

    assert len(rows) > 80
    assert rows["torchvision", "0.16.0"] == "2.1.0"
    assert rows["torchvision", "0.15.2"] == "2.0.1"
    assert rows["torchaudio", "2.0.2"] == "2.0.1"
    assert rows["torchvision", "0.29.1"] == ""  # it takes several


@pytest.mark.parametrize(
    "line",
    [
        'pip install "torch==2.6.0+cu124" "torchvision==0.16.0+cu124" torchaudio==2.6.0+cu124 -f https://x/whl',
        "pip3 install -U torch==2.6 torchvision==0.16",
        "python3 -m pip install --no-cache-dir torch==2.6.* torchvision==0.16.*",
        "/opt/venv/bin/pip install torch~=2.6.0 torchvision~=0.16.0",
        "uv pip install --system torch==2.6.0 torchvision==0.16.0",
        "V=0.16.0\npip install torch==2.6.0 torchvision==$V",
        "pip install torch==2.6.0 torchaudio==2.1.0",
        "pip install torchvision==0.21.0 torchaudio==2.1.0",
        "if [ -n $A ]; then pip install torch==2.6.0 torchvision==0.16.0; fi",
        "sudo pip install torch===2.6.0 'torchvision[scipy] == 0.16.0'",
    ],
)
def test_one_command_that_pip_refuses(run: Run, line: str) -> None:
    (finding,) = run("a.sh", f"{HEAD}{line}\n", "IMG006")

    assert finding.level == "error"
    assert "torch 2.1.0" in finding.message
    assert "2.6.0" in finding.message or "2.6" in finding.message


def test_the_fix_names_the_release_of_the_given_torch(run: Run) -> None:
    (finding,) = run("Dockerfile", IMAGE + "RUN pip install torch==2.6.0+cu124 torchvision==0.16.0+cu124\n", "IMG006")

    assert finding.fix == "write torchvision==0.21.0+cu124"
    assert finding.span.line == 2


def test_variables_of_an_image_are_filled_in(run: Run) -> None:
    lines = "ARG TORCH=2.6.0\nENV VISION=0.16.0\nRUN apt-get update && \\\n    pip install torch==${TORCH} \\\n"
    text = f"{IMAGE}{lines}    torchvision==${{VISION}}\n"

    assert shown(run("Dockerfile", text, "IMG006")) == ["error IMG006 6"]


@pytest.mark.parametrize("image", ["nvidia/cuda:11.8.0-devel-ubuntu20.04", "ubuntu:18.04"])
def test_a_pip_that_may_be_too_old_to_refuse_is_a_warning(run: Run, image: str) -> None:
    text = f"FROM {image}\nRUN pip install torch==2.1.0 torchvision==0.15.1\n"

    assert shown(run("Dockerfile", text, "IMG006")) == ["warning IMG006 2"]


@pytest.mark.parametrize(
    "lines",
    [
        "pip install torch==2.1.0 torchvision==0.16.0 torchaudio==2.1.0",
        "pip install torch==2.1.0+cu118 torchvision==0.16.0",
        "pip install torch==2.1 torchvision==0.16.0",
        "pip install torch==2.1.* torchvision==0.16.2",
        "pip install torch~=2.1.0 torchvision==0.16.1",
        "pip install torch~=2.1 torchvision==0.17.0",
        "pip install torch~=2.1 torchvision~=0.16",
        "pip install torch torchvision==0.16.0",
        "pip install torch==2.6.0 torchvision",
        "pip install 'torch>=2.0,<2.2' torchvision==0.20.0",
        "pip install torch>=2.0 torchvision==0.20.0",
        "pip install torch==2.6.0 torchvision==$V",
        "pip install torch==${T:-2.6.0} torchvision==0.16.0",
        "pip install torch==2.15.1 torchvision==0.16.0",  # not in the table
        "pip install torch==2.6.0 torchvision==0.16.0a0",
        "pip install torch==2.16.0.dev20270101 torchvision==0.16.0",
        "pip install torch==2.14.1 torchvision==0.29.1",
        "pip install torch==2.13.0 torchvision==0.29.*",
        "pip download torch==2.6.0 torchvision==0.16.0",
        "pip uninstall -y torch==2.6.0 torchvision==0.16.0",
        "pip install torchmetrics==2.6.0 torchvision==0.16.0",
        "pip install --index-url https://pypi.jetson-ai-lab.dev/jp6 torch==2.6.0 torchvision==0.16.0",
        "echo pip install torch==2.6.0 torchvision==0.16.0",
        "pip install torch==2.6.0 'torchvision==0.16.0; python_version < \"3.8\"'",
    ],
)
def test_what_goes_together_or_is_open_is_not_reported(run: Run, lines: str) -> None:
    assert run("a.sh", f"{HEAD}{lines}\n", "IMG006") == []


def test_a_later_command_replaces_torch(run: Run) -> None:
    text = HEAD + "pip install torch==2.6.0+cu124\npip install numpy\npip install torchvision==0.16.0\n"
    (finding,) = run("a.sh", text, "IMG006")

    assert (finding.level, finding.span.line) == ("warning", 5)
    assert "replaces torch 2.6.0 of line 3 by 2.1.0" in finding.message


def test_a_later_torch_leaves_a_torchvision_that_does_not_fit(run: Run) -> None:
    text = IMAGE + "RUN pip install torchvision==0.16.0\nRUN pip install torch==2.6.0\n"
    (finding,) = run("Dockerfile", text, "IMG006")

    assert (finding.level, finding.span.line) == ("warning", 3)
    assert "torch 2.6.0" in finding.message
    assert "torchvision 0.16.0" in finding.message


def test_without_dependencies_they_meet_at_run_time(run: Run) -> None:
    (finding,) = run("a.sh", HEAD + "pip install --no-deps torch==2.6.0 torchvision==0.16.0\n", "IMG006")

    assert finding.level == "warning"
    assert "do not load" in finding.message
    patch = "pip install --no-deps torch==2.1.1 torchvision==0.16.0\n"
    assert run("b.sh", HEAD + patch, "IMG006") == []


@pytest.mark.parametrize(
    "lines",
    [
        "pip install torch==2.6.0\npip install torchvision==0.21.0",
        "pip install torchvision==0.16.0\npip install torch==2.6.0 torchvision==0.21.0",
        "pip install torchvision==0.16.0\npip install torch==2.6.0\npip install torchvision==0.21.0",
        "pip install torch==2.6.0\npip uninstall -y torch\npip install torchvision==0.16.0",
        "pip install torch==2.6.0\npip install -r requirements.txt\npip install torchvision==0.16.0",
        "pip install torch==2.6.0\npip install vllm==0.5\npip install torchvision==0.16.0",
        "pip install torch==2.6.0\nconda activate b\npip install torchvision==0.16.0",
        "pip install torch==2.6.0\nsource b/bin/activate\npip install torchvision==0.16.0",
        "a/bin/pip install torch==2.6.0\nb/bin/pip install torchvision==0.16.0",
        "if [ $A ]; then pip install torch==2.6.0; else pip install torchvision==0.16.0; fi",
        "f() {\n pip install torch==2.6.0\n}\npip install torchvision==0.16.0",
        "pip install -t a torch==2.6.0\npip install -t b torchvision==0.16.0",
    ],
)
def test_commands_that_do_not_meet_are_not_reported(run: Run, lines: str) -> None:
    assert run("a.sh", f"{HEAD}{lines}\n", "IMG006") == []


def test_stages_of_an_image_do_not_meet(run: Run) -> None:
    text = f"{IMAGE}RUN pip install torch==2.6.0\n{IMAGE}RUN pip install torchvision==0.16.0\n"

    assert run("Dockerfile", text, "IMG006") == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("conda install -y pytorch=2.1 torchvision=0.15 -c pytorch", True),
        ("mamba install pytorch==2.1.0 torchvision==0.15.2 torchaudio==2.1.0 pytorch-cuda=11.8 -c pytorch", True),
        ("conda create -n a python=3.10 pytorch::pytorch=1.12.1 torchvision=0.14", True),
        ("conda install pytorch=2.1 torchvision=0.16 torchaudio=2.1 -c pytorch", False),
        ("conda install pytorch=2.1.0 torchvision=0.16.1 -c conda-forge", False),  # conda-forge's takes all of 2.1
        ("conda install pytorch torchvision=0.16 -c pytorch", False),
        ("conda install pytorch=2 torchvision=0.16 -c pytorch", False),
        ("conda run -n a python train.py pytorch=2.1 torchvision=0.15", False),
    ],
)
def test_lines_of_conda(run: Run, line: str, said: bool) -> None:
    assert shown(run("a.sh", f"{HEAD}{line}\n", "IMG006")) == (["warning IMG006 3"] if said else [])
