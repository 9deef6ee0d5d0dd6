"""Every catalog test reads the shipped data, never what a developer's own `catalog update` left at home."""

import pytest

from trainwright.catalog import tables


@pytest.fixture(autouse=True)
def overlay(tmp_path, monkeypatch):
    """An empty data folder; yields where an overlay would lie."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    tables.clear_caches()
    yield tables.overlay_folder()
    tables.clear_caches()
