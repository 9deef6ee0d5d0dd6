"""IMG003: a version of NCCL that a file states and does not use, beside another one that it installs."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwright.check.engine import Selection, check
from trainwright.check.finding import Finding

FROM = "FROM nvidia/cuda:12.8.1-devel-ubuntu22.04\n"
ARG = "ARG NCCL_VERSION=v2.27.7-1\n"
CLONE = "RUN git clone --depth 1 {} https://github.com/NVIDIA/nccl.git && make -C nccl -j src.build\n"
OLD = CLONE.format("--branch v2.23.4-1")
SCRIPT = (
    "#!/bin/bash\nNCCL_VERSION=2.27.7\n{}\ngit clone -b v2.23.4-1 https://github.com/NVIDIA/nccl.git\nmake -C nccl -j\n"
)


def found(tmp_path: Path, name: str, text: str) -> list[Finding]:
    (tmp_path / name).write_text(text)
    return check([str(tmp_path / name)], Selection(select=("IMG003",))).findings


@pytest.mark.parametrize(
    ("name", "text", "level", "fix"),
    [
        ("Dockerfile", FROM + ARG + OLD, "info", "write ${NCCL_VERSION}, or"),
        ("Dockerfile", ARG + FROM + OLD, "info", "write ${NCCL_VERSION} (and `ARG NCCL_VERSION` behind FROM), or"),
        ("Dockerfile", FROM + ARG.replace("v2", "2") + OLD, "info", "write v${NCCL_VERSION}, or"),
        ("Dockerfile", FROM + ARG.replace("-1", "") + OLD, "info", "write ${NCCL_VERSION}-1, or"),
        ("Dockerfile", FROM + "ENV NCCL_VERSION=2.27.7-1\n" + OLD, "info", "write v${NCCL_VERSION}, or"),
        ("Dockerfile", FROM + ARG + "COPY build.sh /tmp/\n" + OLD, "info", "write ${NCCL_VERSION}, or"),
        (
            "Dockerfile",
            FROM
            + ARG
            + "RUN git clone https://github.com/NVIDIA/nccl && cd nccl && git checkout v2.23.4-1 && make -j\n",
            "info",
            "write ${NCCL_VERSION}, or",
        ),
        (
            "Dockerfile",
            FROM + ARG + "RUN curl -L https://github.com/NVIDIA/nccl/archive/refs/tags/v2.23.4-1.tar.gz | tar xz\n",
            "info",
            "write ${NCCL_VERSION}, or",
        ),
        (
            "Dockerfile",
            FROM + ARG + "RUN apt-get install -y libnccl2=2.23.4-1+cuda12.4 libnccl-dev=2.23.4-1+cuda12.4\n",
            "info",
            "write one version for libnccl2 and libnccl-dev and in NCCL_VERSION, or",
        ),
        (
            "Dockerfile",
            FROM + ARG + OLD.replace("v2.23.4-1", '"v2.23.4-1"') + OLD,
            "info",
            "write ${NCCL_VERSION} in lines 3 and 4, or",
        ),
        ("Dockerfile", FROM + ARG + "RUN git clone https://github.com/a/b /b && /b/build.sh\n" + OLD, "info", "write"),
        ("build.sh", SCRIPT.format(""), "info", "write v${NCCL_VERSION}-1, or"),
        ("build.sh", SCRIPT.format("export NCCL_VERSION\n"), "info", "write v${NCCL_VERSION}-1, or"),
    ],
)
def test_a_version_that_nothing_reads(tmp_path: Path, name: str, text: str, level: str, fix: str) -> None:
    (finding, *_) = found(tmp_path, name, text)
    assert (finding.level, finding.fix[: len(fix)]) == (level, fix)


USED = CLONE.format("--branch ${NCCL_VERSION}")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Dockerfile", FROM + ARG + USED),
        ("Dockerfile", FROM + ARG + USED.replace("${NCCL_VERSION}", '"$NCCL_VERSION"')),
        ("Dockerfile", ARG + FROM + "ARG NCCL_VERSION\n" + USED),
        ("Dockerfile", FROM + "ARG NCCL_VERSION=2.27.7-1\n" + CLONE.format("-b v${NCCL_VERSION}")),
        ("Dockerfile", FROM + "ENV NCCL_VERSION 2.27.7-1\n" + CLONE.format("-b v${NCCL_VERSION}")),
        ("Dockerfile", FROM + "ARG NCCL_VERSION=2.27\n" + CLONE.format("-b v2.27.7-1")),
        ("Dockerfile", FROM + "ARG NCCL_VERSION=2.27.7\n" + CLONE.format("-b v2.27.7-1")),
        ("Dockerfile", FROM + "ARG NCCL_VERSION\n" + OLD),
        ("Dockerfile", FROM + "ARG NCCL_VERSION=master\n" + OLD),
        ("Dockerfile", FROM + "# NCCL_VERSION=2.27.7 needs driver 570\n" + OLD),
        ("Dockerfile", FROM + ARG + CLONE.format("")),
        ("Dockerfile", FROM + ARG + CLONE.format("--branch main")),
        ("Dockerfile", FROM + "ARG NCCL_TESTS_VERSION=v2.16.9\n" + OLD),
        ("Dockerfile", FROM + ARG + OLD.replace("nccl.git", "nccl-tests.git")),
        ("Dockerfile", FROM + ARG + OLD.replace("NVIDIA/nccl", "aws/aws-ofi-nccl")),
        ("Dockerfile", FROM + ARG + OLD + "RUN echo NCCL ${NCCL_VERSION} > /etc/release\n"),
        ("Dockerfile", FROM + ARG + OLD + USED),  # of two, one is the variable's
        ("Dockerfile", FROM + ARG + OLD.replace("git clone", 'if [ "$OLD" ]; then git clone').replace("\n", "; fi\n")),
        ("Dockerfile", f"{FROM.strip()} AS one\n{ARG}RUN make\n{FROM.strip()} AS two\n{OLD}"),
        ("Dockerfile", "FROM nvcr.io/nvidia/pytorch:25.03-py3\n" + OLD),
        (
            "Dockerfile",
            FROM + "ENV A=1 \\\n    NCCL_VERSION=2.27.7-1 \\\n    B=2\nRUN ./build.sh $NCCL_VERSION\n" + OLD,
        ),
        ("build.sh", SCRIPT.format('echo "NCCL $NCCL_VERSION"')),
        ("build.sh", SCRIPT.format("docker build --build-arg NCCL_VERSION .")),
        ("build.sh", SCRIPT.format("cat <<EOF\n$NCCL_VERSION\nEOF")),
        ("build.sh", SCRIPT.format("").replace("=2.27.7", "=${1:-2.27.7}")),
        ("build.sh", SCRIPT.format('for name in NCCL_VERSION; do echo "${!name}"; done')),
        ("build.sh", SCRIPT.replace("=2.27.7", "=2.23.4").format("")),
    ],
)
def test_one_version_or_one_that_is_read(tmp_path: Path, name: str, text: str) -> None:
    assert found(tmp_path, name, text) == []
