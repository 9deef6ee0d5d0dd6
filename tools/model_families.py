"""The table of model families in docs/train/families.md: a tick stands only where a test stands. A test states what it
shows with `@pytest.mark.shows("parity", "export")`; its families are those of its parameter `kind`, `family` or
`model`, or the ones that the mark names: `families=("mixtral", ...)`. Tests are only collected here, not run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
MARK = "mark.shows("
COLUMNS = {
    "parity": "logits (or outputs) and, where trained, gradients equal those of an independent implementation",
    "export": "weights are written for that implementation and read back without a change",
    "curve": "the loss of every step equals that of that implementation, same data and same optimizer",
    "plans": "every parallel plan gives the loss curve of one process",
    "resume": "a stopped run ends with the weights of one that was not stopped, bit for bit",
    "predict": "the predictor knows the published shapes, with the trainer's parameters",
}
RESULT = "TRAINWRIGHT_FAMILIES"  # the file that the collecting process writes


def families_page() -> str:
    shown = collect()
    lines = [
        "# Model families", "", "Written from the tests by `make docs`: a tick stands only where a test stands.", "",
        f"| family | {' | '.join(COLUMNS)} |", f"| --- | {' | '.join('---' for _ in COLUMNS)} |",
    ]  # fmt: skip
    for family in sorted(shown):
        ticks = ["✓" if column in shown[family] else "" for column in COLUMNS]
        lines.append(f"| {family} | {' | '.join(ticks)} |")
    lines += ["", *(f"- **{column}**: {what}." for column, what in COLUMNS.items())]
    return "\n".join(lines) + "\n"


def collect() -> dict[str, dict[str, list[str]]]:
    """Family -> column -> tests, from a pytest that only collects."""
    files = sorted(str(path) for path in ROOT.glob("tests/**/test_*.py") if MARK in path.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "families.json"
        path = os.pathsep.join([str(Path(__file__).parent), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, RESULT: str(result), "PYTHONPATH": path}
        words = ["--collect-only", "-q", "-p", "model_families", "-p", "no:cacheprovider", "-n", "0"]
        command = [sys.executable, "-m", "pytest", *words, *files]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        if done.returncode or not result.exists():
            raise RuntimeError(f"the tests cannot be collected:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        return json.loads(result.read_text(encoding="utf-8"))


def pytest_collection_finish(session: Any) -> None:
    """The plugin's part, in the collecting process."""
    shown: dict[str, dict[str, list[str]]] = {}
    for item in session.items:
        for mark in item.iter_markers("shows"):
            for family in _families(item, mark):
                for column in mark.args:
                    if column not in COLUMNS:
                        raise ValueError(f"{item.nodeid} shows {column!r}; the columns are {', '.join(COLUMNS)}")
                    shown.setdefault(family, {}).setdefault(column, []).append(item.nodeid)
    Path(os.environ[RESULT]).write_text(json.dumps(shown), encoding="utf-8")


def _families(item: Any, mark: Any) -> list[str]:
    """The families that the mark names, or the one of the test's parameter: a family, a model, or a word of its own."""
    from trainwright.train.models.shape import is_published, lookup

    if "families" in mark.kwargs:
        return list(mark.kwargs["families"])
    values = item.callspec.params if hasattr(item, "callspec") else {}
    word = next((str(values[name]) for name in ("family", "kind", "model", "name") if name in values), "")
    if not word:
        raise ValueError(f"{item.nodeid} names no family: a parameter `family`, `kind` or `model`, or families=(...)")
    return [lookup(word).family if is_published(word) else word]
