"""What the tests say they prove, for the generated pages: pytest collects the files that hold a mark once, in a process
of its own and without running them, and every page reads its own mark from the result."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
MARKS = ("proves", "shows")
RESULT = "TRAINWRIGHT_MARKS"  # the file that the collecting process writes


@dataclass(frozen=True)
class Mark:
    """One mark of one test, with the values of the test's parameters as text."""

    mark: str
    test: str
    words: list[str]
    options: dict[str, list[str]]
    parameters: dict[str, str]


def marks(name: str) -> list[Mark]:
    """The marks of that name, in the order of the tests."""
    return [mark for mark in _collected() if mark.mark == name]


@functools.cache
def _collected() -> list[Mark]:
    files = sorted(str(path) for path in ROOT.glob("tests/**/test_*.py") if _is_marked(path))
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "marks.json"
        path = os.pathsep.join([str(Path(__file__).parent), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, RESULT: str(result), "PYTHONPATH": path}
        words = ["--collect-only", "-q", "-p", "collected_marks", "-p", "no:cacheprovider", "-n", "0"]
        command = [sys.executable, "-m", "pytest", *words, *files]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        if done.returncode or not result.exists():
            raise RuntimeError(f"the tests cannot be collected:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        return [Mark(**row) for row in json.loads(result.read_text(encoding="utf-8"))]


def _is_marked(path: Path) -> bool:
    text = path.read_text(encoding="utf-8")
    return any(f"mark.{mark}(" in text for mark in MARKS)


def pytest_collection_finish(session: Any) -> None:
    """The plugin's part, in the collecting process."""
    rows = [
        asdict(Mark(mark.name, item.nodeid, list(mark.args), _lists(mark.kwargs), _parameters(item)))
        for item in session.items
        for mark in item.iter_markers()
        if mark.name in MARKS
    ]
    Path(os.environ[RESULT]).write_text(json.dumps(rows), encoding="utf-8")


def _parameters(item: Any) -> dict[str, str]:
    return {name: str(value) for name, value in item.callspec.params.items()} if hasattr(item, "callspec") else {}


def _lists(options: dict[str, Any]) -> dict[str, list[str]]:
    return {name: list(value) for name, value in options.items()}
