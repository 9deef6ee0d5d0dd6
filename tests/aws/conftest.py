"""Tests of the update read the shipped data, never what a developer's own `catalog update` left at home."""

import pytest

from trainwright.catalog import tables


@pytest.fixture(autouse=True)
def overlay(tmp_path, monkeypatch):
    """An empty data folder; yields where an overlay would lie."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    tables.clear_caches()
    yield tables.overlay_folder()
    tables.clear_caches()


@pytest.fixture
def cloud(tmp_path, monkeypatch):
    """An empty AWS account in this process, under a virtual clock: nothing here sleeps."""
    import time

    from moto import mock_aws
    from standin import api
    from standin.clock import Clock
    from standin.harness import Cloud
    from standin.world import World, gate

    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    world = World(Clock(pace=10.0))
    monkeypatch.setattr(time, "sleep", world.clock.sleep)  # botocore's own pauses between attempts
    api.install(world)
    with mock_aws(config={"batch": {"use_docker": False}}):
        remove = gate(world)
        try:
            yield Cloud(world)
        finally:
            remove()
            api.uninstall()
