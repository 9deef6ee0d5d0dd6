"""IMG006 on pins of torch, torchvision and torchaudio. What pip and uv do with each form was tried with packages of
these versions and requirements."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from reported import shown

from trainwright.catalog.tables import read_table
from trainwright.check.finding import Finding
from trainwright.check.rules import img_torch
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


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        ("torch==2.6.0+cu124 torchvision==0.16.0+cu121", "write torchvision==0.21.0+cu124"),
        ("torch==2.6.0 torchvision==0.16.0+cu121", "write torchvision==0.21.0"),
        ("torchvision==0.21.0+cu124 torchaudio==2.1.0+cu121", "write torchaudio==2.6.0+cu124"),
        ("torch==2.12.0+cu130 torchaudio==2.9.*", "write torchaudio==2.11.0"),  # it takes several
        ("torchvision==0.27.0 torchaudio==2.9.*", "write torchaudio==2.11.0"),
    ],
)
def test_the_fix_is_of_the_torch_and_its_cuda(run: Run, words: str, fix: str) -> None:
    (finding,) = run("a.sh", f"{HEAD}pip install {words}\n", "IMG006")

    assert finding.fix == fix


def test_the_fix_where_no_release_fits(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    table = {
        "torch": {(1, 9, 0): (1, 9, 0), (2, 9, 0): (2, 9, 0), (2, 9, 1): (2, 9, 1)},
        "torchvision": {(0, 10, 0): (1, 9, 0)},
        "torchaudio": {(2, 9, 0): (2, 9, 0), (2, 9, 1): (2, 9, 1), (2, 11, 0): ()},
    }
    monkeypatch.setattr(img_torch, "_table", lambda: table)

    def fix(lines: str) -> str:
        (finding,) = run("a.sh", f"{HEAD}{lines}\n", "IMG006")
        return finding.fix

    assert fix("pip install torch==1.9.0 torchaudio==2.9.*") == "use torch==2.9.1"
    assert fix("pip install torchvision==0.10.0 torchaudio==2.9.*") == "pin releases of one torch"
    assert fix("pip install torch==1.9.0\npip install torchaudio==2.9.*") == "use torch==2.9.1 on line 3"
    assert fix("pip install torchaudio==2.9.*\npip install torch==1.9.0") == "use torch==2.9.1"
    assert fix("conda install pytorch=1.9.0 torchaudio=2.9") == "use pytorch=2.9.1"


def test_every_companion_that_clashes_is_reported(run: Run) -> None:
    text = f"{HEAD}pip install torch==2.6.0+cu124 torchvision==0.16.0+cu121 torchaudio==2.1.0+cu121\n"
    findings = run("a.sh", text, "IMG006")

    assert [one.fix for one in findings] == [
        "write torchvision==0.21.0+cu124, or torch==2.1.0+cu121",
        "write torchaudio==2.6.0+cu124, or torch==2.1.0+cu121",
    ]
    apart = run("b.sh", f"{HEAD}pip install torch==2.6.0 torchvision==0.16.0 torchaudio==2.2.0\n", "IMG006")
    assert [one.fix for one in apart] == ["write torchvision==0.21.0", "write torchaudio==2.6.0"]
    conda = run("c.sh", f"{HEAD}conda install pytorch=2.6.0 torchvision=0.16.0 torchaudio=2.1.0\n", "IMG006")
    assert [one.fix for one in conda] == [
        "write torchvision=0.21.0, or pytorch=2.1.0",
        "write torchaudio=2.6.0, or pytorch=2.1.0",
    ]


def test_old_pip_does_not_concern_uv(run: Run) -> None:
    text = "FROM ubuntu:20.04\nRUN uv pip install --system torch==2.1.0 torchvision==0.15.1\n"
    (finding,) = run("Dockerfile", text, "IMG006")

    assert finding.level == "error"
    assert "uv refuses it" in finding.message


@pytest.mark.parametrize("version", ["\u0662.\u0666.\u0660", "2" * 4400, "2." + "6" * 4400])
def test_numbers_that_are_none(run: Run, version: str) -> None:
    lines = f"pip install torch=={version} torchvision==0.16.0\nconda install pytorch={version}.0 torchvision=0.16.0\n"
    last = "pip install torch==2.6.0 torchvision==0.16.0\n"

    assert shown(run("a.sh", HEAD + lines + last, "IMG006")) == ["error IMG006 5"]


@pytest.mark.parametrize("many", ["/", "$ ", ".whl"])
def test_a_long_word_takes_no_long_time(run: Run, many: str) -> None:
    begun = time.perf_counter()
    run("a.sh", f"{HEAD}# torchvision\npip install 'a{many * 100_000}\n'\n", "IMG006")

    assert time.perf_counter() - begun < 5


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


@pytest.mark.parametrize("option", ["--no-deps", "--no-dependencies"])
def test_without_dependencies_they_meet_at_run_time(run: Run, option: str) -> None:
    (finding,) = run("a.sh", HEAD + f"pip install {option} torch==2.6.0 torchvision==0.16.0\n", "IMG006")

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
        "uv pip install --python a torch==2.6.0\nuv pip install --python b torchvision==0.16.0",
        "uv pip install -p a torch==2.6.0\nuv pip install torchvision==0.16.0",
        "uv pip install -p $A torch==2.6.0\nA=c\nuv pip install -p $A torchvision==0.16.0",
        "pip --python=a install torch==2.6.0\npip install torchvision==0.16.0",
        "uv pip install --system torch==2.6.0\nuv pip install torchvision==0.16.0",
        "VIRTUAL_ENV=/a uv pip install torch==2.6.0\nVIRTUAL_ENV=/b uv pip install torchvision==0.16.0",
        "VIRTUAL_ENV=/a X=1 \\\n  uv pip install torch==2.6.0\nuv pip install torchvision==0.16.0",
        "VIRTUAL_ENV=$1 uv pip install torch==2.6.0\nVIRTUAL_ENV=$1 uv pip install torchvision==0.16.0",
        "VIRTUAL_ENV=/a bash -c 'uv pip install torch==2.6.0'\nuv pip install torchvision==0.16.0",
        "PYTHONUSERBASE=/a pip install torch==2.6.0\nPYTHONUSERBASE=/b pip install torchvision==0.16.0",
        "CONDA_PREFIX=/a uv pip install torch==2.6.0\nuv pip install torchvision==0.16.0",
        "pip install torch==2.6.0\nexport PATH=/b/bin:$PATH\npip install torchvision==0.16.0",
        "pip install torch==2.6.0 && PATH=/b/bin:$PATH && pip install torchvision==0.16.0",
        "pip install torch==2.6.0\nexport VIRTUAL_ENV=/b\npip install torchvision==0.16.0",
        "pip install torch==2.6.0\nPYTHONUSERBASE=/b\npip install torchvision==0.16.0",
        "pip install torch==2.6.0\nunset VIRTUAL_ENV\npip install torchvision==0.16.0",
        "pip install torch==2.6.0\nworkon b\npip install torchvision==0.16.0",
        "uv pip install torch==2.6.0\ncd b\nuv pip install torchvision==0.16.0",
        "uv pip install torch==2.6.0\npushd b\nuv pip install torchvision==0.16.0",
        ".venv/bin/pip install torch==2.6.0\ncd b\n.venv/bin/pip install torchvision==0.16.0",
        "$V/bin/pip install torch==2.6.0\nV=$2\n$V/bin/pip install torchvision==0.16.0",
        "srun pip install torch==2.6.0\npip install torchvision==0.16.0",
    ],
)
def test_commands_that_do_not_meet_are_not_reported(run: Run, lines: str) -> None:
    assert run("a.sh", f"{HEAD}{lines}\n", "IMG006") == []


@pytest.mark.parametrize(
    "lines",
    [
        "VIRTUAL_ENV=/a uv pip install torch==2.6.0\nVIRTUAL_ENV=/a uv pip install torchvision==0.16.0",
        "export PATH=/b/bin:$PATH && pip install torch==2.6.0 && cd b && pip install torchvision==0.16.0",
        "uv pip install -p /a/bin/python torch==2.6.0\ncd b\nuv pip install --python=/a/bin/python torchvision==0.16.0",
        "uv pip install --system torch==2.6.0\ncd b\nuv pip install --system torchvision==0.16.0",
        "export X=1\npip install torch==2.6.0\nunset X\nX=2 pip install torchvision==0.16.0",
    ],
)
def test_commands_for_one_environment_meet(run: Run, lines: str) -> None:
    (finding,) = run("a.sh", f"{HEAD}{lines}\n", "IMG006")

    assert "replaces torch 2.6.0" in finding.message


@pytest.mark.parametrize(
    ("before", "first", "between", "count"),
    [
        ("ENV PATH=/opt/venv/bin:$PATH\n", "", "", 1),
        ("", "", "WORKDIR /a\n", 1),
        ("", "", "ENV PATH=/opt/venv/bin:$PATH\n", 0),
        ("", ". a/bin/activate && ", "", 0),
        ("", "export PATH=/a/bin:$PATH && \\\n  ", "", 0),
        ("", "echo && \\\n  PATH=/a/bin:$PATH && ", "", 0),
        ("", "echo && \\\n  # why\n  source a/bin/activate && ", "", 0),
        ("", "<<EOF\nsource a/bin/activate\n", "EOF\n", 0),
        ("", "unset VIRTUAL_ENV && ", "", 0),
        ("", "cd /a && ", "", 1),
        ("", "", "RUN cd /a && make\n", 1),
    ],
)
def test_what_a_run_changes_ends_with_it(run: Run, before: str, first: str, between: str, count: int) -> None:
    text = f"{IMAGE}{before}RUN {first}pip install torch==2.6.0\n{between}RUN pip install torchvision==0.16.0\n"

    assert len(run("Dockerfile", text, "IMG006")) == count


def test_uv_takes_the_environment_of_the_folder(run: Run) -> None:
    one, other = "RUN uv pip install torch==2.6.0\n", "RUN uv pip install torchvision==0.16.0\n"

    assert run("Dockerfile", f"{IMAGE}{one}WORKDIR /b\n{other}", "IMG006") == []
    assert run("a/Dockerfile", f"{IMAGE}{one.replace('RUN ', 'RUN cd /a && ')}{other}", "IMG006") == []
    assert len(run("b/Dockerfile", f"{IMAGE}WORKDIR /b\n{one}{other}", "IMG006")) == 1


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


TORN = """FROM nvidia/cuda:12.6.3-cudnn-devel-ubuntu22.04
RUN pip install torch==2.7.0
RUN pip install torchaudio==2.6.0
{after}
"""


@pytest.mark.parametrize(
    ("after", "requirements", "reported"),
    [
        ("RUN pip install --no-build-isolation flash-attn==2.7.4", "", 1),  # takes every torch
        ("RUN pip install flash_attn einops", "", 1),
        ("RUN pip install torch==2.6.0", "", 0),
        ("RUN pip install vllm==0.9.0", "", 0),  # pins all three
        ("RUN pip install flash-attn@git+https://example.com/flash-attn", "", 0),
        ("COPY needs.txt .\nRUN pip install -r needs.txt", "einops==0.8.1\ntimm # models\n", 1),
        ("COPY needs.txt .\nRUN pip install -r needs.txt", "einops\ntorch>=2.7\n", 0),
        ("COPY needs.txt .\nRUN pip install -r needs.txt", "-r more.txt\n", 0),
        ("COPY needs.txt .\nRUN pip install -r needs.txt", "torch==2.6.0\neinops\n", 0),
        ("RUN pip install -r needs.txt", "einops\n", 0),  # the image may have another one
    ],
)
def test_what_follows_a_companion_that_replaced_torch(
    run: Run, tmp_path: Path, after: str, requirements: str, reported: int
) -> None:
    (tmp_path / "needs.txt").write_text(requirements)
    findings = run("Dockerfile", TORN.format(after=after), "IMG006")
    assert shown(findings) == ["warning IMG006 3"] * reported
