"""The documentation is true: its commands succeed, the files it names exist, its generated pages are current.

A command ends with status 0 unless the page says otherwise: `$ trainwright check x.yaml  # exits 1: findings`. A block
that cannot run here has `<!-- not run: reason -->` above it. A page's commands run in order in one folder; the README's
run in a copy of the repository, where a new user runs them.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from trainwright.cli.main import VERBS
from trainwright.spec.model import Capacity
from trainwright.spec.part import Part

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
GENERATED = ("rules", "reference")  # written by tools/generate_docs.py, which has tests of its own
PAGES = [README, *sorted(p for p in DOCS.rglob("*.md") if not set(GENERATED) & set(p.relative_to(DOCS).parts))]
_BLOCK = re.compile(r"(<!-- not run: [^>]+ -->\s*)?^```(console|bash|text)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"\s{2,}# (.*)$")
_EXITS = re.compile(r"exits (\d+): \S")
# Run by CI itself, or an installation: not inside a test.
_NOT_HERE = re.compile(r"^(make|git clone|pip install|cd )\b")


@dataclass(frozen=True)
class Command:
    """One command of a page, the status the page promises, and the lines of output it shows."""

    line: str
    status: int = 0
    shown: str = ""


def commands(page: Path) -> list[Command]:
    """The commands of a page's console and bash blocks, and of the README's `text` blocks, which also show output."""
    result: list[Command] = []
    for excuse, language, block in _BLOCK.findall(page.read_text(encoding="utf-8")):
        if excuse or (language == "text" and (page != README or not block.startswith("$ "))):
            continue
        if language == "text":
            first, _, shown = block.partition("\n")
            result.append(_command(first[2:], shown))
        else:
            result += [_command(line) for line in _lines(block)]
    return [command for command in result if not _NOT_HERE.match(command.line)]


def _lines(block: str) -> list[str]:
    console = any(line.startswith("$ ") for line in block.splitlines())
    lines = [line[2:] for line in block.splitlines() if line.startswith("$ ")] if console else block.splitlines()
    joined = "\n".join(lines).replace("\\\n", " ").splitlines()
    return [line for line in joined if line.strip() and not line.startswith("#")]


def _command(line: str, shown: str = "") -> Command:
    comment = _COMMENT.search(line)
    exits = _EXITS.match(comment[1]) if comment else None
    return Command(_COMMENT.sub("", line).strip(), int(exits[1]) if exits else 0, shown)


# Pages whose commands train or measure for 20 to 60 s each: the slow suite reads them.
SLOW = ("docs/train/*.md", "docs/run/jobs.md", "docs/prove/measurements.md", "docs/recipes.md")


def _page(path: Path) -> Any:
    name = str(path.relative_to(ROOT))
    slow = any(fnmatch(name, pattern) for pattern in SLOW)
    return pytest.param(path, id=name, marks=[pytest.mark.slow] if slow else [])


WITH_COMMANDS = [_page(page) for page in PAGES if commands(page)]


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A new user's environment; a cluster that a failed page left running is stopped."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    variables = {**os.environ, "PATH": path, "HOME": str(tmp_path), "TRAINWRIGHT_HOME": str(tmp_path / "home")}
    yield variables
    for cluster in (tmp_path / "home/clusters").glob("*/"):
        _run(f"trainwright down {cluster.name}", tmp_path, variables)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("page", WITH_COMMANDS)
def test_the_commands_of_a_page_succeed(
    page: Path, tmp_path: Path, environment: dict[str, str], request: pytest.FixtureRequest
) -> None:
    work = tmp_path / "work"
    _copy_repository(work) if page == README else work.mkdir()
    for command in commands(page):
        done = _run(command.line, work, environment)
        assert done.returncode == command.status, f"{command}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr, f"{command.line}\n{done.stderr}"
        _assert_trained(command.line, work, environment)
        if request.config.getoption("--update-golden"):
            _update(page, command.shown, done.stdout)
        else:
            assert [line for line in command.shown.splitlines() if line not in done.stdout.splitlines()] == []
    for folder in (tmp_path / "home/runs").glob("*/"):
        assert json.loads((folder / "result.json").read_text())["status"] == "done", folder.name


def _run(line: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", line], cwd=folder, env=environment, capture_output=True, text=True)


def _assert_trained(line: str, work: Path, environment: dict[str, str]) -> None:
    """A training that a page starts and waits for has reached its last step."""
    if re.search(r"\bsubmit .*--follow\b|\blogs -f\b", line):
        newest = _run("trainwright runs --limit 1 --json", work, environment)
        assert json.loads(newest.stdout)[0]["state"] == "completed", f"{line}\n{newest.stdout}"
    elif folder := re.search(r"trainwright[. ]train --.*--folder (\S+)", line):
        result = json.loads((work / folder[1] / "result.json").read_text())
        steps = re.search(r"--steps (\d+)", line)
        assert result["status"] == "done", f"{line}\n{result}"
        assert steps is None or result["step"] == int(steps[1]), f"{line}\n{result}"


def _copy_repository(target: Path) -> None:
    """What a clone has: the files git knows, with the changes of this working tree."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    for name in listing.stdout.split("\0"):
        if name and (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name)


