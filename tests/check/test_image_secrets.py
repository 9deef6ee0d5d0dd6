"""Images: credentials that stay in them (SEC005), and a compiler that they do not hold (IMG007)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from reported import shown

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]
BASE = "FROM nvidia/cuda:12.8.1-devel-ubuntu24.04\n"


@pytest.mark.parametrize(
    ("text", "findings"),
    [
        (BASE + "COPY .aws /root/.aws\n", ["warning SEC005 2"]),
        (BASE + "COPY --chown=1000 docker/id_ed25519 /root/.ssh/\n", ["warning SEC005 2"]),
        (BASE + 'ADD [".netrc", "/root/.netrc"]\n', ["warning SEC005 2"]),
        (BASE + "COPY a.py kaggle.json /root/.kaggle/\n", ["warning SEC005 2"]),
        (BASE + "ARG HF_TOKEN\nENV HF_TOKEN=${HF_TOKEN}\n", ["warning SEC005 3"]),
        (BASE + 'ARG HF_TOKEN=""\nENV HF_TOKEN=${HF_TOKEN}\n', ["warning SEC005 3"]),
        (BASE + "ARG KEY\nARG WANDB_API_KEY\nENV A=1 WANDB_API_KEY $WANDB_API_KEY\n", ["warning SEC005 4"]),
        (BASE + "COPY id_rsa /root/.ssh/\nCOPY id_rsa.pub /root/.ssh/authorized_keys\n", ["info SEC005 2"]),
        (BASE + "ARG HF_TOKEN\nENV HF_TOKEN=$HF_TOKEN\nRUN hf auth login --token $HF_TOKEN\n", ["warning SEC005 3"]),
    ],
)
def test_credentials_that_stay(run: Run, text: str, findings: list[str]) -> None:
    assert shown(run("Dockerfile", text, "SEC005")) == findings


@pytest.mark.parametrize(
    "text",
    [
        f"{BASE[:-1]} AS build\nCOPY .netrc /root/\nFROM ubuntu:24.04\nCOPY --from=build /w /w\n",
        BASE + "COPY id_rsa.pub /root/.ssh/\n",
        BASE + "COPY .aws/config /root/.aws/config\n",
        BASE + "COPY code /root/.aws\n",
        BASE + "ARG HF_TOKEN\n",
        BASE + "ARG NEXT_PUBLIC_API_KEY\nENV NEXT_PUBLIC_API_KEY=$NEXT_PUBLIC_API_KEY\n",
        BASE + 'ENV HF_TOKEN=""\n',
        BASE + "ARG PAD_TOKEN=0\nENV PAD_TOKEN=$PAD_TOKEN\n",
        BASE + "RUN --mount=type=secret,id=aws,target=/root/.aws/credentials aws s3 ls\n",
    ],
)
def test_credentials_that_do_not(run: Run, text: str) -> None:
    assert not run("Dockerfile", text, "SEC005")


@pytest.mark.parametrize(
    ("base", "lines", "count"),
    [
        ("nvidia/cuda:12.1.0-base-ubuntu22.04", "RUN nvcc -O3 a.cu", 1),
        ("nvidia/cuda:12.1.0-cudnn8-runtime-ubuntu22.04", "RUN apt-get update && nvcc --version", 1),
        ("nvidia/cuda:${CUDA}-runtime-ubuntu22.04", "RUN nvcc -O3 a.cu", 1),
        ("pytorch/pytorch:2.1.2-cuda12.1-cudnn8-runtime", "RUN nvcc -V", 1),
        ("nvidia/cuda:12.1.0-devel-ubuntu22.04", "RUN nvcc -O3 a.cu", 0),
        ("nvidia/cuda:12.1.0-base-ubuntu22.04", "RUN apt-get install -y cuda-nvcc-12-1\nRUN nvcc -O3 a.cu", 0),
        ("nvidia/cuda:12.1.0-base-ubuntu22.04", "RUN apt install -y cuda-toolkit-12-1 && nvcc -V", 0),
        ("nvidia/cuda:12.1.0-base-ubuntu22.04", "RUN apt-get install -y cuda-12-1\nRUN nvcc -V", 0),
        ("nvidia/cuda:12.1.0-base-ubuntu22.04", "COPY --from=a /usr/local /usr/local\nRUN nvcc -V", 0),
        ("nvidia/cuda:12.1.0-base-ubuntu22.04", "RUN conda env create -f a.yml\nRUN nvcc -V", 0),
        ("nvidia/cuda:12.1.0-base-ubuntu22.04", "RUN ./setup.sh\nRUN nvcc -V", 0),
        ("nvidia/cuda:12.1.0-base-ubuntu22.04", "RUN nvcc -V || true", 0),
        ("nvidia/cuda:12.1.0-base-ubuntu22.04", "RUN if which nvcc; then nvcc -V; fi", 0),
        ("corp/cuda-base:1", "RUN nvcc -V", 0),
    ],
)
def test_a_compiler_that_the_image_does_not_hold(run: Run, base: str, lines: str, count: int) -> None:
    findings = run("Dockerfile", f"FROM {base}\n{lines}\n", "IMG007")
    assert [finding.level for finding in findings] == ["error"] * count


def test_keys_of_one_image_are_one_finding(run: Run) -> None:
    lines = "".join(f"ARG {name}\nENV {name}=$" + f"{name}\n" for name in ("WANDB_API_KEY", "HF_TOKEN"))
    (finding,) = run("Dockerfile", BASE + lines, "SEC005")
    assert finding.message.startswith("ENV keeps WANDB_API_KEY and HF_TOKEN in the image")
