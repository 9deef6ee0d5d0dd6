"""`docs/architecture.md` describes the house as it is: its rooms in order, and a job's way through the functions."""

from __future__ import annotations

import pkgutil
import re
import sys
import tomllib
from pathlib import Path
from types import FrameType

import pytest
from click.testing import CliRunner

from trainwright.cli.main import cli

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "src/trainwright"
NOT_BUILT = "(not built yet)"


def section(title: str) -> str:
    """The text under a heading, up to the next heading of its level or above."""
    level = title.partition(" ")[0]
    text = PAGE.partition(f"\n{title}\n")[2]
    assert text, title
    return re.split(rf"^#{{1,{len(level)}}} ", text, flags=re.MULTILINE)[0]


def functions(title: str) -> list[str]:
    return re.findall(r"^\| `([\w.]+)` \|", section(title), re.MULTILINE)


def test_the_rooms_are_the_ones_the_import_contract_has() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [re.sub(r"^trainwright\.", "", layer) for layer in contracts[0]["layers"]]
    rooms = re.findall(r"^\| `(\w+)/` \|", section("## The house"), re.MULTILINE)
    assert rooms == layers
    assert set(rooms) == {path.parent.name for path in PACKAGE.glob("*/__init__.py")}


def test_a_room_that_is_empty_is_marked() -> None:
    marked = set(re.findall(rf"^\| `(\w+)/` \| .*{re.escape(NOT_BUILT)} \|$", section("## The house"), re.MULTILINE))
    empty = {path.parent.name for path in PACKAGE.glob("*/__init__.py") if len(list(path.parent.rglob("*.py"))) == 1}
    assert marked == empty


@pytest.mark.parametrize("title", ["### From the file to the script", "### From the script to the report"])
def test_the_functions_exist(title: str) -> None:
    names = functions(title)
    assert len(names) >= 10
    for name in names:
        assert callable(pkgutil.resolve_name(f"trainwright.{name}")), name


def test_a_dry_run_calls_the_functions_in_the_order_of_the_page() -> None:
    calls: dict[str, int] = {}  # function -> when it was called first

    def note_call(frame: FrameType, event: str, _: object) -> None:
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.startswith("trainwright."):
            calls.setdefault(f"{module}.{frame.f_code.co_qualname}".removeprefix("trainwright."), len(calls))

    spec = str(ROOT / "examples/p5-reservation.yaml")
    sys.setprofile(note_call)
    try:
        words = ["submit", spec, "--recipe", "llama3.1-8b", "--nodes", "4", "--host", "head", "--dry-run"]
        done = CliRunner().invoke(cli, words)
    finally:
        sys.setprofile(None)
    assert done.exit_code == 0, done.output
    assert "#SBATCH --nodes=4" in done.output
    names = functions("### From the file to the script")
    assert [name for name in names if name not in calls] == []
    assert names == sorted(names, key=calls.__getitem__)
