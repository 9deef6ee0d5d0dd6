"""`trainwright init`: the list of starters, and writing one without ever overwriting by accident."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from trainwright.cli.main import cli
from trainwright.errors import UserError
from trainwright.spec.load import load
from trainwright.spec.schema import schema_text
from trainwright.spec.starters import starters

EXPECTED = {
    "local", "monitored", "p4de-base", "p4de-boot-scripts", "p4de-custom-image", "p4de-train-g5-infer",
    "p5-capacity-block", "p5-reservation", "p5-reservation-group", "roberta", "trn1-custom-image", "vision-g4dn",
    "batch-p4d", "batch-p5-block", "eks-g5", "eks-p4de", "eks-p5-block", "eks-trn1", "hyperpod-eks-p5", "hyperpod-p5",
}  # fmt: skip


def run(*args: str) -> Result:
    return CliRunner().invoke(cli, ["init", *args], catch_exceptions=False)


def test_the_list_has_every_starter_with_its_price() -> None:
    result = run()
    assert result.exit_code == 0
    assert all(name in result.stdout for name in EXPECTED)
    assert "$223.56" in result.stdout
    assert "$6.53 + block" in result.stdout, "a block is paid beside what its row costs by the hour"


def test_the_list_as_json() -> None:
    rows = json.loads(run("--json").stdout)
    assert {row["name"] for row in rows} == EXPECTED
    assert all(row["purpose"] and row["cost"] and row["change"] for row in rows)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_written_starter_loads_and_has_its_schema(name: str, tmp_path: Path) -> None:
    path = tmp_path / "new" / "spec.yaml"
    result = run(name, "-o", str(path), "--name", "mine")
    assert result.exit_code == 0
    assert result.stdout.strip() == str(path)
    assert load(path).spec.name == "mine"
    assert path.read_text().startswith("# yaml-language-server: $schema=trainwright.schema.json\n")
    assert (path.parent / "trainwright.schema.json").read_text() == schema_text() + "\n"


def test_an_existing_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text("mine\n")
    with pytest.raises(UserError, match="already exists"):
        run("local", "-o", str(path))
    assert path.read_text() == "mine\n"
    run("local", "-o", str(path), "--force")
    assert load(path).spec.platform == "local"


def test_a_name_that_is_nearly_right_gets_a_hint(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        run("p5-reservaton", "-o", str(tmp_path / "x.yaml"))
    assert caught.value.fix == "did you mean 'p5-reservation'?"


def test_the_starters_have_headers() -> None:
    for starter in starters():
        assert len(starter.purpose) > 40, starter.name
        assert len(starter.change) > 20, starter.name
