"""The CI script: a test may pass on its second try and is named then; failed or unfinished is never green."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAKEFILE = f"""
WORKERS ?= 1
lint docs:
\t@true
test:
\t{sys.executable} -m pytest -p xdist -n $(WORKERS) fast $(ARGS)
test-slow:
\t{sys.executable} -m pytest -p xdist -n $(WORKERS) slow $(ARGS)
"""
PASSES = "def test_it(): pass\n"
FAILS = "def test_it(): assert False, 'really'\n"
# `timeout` handles this signal as the end of its own timer, so a test decides when the time is over, on any machine.
TIME_IS_OVER = """
import os, signal, time
from pathlib import Path

def test_time_is_over():
    process = os.getpid()
    while Path(f"/proc/{process}/comm").read_text().strip() != "timeout":
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    time.sleep(1)  # for what ran before to be counted
    os.kill(process, signal.SIGALRM)
    time.sleep(600)
"""
FAILS_ONCE = """
from pathlib import Path

def test_it():
    if not Path("seen").exists():
        Path("seen").touch()
        assert False, "by chance"
"""
IMPORTS_ONCE = """
if not Path("seen").exists():
    Path("seen").touch()
    assert False, "by chance"

def test_it(): pass
"""


def ci(folder: Path, fast: str, slow: dict[str, str]) -> tuple[int, str]:
    """Run the script over a small project: its status and its output."""
    (folder / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", folder / ".ci/run")
    files = {"Makefile": MAKEFILE, "fast/test_fast.py": fast}
    for name, text in {**files, **{f"slow/test_{name}.py": text for name, text in slow.items()}}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    done = subprocess.run(
        [folder / ".ci/run"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240
    )
    return done.returncode, done.stdout


def test_a_second_try_may_pass_and_is_named_at_the_end(tmp_path: Path) -> None:
    status, output = ci(tmp_path, FAILS_ONCE, {"a": PASSES})
    assert "by chance" in output
    assert status == 0, output
    last, named = output.splitlines()[-2:]
    assert re.fullmatch(r"all tests ran and passed in \d+ s", last)
    assert named == "needed a second try: fast/test_fast.py::test_it"


def test_a_run_without_second_tries_names_none(tmp_path: Path) -> None:
    status, output = ci(tmp_path, PASSES, {"a": PASSES})
    assert status == 0, output
    assert "second try" not in output
    assert "pytest -p xdist -n 1 slow" in output  # the slow tests are part of every run


def test_what_fails_twice_fails_the_change(tmp_path: Path) -> None:
    status, output = ci(tmp_path, FAILS, {"a": PASSES})
    assert status not in (0, 124)
    assert output.endswith("needed a second try: fast/test_fast.py::test_it\n")
    assert "pytest -p xdist -n 1 slow" not in output


def test_a_slow_test_that_fails_fails_the_change(tmp_path: Path) -> None:
    status, output = ci(tmp_path, PASSES, {"a": FAILS, "b": PASSES})
    assert status not in (0, 124)
    assert "all tests ran" not in output


def test_a_suite_that_cannot_run_fails_the_change(tmp_path: Path) -> None:
    assert ci(tmp_path, "import no_such_module\n", {"a": PASSES})[0] not in (0, 124)


def test_a_file_that_cannot_be_imported_at_first_leaves_no_test_out(tmp_path: Path) -> None:
    status, output = ci(tmp_path, PASSES, {"a": FAILS_ONCE.partition("def")[0] + IMPORTS_ONCE, "b": FAILS})
    assert "by chance" in output
    assert status not in (0, 124), output


def test_the_suite_must_finish(tmp_path: Path) -> None:
    status, output = ci(tmp_path, TIME_IS_OVER, {"a": PASSES})
    assert status == 124
    assert re.search(r"^stopped unfinished after \d+ s of the run: make test ", output, re.MULTILINE)


def test_a_second_try_must_finish(tmp_path: Path) -> None:
    again = FAILS_ONCE + "    else: over()\n" + TIME_IS_OVER.replace("test_time_is_over", "over")
    status, output = ci(tmp_path, again, {"a": PASSES})
    assert status == 124
    assert re.search(r"^stopped unfinished .*: make test WORKERS=0 ARGS=--last-failed$", output, re.MULTILINE)


@pytest.mark.parametrize("other", [PASSES, FAILS], ids=["passes", "fails"])
def test_the_slow_tests_must_finish(tmp_path: Path, other: str) -> None:
    status, output = ci(tmp_path, PASSES, {"a": other, "b": TIME_IS_OVER})
    assert status == 124, output
    assert re.search(r"^stopped unfinished after \d+ s of the run: make test-slow ", output, re.MULTILINE)
    assert "all tests ran" not in output


def test_shellcheck_finds_nothing() -> None:
    done = subprocess.run(["shellcheck", ROOT / ".ci/run"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
