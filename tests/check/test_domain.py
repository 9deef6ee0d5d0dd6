"""Files that are not about training: what the rules say of them is a note, but for keys that are written there."""

from __future__ import annotations

import pytest
from reported import shown

IMAGE = "FROM python:3.12\nRUN pip install fastapi>=0.1\n"
WORDS = ["#SBATCH -N 2", "aws eks list-clusters", "export CUDA_VISIBLE_DEVICES=0", "# p5.48xlarge"]


def test_an_image_that_trains_nothing_gets_notes(run) -> None:  # type: ignore[no-untyped-def]
    assert shown(run("Dockerfile", IMAGE, "SHL001")) == ["info SHL001 2"]
    assert shown(run("Dockerfile", IMAGE + "RUN pip install torch\n", "SHL001")) == ["warning SHL001 2"]


def test_a_written_key_is_an_error_everywhere(run) -> None:  # type: ignore[no-untyped-def]
    key = "wJalrXUtnFEMI" + "K7MDENG" + "bPxRfiCYzzzzzzzzzzzz"
    assert shown(run("a.sh", f"#!/bin/bash\nexport AWS_SECRET_ACCESS_KEY={key}\n", "SEC003")) == ["error SEC003 2"]


@pytest.mark.parametrize("line", WORDS)
def test_one_word_is_enough(run, line: str) -> None:  # type: ignore[no-untyped-def]
    text = f"#!/bin/bash\n{line}\npip install fastapi>=0.1\n"
    assert shown(run("a.sh", text, "SHL001")) == ["warning SHL001 3"]


OTHERS = [
    "pip install -c constraints.txt flask", "export SOURCE_DATE_EPOCH=0", "psql -c CHECKPOINT", "chrome --disable-gpu",
    "# accelerate the build with ccache", "apt-get install x-ray", "mvn -pl jax-rs",
]  # fmt: skip


@pytest.mark.parametrize("line", OTHERS)
def test_a_word_that_only_contains_one_is_not(run, line: str) -> None:  # type: ignore[no-untyped-def]
    text = f"#!/bin/bash\n{line}\npip install fastapi>=0.1\n"
    assert shown(run("a.sh", text, "SHL001")) == ["info SHL001 3"]


@pytest.mark.parametrize("line", ["pip install accelerate", "python pretrain.py", "ray start --head", "A=--num_epochs"])
def test_words_of_training_still_count(run, line: str) -> None:  # type: ignore[no-untyped-def]
    text = f"#!/bin/bash\n{line}\npip install fastapi>=0.1\n"
    assert shown(run("a.sh", text, "SHL001")) == ["warning SHL001 3"]
