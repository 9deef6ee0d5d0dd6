"""Data files say their source and date, and a broken one says where it is broken."""

import os

import pytest

from trainwright.catalog import tables
from trainwright.catalog.instances import find_instance
from trainwright.errors import UserError


@pytest.mark.parametrize("path", sorted(tables.SHIPPED.glob("*.csv")), ids=lambda p: p.name)
def test_every_csv_names_its_source_and_date(path):
    table = tables.read_table(path)
    assert any(key.startswith("source") for key in table.notes)
    assert "date" in table.notes or "date" in table.columns
    assert table.rows
    assert len({row[:2] for row in table.rows}) == len(table.rows)


@pytest.mark.parametrize("path", sorted(tables.SHIPPED.glob("*.toml")), ids=lambda p: p.name)
def test_every_toml_names_its_source(path):
    assert "source = " in path.read_text(encoding="utf-8")


def test_what_is_written_is_read_back(tmp_path):
    table = tables.Table({"source": "a: b", "date": "2026-01-01"}, ("x", "y"), (("1", "two, three"), ("", '"q"')))
    tables.write_table(tmp_path / "deep" / "t.csv", table)
    assert tables.read_table(tmp_path / "deep" / "t.csv") == table
    assert os.listdir(tmp_path / "deep") == ["t.csv"]


def test_a_ragged_row_is_reported_with_its_line(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("# source: x\na,b\n1,2\n1,2,3\n")
    with pytest.raises(UserError) as error:
        tables.read_table(path)
    assert error.value.where == f"{path}:4"
    assert "3 fields" in error.value.what


def test_an_empty_overlay_is_an_error(overlay):
    overlay.mkdir(parents=True)
    (overlay / "instances.csv").write_text("")
    tables.clear_caches()
    with pytest.raises(UserError) as error:
        find_instance("p5.48xlarge")
    assert "no header" in error.value.what
