"""IMG007: what a stage of a Dockerfile uses and does not have (Dockerfile reference: COPY --from, ARG, ENTRYPOINT)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from reported import loud, rows, shown

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]
TWO = "FROM nvidia/cuda:12.8.1-devel-ubuntu24.04 AS builder\nRUN pip install torch==2.7.1\nFROM ubuntu:24.04\n"


@pytest.mark.parametrize(
    "line",
    [
        "COPY --from=build /opt/venv /opt/venv",
        "COPY --chown=1000 --from=buidler /opt/venv /opt/venv",
        "COPY --from=builder-stage --chmod=755 /a /b",
        "RUN --mount=type=bind,from=build,source=/w,target=/w pip install /w/*.whl",
        "COPY --from=1 /opt/venv /opt/venv",
        "COPY --from=2 /opt/venv /opt/venv",
    ],
)
def test_a_stage_that_is_not_there(run: Run, line: str) -> None:
    assert shown(run("Dockerfile", TWO + line + "\n", "IMG007")) == ["error IMG007 4"]


@pytest.mark.parametrize(
    "line",
    [
        "COPY --from=builder /opt/venv /opt/venv",
        "COPY --from=Builder /opt/venv /opt/venv",
        "COPY --from=0 /opt/venv /opt/venv",
        "COPY --from=ghcr.io/astral-sh/uv:0.8 /uv /bin/",
        "COPY --from=builder/tools:1 /a /a",
        "COPY --from=${STAGE} /a /a",
        "COPY --from=golang /usr/local/go /usr/local/go",
        "COPY --from=wheels /a /a",  # a context that the build is given
        "RUN --mount=type=cache,target=/root/.cache pip install torch==2.7.1",
        "RUN --mount=type=bind,from=builder,target=/w ls /w",
        "ADD https://example.com/a.tar.gz /a",
    ],
)
def test_stages_and_images_that_are_there(run: Run, line: str) -> None:
    assert not loud(run("Dockerfile", TWO + line + "\n", "IMG007"))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Makefile", "image:\n\tdocker buildx build --build-context build=../venv .\n"),
        ("docker-bake.hcl", 'target "a" {\n  contexts = {\n    build = "target:venv"\n  }\n}\n'),
        ("compose.yaml", "services: {a: {build: {context: ., additional_contexts: {build: ../venv}}}}\n"),
    ],
)
def test_a_context_that_a_file_beside_it_names(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "Dockerfile").write_text(TWO + "COPY --from=build /opt/venv /opt/venv\n")
    assert [row["line"] for row in rows(tmp_path, "--select", "IMG007")] == [4]
    (tmp_path / name).write_text(text)
    assert not rows(tmp_path, "--select", "IMG007")


ARG = "ARG TORCH=2.7.1\nFROM {base}{more}\nRUN pip install torch=={use}\n"


@pytest.mark.parametrize(
    ("text", "findings"),
    [
        (ARG.format(base="ubuntu:24.04", more="", use="${TORCH}"), ["warning IMG007 3"]),
        (ARG.format(base="nvidia/cuda:12.8.1-devel-ubuntu24.04", more="", use="$TORCH"), ["warning IMG007 3"]),
        (ARG.format(base="python:3.12 AS a\nFROM a", more="", use="$TORCH"), ["warning IMG007 4"]),
        (ARG.format(base="acme/base:1", more="", use="$TORCH"), ["info IMG007 3"]),  # which may set it
        (ARG.format(base="python:3.12 AS a\nARG TORCH\nFROM python:3.12", more="", use="$TORCH"), ["warning IMG007 5"]),
        (ARG.format(base="ubuntu:24.04", more="\nARG TORCH", use="$TORCH"), []),
        (ARG.format(base="ubuntu:24.04", more="\nARG TORCH=2.8", use="$TORCH"), []),
        (ARG.format(base="ubuntu:24.04", more="\nENV TORCH=2.8", use="$TORCH"), []),
        (ARG.format(base="ubuntu:24.04", more="\nENV A=1 TORCH=2.8", use="$TORCH"), []),
        (ARG.format(base="ubuntu:24.04 AS a\nARG TORCH\nFROM a", more="", use="$TORCH"), []),
        (ARG.format(base="ubuntu:24.04", more="", use="${TORCH:-2.8}"), []),
        (ARG.format(base="ubuntu:24.04", more="", use="'$TORCH'"), []),
        (ARG.format(base="ubuntu:24.04", more="", use="2.8 && TORCH=1 && echo $TORCH"), []),
        (
            "ARG CUDA_VERSION=12\nFROM nvidia/cuda:12.8.1-base\nRUN pip install torch && ls $CUDA_VERSION\n",
            ["info IMG007 3"],
        ),
        ("ARG TAG=12\nFROM nvidia/cuda:${TAG}-base\nRUN pip install torch\nCMD echo $TAG\n", []),
    ],
)
def test_a_variable_from_above_the_first_from(run: Run, text: str, findings: list[str]) -> None:
    assert shown(run("Dockerfile", text, "IMG007")) == findings


@pytest.mark.parametrize(
    ("text", "findings"),
    [
        ('ENTRYPOINT torchrun --standalone t.py\nCMD ["--config", "a.yaml"]\n', ["warning IMG007 4"]),
        ('CMD ["--config", "a.yaml"]\nENTRYPOINT torchrun --standalone t.py\n', ["warning IMG007 3"]),
        ('ENTRYPOINT ["torchrun", "--standalone"]\nCMD t.py --config a.yaml\n', ["warning IMG007 4"]),
        ('ENTRYPOINT ["/opt/venv/bin/python", "t.py"]\nCMD --config a.yaml\n', ["warning IMG007 4"]),
        ('ENTRYPOINT ["torchrun", "--standalone"]\nCMD ["t.py", "--config", "a.yaml"]\n', []),
        ('ENTRYPOINT ["/entrypoint.sh"]\nCMD python t.py\n', []),
        ('ENTRYPOINT ["bash", "-c"]\nCMD ["torchrun t.py"]\n', []),
        ('ENTRYPOINT exec torchrun t.py "$@"\nCMD ["--config"]\n', []),
        ("ENTRYPOINT torchrun t.py\n", []),
        ("CMD torchrun t.py\n", []),
        ("ENTRYPOINT []\nCMD torchrun t.py\n", []),
        ('CMD ["bash"]\nFROM ubuntu:24.04\nENTRYPOINT torchrun t.py\n', []),
    ],
)
def test_a_command_that_the_entrypoint_does_not_read(run: Run, text: str, findings: list[str]) -> None:
    assert shown(run("Dockerfile", f"FROM ubuntu:24.04\nRUN pip install torch\n{text}", "IMG007")) == findings
