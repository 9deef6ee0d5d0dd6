"""The commands and the Python of docs/catalog.md really run."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from trainwright.catalog import tables
from trainwright.cli.catalog import command

PAGE = (Path(__file__).parents[2] / "docs" / "catalog.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ trainwright catalog (.+)$", "".join(re.findall(r"```console\n(.*?)```", PAGE, re.S)), re.M)


@pytest.mark.parametrize("words", COMMANDS)
def test_commands(words):
    result = CliRunner().invoke(command, shlex.split(words))
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) > 4


def test_python(capsys):
    exec(re.search(r"```python\n(.*?)```", PAGE, re.S)[1], {})
    assert "export FI_EFA_USE_HUGE_PAGE=0" in capsys.readouterr().out


def test_every_data_file_is_named():
    assert len(COMMANDS) >= 10
    for path in tables.SHIPPED.iterdir():
        assert f"`{path.name}`" in PAGE, path.name
