"""IMG007: instructions of a Dockerfile without the effect that they were written for (Dockerfile reference; dash)."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable

import pytest

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]
TORCH = "RUN pip install torch==2.9.0\n"


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("FROM ubuntu:24.04\nRUN export A=1\n", "info"),
        ("FROM ubuntu:24.04\nRUN export A=/x\nRUN ls $A\n", "warning"),
        ("FROM ubuntu:24.04\nRUN export A=/x\nRUN ls ${A}/b\n", "warning"),
        ("FROM ubuntu:24.04\nRUN export A=/x\nFROM ubuntu:24.04\nRUN ls $A\n", "info"),
        ("FROM ubuntu:24.04\nRUN cd /opt/a\n", "info"),
        ("FROM ubuntu:24.04\nRUN cd /opt/a\nRUN make install\n", "warning"),
        ("FROM ubuntu:24.04\nRUN cd /opt/a\nRUN pip install -e .\n", "warning"),
        ("FROM ubuntu:24.04\nRUN source /opt/a/activate\n", "error"),
        ("FROM python:3.12-slim\nRUN cat a && source a/activate && pip install b\n", "error"),
        ("FROM nvidia/cuda:12.8.1-devel-ubuntu22.04 AS a\nFROM a\nRUN source a\n", "error"),
        ('FROM alpine\nCMD ["torchrun", "--nproc_per_node=$NGPU", "t.py"]\n', "warning"),
        ("FROM alpine\nCMD ['torchrun', '--nproc_per_node=8', 't.py']\n", "error"),
        ("FROM alpine\nENTRYPOINT [ 'bash' ]\n", "error"),
        ('FROM alpine\nENTRYPOINT ["accelerate", "launch", "--num_processes", "${N}", "t.py"]\n', "warning"),
        ('FROM alpine\nCMD ["python", "t.py", "--data", "$DATA"]\n', "info"),
    ],
)
def test_an_instruction_without_its_effect_is_reported(run: Run, text: str, level: str) -> None:
    (finding,) = run("Dockerfile", text + TORCH, "IMG007")
    assert finding.level == level
    assert finding.why


@pytest.mark.parametrize(
    "text",
    [
        "FROM ubuntu:24.04\nRUN export A=1 && make\n",
        "FROM ubuntu:24.04\nRUN export A=1; make\n",
        "FROM ubuntu:24.04\nRUN export A=1 \\\n    && make\n",
        "FROM ubuntu:24.04\nENV A=1\n",
        "FROM ubuntu:24.04\nRUN cd /opt/a && make\n",
        "FROM ubuntu:24.04\nWORKDIR /opt/a\nRUN cd /opt/a\nRUN make\n",
        'FROM ubuntu:24.04\nSHELL ["/bin/bash", "-c"]\nRUN source a\n',
        'FROM ubuntu:24.04 AS a\nSHELL ["/bin/bash", "-c"]\nFROM a\nRUN source b\n',
        'FROM ubuntu:24.04\nRUN bash -c "source a && b"\n',
        "FROM ubuntu:24.04\nRUN ln -sf /bin/bash /bin/sh\nRUN source a\n",
        "FROM ubuntu:24.04\nRUN source a || true\n",
        "FROM ubuntu:24.04\nRUN . a/activate && b\n",
        "FROM amazonlinux:2023\nRUN source a\n",
        "FROM python:3.12-alpine\nRUN source a\n",
        "FROM nvcr.io/nvidia/pytorch:25.01-py3\nRUN source a\n",  # which may name its shell
        "FROM ubuntu:24.04\nRUN <<EOF\nexport A=1\nEOF\n",
        'FROM alpine\nCMD ["sh", "-c", "torchrun --nproc_per_node=$NGPU t.py"]\n',
        "FROM alpine\nCMD torchrun --nproc_per_node=$NGPU t.py\n",
        'FROM alpine\nENTRYPOINT ["/entry.sh", "$NGPU"]\n',
        'FROM alpine\nCMD ["torchrun", "--nproc_per_node=8", "t.py"]\n',
    ],
)
def test_an_instruction_that_works_is_not(run: Run, text: str) -> None:
    assert run("Dockerfile", text + TORCH, "IMG007") == []


@pytest.mark.skipif(shutil.which("dash") is None, reason="no dash here")
def test_dash_has_no_source() -> None:
    done = subprocess.run(["dash", "-c", "source /dev/null && true"], capture_output=True, text=True, check=False)
    assert (done.returncode, "not found" in done.stderr) == (127, True)


@pytest.mark.parametrize(
    ("text", "findings"),
    [
        ("FROM nvcr.io/nvidia/pytorch:25.01-py3\nRUN cd /workspace\nRUN pip install -e .\n", []),
        ("FROM ubuntu:24.04 AS a\nWORKDIR /a\nFROM a\nRUN cd /a\nRUN make\n", []),
        ("ARG BASE=x\nFROM $BASE\nRUN cd /workspace\nRUN pip install -e .\n", ["info"]),
        ("FROM nvcr.io/nvidia/pytorch:25.01-py3\nRUN git clone a\nRUN cd a\nRUN pip install -e .\n", ["warning"]),
    ],
)
def test_the_directory_in_which_an_image_starts(run: Run, text: str, findings: list[str]) -> None:
    assert [finding.level for finding in run("Dockerfile", text + TORCH, "IMG007")] == findings


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        (
            "FROM ubuntu:24.04\nRUN source /opt/venv/bin/activate\nRUN pip install torch\n",
            "write ENV PATH=/opt/venv/bin:$PATH instead, which the next instructions have too",
        ),
        (
            "FROM ubuntu:24.04\nRUN cd $HOME/a\nRUN make install\n",
            "write RUN cd $HOME/a && … with the command below",
        ),
        (
            'FROM alpine\nENTRYPOINT cd /a && python t.py\nCMD ["--a"]\n',
            'write ENTRYPOINT ["/bin/sh", "-c", "… \\"$@\\"", "sh"], and CMD as a list',
        ),
    ],
)
def test_a_fix_that_works_to_the_letter(run: Run, text: str, fix: str) -> None:
    (finding,) = run("Dockerfile", text + TORCH, "IMG007")
    assert finding.fix == fix
