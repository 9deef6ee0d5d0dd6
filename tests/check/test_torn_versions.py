"""Requirements on the command line of pip whose operator is torn: pip refuses them, or the shell takes them apart."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from reported import shown

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]

REFUSED = [
    "torch=2.0", "'torch> =2.0'", "torch = =2.0", "'torch ~ =2.0'", "torch ==2.0", "torch == 2.0", "torch== 2.0",
    "'torch[x]=1.2'", "--no-cache-dir torch=2.0", "numpy torch=2.0.1 tqdm", "-U torch=2.*", "torch =2.0",
]  # fmt: skip
TAKEN = [
    "torch==2.0", "'torch == 2.0'", "'torch>=2.0, <3'", "'torch >= 2.0'", "torch===2.0", "torch~=2.0", "torch!=2.0",
    "--index-url=https://example.com/a?b=1 torch", "-C build=1 .", "--config-settings editable_mode=1 -e .",
    "--global-option a=1 torch", "git+https://example.com/a.git@b=1", "./dist/a=1.whl", "torch=$VERSION",
    "torch==${VERSION}", "torch==$VERSION", "'torch @ https://example.com/a=1.whl'", "-r requirements.txt",
    "--pre torch -f https://example.com/a=1", "--find-links dir=1 torch", "torch==2.0+cu118", "torch -i a=1",
]  # fmt: skip


@pytest.mark.parametrize("words", REFUSED)
@pytest.mark.parametrize("tool", ["pip install", "python -m pip install", "uv pip install"])
def test_pip_refuses_a_torn_operator(words: str, tool: str, run: Run) -> None:
    assert shown(run("setup.sh", f"#!/bin/bash\n{tool} {words}\n", "SHL001")) == ["error SHL001 2"]


@pytest.mark.parametrize("words", TAKEN)
def test_what_pip_takes_is_not_reported(words: str, run: Run) -> None:
    assert run("setup.sh", f"#!/bin/bash\n# torch\npip install {words}\n", "SHL001") == []


def test_images_are_not_built(run: Run) -> None:
    text = "FROM nvcr.io/nvidia/pytorch:25.01-py3\nRUN pip install numpy && \\\n    pip install torch=2.0\n"
    assert shown(run("Dockerfile", text, "SHL001")) == ["error SHL001 3"]
    filled = "FROM nvcr.io/nvidia/pytorch:25.01-py3\nARG VERSION\nRUN pip install torch==$VERSION\n"
    assert run("Dockerfile", filled, "SHL001") == []
    assert run("Dockerfile", filled.replace("VERSION\n", "VERSION==2.0\n").replace("torch==", "torch"), "SHL001") == []


def test_conda_has_one_equals_sign(run: Run) -> None:
    assert run("setup.sh", "#!/bin/bash\nconda install pytorch=2.0 cudatoolkit=11.8\n", "SHL001") == []


@pytest.mark.parametrize("words", ["torch> =2.0", "torch > =2.0", "torch< =2.0"])
def test_a_torn_redirection_is_one_too(words: str, run: Run) -> None:
    assert shown(run("setup.sh", f"#!/bin/bash\npip install {words}\n", "SHL001")) == ["warning SHL001 2"]
