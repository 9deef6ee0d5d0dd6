"""An API server refuses what K8S006 reports, and takes the same object without the change."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml
from api_server import ControlPlane

sys.path.insert(0, str(Path(__file__).parents[1] / "check"))
from refused_objects import CHANGES, TAKEN

pytestmark = pytest.mark.slow


def answer(plane: ControlPlane, text: str) -> int:
    value = yaml.safe_load(text)
    version, kind = value["apiVersion"], value["kind"]
    group = f"/apis/{version}" if "/" in version else f"/api/{version}"
    path = f"{group}/namespaces/default/{kind.lower()}s?dryRun=All"
    return plane.request("POST", path, text, "application/yaml")[0]


def test_the_api_server_refuses_each(plane: ControlPlane) -> None:
    for text, old, new, _ in CHANGES:
        assert answer(plane, text) == 201
        assert answer(plane, text.replace(old, new, 1)) in (400, 422), new


def test_the_api_server_takes_the_others(plane: ControlPlane) -> None:
    for text, old, new in TAKEN:
        assert answer(plane, text.replace(old, new, 1)) == 201, new
