"""One control plane for each worker of pytest. Where none can be built the tests are skipped and say why; in CI a
skipped judge is no verdict, so there they fail."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from api_server import ApiServerMissing, ControlPlane, programs
from definitions import install


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """An API server that knows every kind of ours."""
    try:
        built = programs()
    except ApiServerMissing as missing:
        say = pytest.fail if os.environ.get("CI") else pytest.skip
        say(str(missing))
    made = ControlPlane(tmp_path_factory.mktemp("control-plane"), built)
    try:
        install(made)
        yield made
    finally:
        made.stop()
