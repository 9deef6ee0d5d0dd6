"""Judges need a virtual environment of their own; where it cannot be made, their tests are skipped and say why. In CI a
skipped judge is no verdict, so there they fail."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from judges.pcluster import JudgeMissing, environment


def _environment(name: str) -> Path:
    try:
        return environment(name)
    except JudgeMissing as missing:
        say = pytest.fail if os.environ.get("CI") else pytest.skip
        say(f"no virtual environment for {name}: {missing}")


@pytest.fixture(scope="session")
def pcluster_bin() -> Path:
    """The bin folder of aws-parallelcluster's environment."""
    return _environment("pcluster")


@pytest.fixture(scope="session")
def checkov_bin() -> Path:
    """The bin folder of checkov's environment."""
    return _environment("checkov")


@pytest.fixture(scope="session")
def ansible_bin() -> Path:
    """The bin folder of ansible-lint's environment."""
    return _environment("ansible")
