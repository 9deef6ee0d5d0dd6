"""The CI script decides rightly: chance is forgiven once, a real failure never, and what has no time left is said."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

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
# `timeout` takes this signal for its own clock's, so a test can say when the time is over, however slow the machine is.
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


def ci(folder: Path, fast: str, slow: dict[str, str]) -> tuple[int, str]:
    """Run the script over a small project: its status and what it said."""
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


def test_chance_is_forgiven_once(tmp_path: Path) -> None:
    status, said = ci(tmp_path, FAILS_ONCE, {"a": PASSES})
    assert "by chance" in said
    assert status == 0, said


def test_what_fails_twice_fails_the_change(tmp_path: Path) -> None:
    status, said = ci(tmp_path, FAILS, {"a": PASSES})
    assert status != 0
    assert "pytest -p xdist -n 1 slow" not in said


def test_a_suite_that_cannot_run_fails_the_change(tmp_path: Path) -> None:
    assert ci(tmp_path, "import no_such_module\n", {"a": PASSES})[0] != 0


def test_the_suite_must_finish(tmp_path: Path) -> None:
    status, said = ci(tmp_path, TIME_IS_OVER, {"a": PASSES})
    assert status == 124
    assert re.search(r"^stopped unfinished after \d+ s of the run: make test$", said, re.MULTILINE)


def test_what_is_run_again_must_finish(tmp_path: Path) -> None:
    again = FAILS_ONCE + "    else: over()\n" + TIME_IS_OVER.replace("test_time_is_over", "over")
    status, said = ci(tmp_path, again, {"a": PASSES})
    assert status == 1
    assert re.search(r"^stopped unfinished .*: make test WORKERS=0 ARGS=--last-failed$", said, re.MULTILINE)


def test_the_slow_tests_may_run_out_of_time(tmp_path: Path) -> None:
    status, said = ci(tmp_path, PASSES, {"a": PASSES, "b": TIME_IS_OVER})
    assert status == 0, said
    assert said.endswith("there was no time for all of the slow tests; those that ran passed\n")


def test_a_slow_test_that_failed_before_the_time_ran_out_is_found(tmp_path: Path) -> None:
    status, said = ci(tmp_path, PASSES, {"a": FAILS, "b": TIME_IS_OVER})
    assert "stopped unfinished" in said
    assert status == 1
    assert "there was no time" not in said


def test_shellcheck_finds_nothing() -> None:
    done = subprocess.run(["shellcheck", ROOT / ".ci/run"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