def _update(page: Path, shown: str, printed: str) -> None:
    """Put the most similar printed line in place of each line that the page shows."""
    lines = printed.splitlines()
    new = "".join(f"{difflib.get_close_matches(line, lines, n=1, cutoff=0)[0]}\n" for line in shown.splitlines())
    page.write_text(page.read_text().replace(shown, new))


def test_the_status_of_a_command_is_read_from_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    block = "$ true  # fine\n$ check x  # exits 1: findings\nits output\n$ echo a # b\n$ false  # exits 1:\n"
    page.write_text(f"```console\n{block}```\n\n<!-- not run: it is yours -->\n```console\n$ yours\n```\n")
    assert commands(page) == [Command("true"), Command("check x", 1), Command("echo a # b"), Command("false")]


def test_every_block_that_does_not_run_says_why() -> None:
    for page in PAGES:
        for reason in re.findall(r"<!-- not run:?\s*(.*?)-->", page.read_text(encoding="utf-8")):
            assert len(reason.split()) > 1, page


def test_the_readme_and_the_accuracy_page_agree() -> None:
    readme, page = (path.read_text() for path in (README, ROOT / "docs/predict/accuracy.md"))
    said = re.search(r"held against (\d+) published runs.*?: ([\d.]+) % off in the mean", readme)
    measured = re.search(r"\| \*\*all\*\* \| \*\*(\d+)\*\* \| \*\*([\d.]+) %\*\*", page)
    assert said is not None
    assert measured is not None
    assert said.groups() == measured.groups()


def test_files_the_readme_names_exist() -> None:
    named = re.findall(r"`((?:src|docs|tests|examples|benchmarks)/[\w./-]+)`", README.read_text())
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_generated_pages_are_current() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools/generate_docs.py"), "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def _parts(part: type[Part] = Part) -> list[type[Part]]:
    own = [each for each in part.__subclasses__() if each.__module__.startswith("trainwright.spec.")]
    public = [each for each in own if each.__name__[0] != "_"]
    return [each for sub in public for each in (sub, *_parts(sub))]


def test_the_reference_has_every_field_of_the_spec() -> None:
    text = (ROOT / "docs/reference/spec.md").read_text(encoding="utf-8")
    parts = [part for part in _parts() if part is not Capacity]  # written as the words and maps that the page shows
    assert len(parts) > 15
    for part in parts:
        for name, field in part.model_fields.items():
            row = re.search(
                rf"^\| `{name}` \| .*{re.escape(' '.join((field.description or '').split()))} \|$", text, re.M
            )
            assert row is not None, f"{part.__name__}.{name}"


def test_the_reference_has_every_verb_and_its_options() -> None:
    folder = ROOT / "docs/reference/verbs"
    assert {path.stem for path in folder.glob("*.md")} == {*VERBS, "index"}
    assert "| `--follow` |" in (folder / "submit.md").read_text()  # click
    assert "| `--steps N` |" in (folder / "train.md").read_text()  # argparse
    assert "## data prepare" in (folder / "data.md").read_text()


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    pages = [str(page.relative_to(ROOT / "docs")) for page in PAGES if page != README]
    assert [name for name in pages if f" {name}\n" not in navigation] == []


def test_no_page_names_a_machine_path() -> None:
    for page in PAGES:
        assert not re.search(r"/(root|work|home/\w+)/", page.read_text(encoding="utf-8")), page


def test_benchmarks_of_the_on_call_pages_take_their_arguments() -> None:
    """Their commands need a cluster and are not run; a word that `bench` does not take ends in an error at night."""
    pages = [ROOT / "docs/oncall.md", *sorted((ROOT / "docs/runbook").glob("*.md"))]
    for page in pages:
        for line in re.findall(r"trainwright bench collectives([^`\n]*)", page.read_text()):
            assert not line.strip() or line.split()[0].startswith("-"), f"{page.name}: bench collectives{line}"
