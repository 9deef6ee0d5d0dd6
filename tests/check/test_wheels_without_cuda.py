"""IMG005: torch for the CPU in an image that is built for GPUs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from reported import loud, shown

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]
CUDA = "nvidia/cuda:12.8.1-cudnn-runtime-ubuntu22.04"
INDEX = "https://download.pytorch.org/whl"
RANKS = 'ENTRYPOINT ["torchrun", "--standalone", "train.py"]\n'


def image(command: str, base: str = CUDA, end: str = RANKS) -> str:
    return f"FROM {base}\nRUN {command}\n{end}"


@pytest.mark.parametrize(
    "command",
    [
        f"pip install torch==2.7.1 torchvision==0.22.1 --index-url {INDEX}/cpu",
        f"pip3 install --no-cache-dir torch --extra-index-url={INDEX}/cpu",
        f"python3 -m pip install 'torch>=2.4' -i {INDEX}/nightly/cpu",
        f"uv pip install --system torch --index-url {INDEX}/cpu",
        "uv pip install --system --torch-backend=cpu torch",
        f"pip install torch==2.7.1+cpu -f {INDEX}/torch_stable.html",
        f"pip install torch --index-url {INDEX}/rocm6.3",
        f"apt-get update && pip install torch \\\n    --index-url {INDEX}/cpu && rm -rf /tmp/a",
        "conda install -y pytorch torchvision cpuonly -c pytorch",
    ],
)
def test_torch_for_another_processor(run: Run, command: str) -> None:
    (finding,) = run("Dockerfile", image(command), "IMG005")
    assert finding.level == "warning"


def test_bases_and_stages(run: Run) -> None:
    command = f"pip install torch --index-url {INDEX}/cpu"
    for base in (
        "nvcr.io/nvidia/cuda:12.8.1-base",
        f"{CUDA} AS a\nFROM a",
        "pytorch/pytorch:2.7.1-cuda12.8-cudnn9-runtime",
    ):
        assert len(loud(run("Dockerfile", image(command, base), "IMG005"))) == 1
    assert shown(run("Dockerfile", image(command, end=""), "IMG005")) == ["info IMG005 2"]


@pytest.mark.parametrize(
    "text",
    [
        image(f"pip install torch --index-url {INDEX}/cu128"),
        image(f"pip install torch --index-url {INDEX}/cu118"),  # which brings its own CUDA
        image("pip install torch==2.7.1"),
        image(f"pip install torch --index-url {INDEX}/cpu", "python:3.12-slim"),
        image(f"pip install torch --index-url {INDEX}/rocm6.3", "rocm/dev-ubuntu-24.04:6.3"),
        image(f"pip install torch --index-url {INDEX}/cpu && pip install torch --index-url {INDEX}/cu128"),
        image(f"pip install 'jax[cuda12]' && pip install torch --index-url {INDEX}/cpu"),
        image(f'if [ "$DEVICE" = cpu ]; then pip install torch --index-url {INDEX}/cpu; fi'),
        image(f"pip install sentencepiece --index-url {INDEX}/cpu"),
        image(f"pip install torch --index-url {INDEX}/cpu", f"python:3.12 AS docs\nFROM {CUDA} AS gpu\nFROM docs"),
        image("echo 1", end=f"# pip install torch --index-url {INDEX}/cpu\n"),
    ],
)
def test_wheels_with_cuda_and_images_without(run: Run, text: str) -> None:
    assert not run("Dockerfile", text, "IMG005")


LISTED = f"FROM {CUDA}\nCOPY needs.txt .\nRUN pip install -r needs.txt{{options}}\n{RANKS}"


@pytest.mark.parametrize(
    ("lines", "options", "fix"),
    [
        (
            "torch==2.8.0+cpu\ntorchvision==0.23.0+cpu\npandas==2.3.3",
            f" --extra-index-url {INDEX}/cpu",
            "write torch==2.8.0, torchvision==0.23.0 in needs.txt, without -f or an index: the wheels of PyPI have "
            "CUDA",
        ),
        ("torch==2.8.0", f" --extra-index-url {INDEX}/cpu", "leave this option out: the wheels of PyPI have CUDA"),
        (
            f"--index-url {INDEX}/cpu\ntorch",
            "",
            "leave this option out of needs.txt: the wheels of PyPI have CUDA",
        ),
        ("torch==2.8.0", f" --extra-index-url {INDEX}/cu128", ""),
        ("torch==2.8.0", "", ""),
        (f"--extra-index-url {INDEX}/cpu\n--extra-index-url {INDEX}/cu128\ntorch==2.8.0", "", ""),
        ('torch==2.8.0+cpu; sys_platform == "darwin"\npandas', "", ""),
        ("pandas\n# torch==2.8.0+cpu", f" --extra-index-url {INDEX}/cpu", ""),
    ],
)
def test_a_list_that_asks_for_another_processor(run: Run, tmp_path: Path, lines: str, options: str, fix: str) -> None:
    (tmp_path / "needs.txt").write_text(lines + "\n")
    findings = run("Dockerfile", LISTED.format(options=options), "IMG005")
    assert [(one.level, one.fix) for one in findings] == ([("warning", fix)] if fix else [])
