"""The documentation is true: its commands run, the files it names exist, its generated pages are current."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(p for p in (ROOT / "docs").rglob("*.md") if p.parent.name != "rules")]
_BLOCK = re.compile(r"(<!-- not run: [^>]+ -->\s*)?^```(?:console|bash)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
# Run by CI itself, or an installation: not inside a test.
_NOT_HERE = re.compile(r"^(make|git clone|pip install|cd )\b")


def commands(page: Path) -> list[str]:
    """The commands of a page's console and bash blocks; `<!-- not run: reason -->` above a block leaves it out."""
    found: list[str] = []
    for excuse, block in _BLOCK.findall(page.read_text(encoding="utf-8")):
        if excuse:
            continue
        console = any(line.startswith("$ ") for line in block.splitlines())
        lines = [line[2:] for line in block.splitlines() if line.startswith("$ ")] if console else block.splitlines()
        joined = "\n".join(lines).replace("\\\n", " ").splitlines()
        found += [line.partition("  # ")[0].strip() for line in joined if line.strip() and not line.startswith("#")]
    return [command for command in found if not _NOT_HERE.match(command)]


WITH_COMMANDS = [page for page in PAGES if commands(page)]


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda p: str(p.relative_to(ROOT)))
def test_commands_of_the_page_run(page: Path, tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "HOME": str(tmp_path), "TRAINWRIGHT_HOME": str(tmp_path / "home")}
    (tmp_path / "work").mkdir()
    for command in commands(page):
        done = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path / "work", env=environment, capture_output=True, text=True, timeout=240
        )
        # 1 is a verdict (findings), which is a fair answer of `check`; 2 and above are mistakes in the page.
        assert done.returncode in (0, 1), f"{command}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr, f"{command}\n{done.stderr}"


def test_what_the_readme_shows_is_what_the_command_prints(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """A `text` block that starts with a command shows lines of its output, and nothing else. `--update-golden` puts the
    newly printed lines in, each known by its first word."""
    shown = re.findall(r"^```text\n\$ ([^\n]*)\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert len(shown) == 2
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    for command, lines in shown:
        done = subprocess.run(["bash", "-c", command], cwd=ROOT, env=environment, capture_output=True, text=True)
        printed = done.stdout.splitlines()
        if request.config.getoption("--update-golden"):
            by_word = {line.split()[0]: line for line in printed if line.strip()}
            new = "".join(f"{line if line in printed else by_word[line.split()[0]]}\n" for line in lines.splitlines())
            readme = ROOT / "README.md"
            readme.write_text(readme.read_text().replace(lines, new))
            lines = new
        assert [line for line in lines.splitlines() if line not in printed] == [], command


def test_the_readme_and_the_accuracy_page_agree() -> None:
    readme, page = ((ROOT / name).read_text() for name in ("README.md", "docs/predict/accuracy.md"))
    said = re.search(r"held against (\d+) published runs.*?: ([\d.]+) % off in the mean", readme)
    measured = re.search(r"\| \*\*all\*\* \| \*\*(\d+)\*\* \| \*\*([\d.]+) %\*\*", page)
    assert said is not None
    assert measured is not None
    assert said.groups() == measured.groups()


def test_files_the_readme_names_exist() -> None:
    named = re.findall(r"`((?:src|docs|tests|examples|benchmarks)/[\w./-]+)`", (ROOT / "README.md").read_text())
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_generated_pages_are_current() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools/generate_docs.py"), "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_no_page_names_a_machine_path() -> None:
    for page in PAGES:
        assert not re.search(r"/(root|work|home/\w+)/", page.read_text(encoding="utf-8")), page
