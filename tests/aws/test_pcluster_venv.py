"""The virtual environment of pcluster in the user's cache folder: made by the real venv and pip, from a wheel of this
test in the place of the 100 packages that the pins name. CI installs those for the judges, from the same file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

CODE = """
import sys
from pathlib import Path
from trainwright.platforms.parallelcluster.apply import pcluster
pcluster.PINS = Path(sys.argv[1])
print(pcluster.program(lambda words: print(words, file=sys.stderr)))
"""


def wheel(folder: Path, version: str) -> Path:
    """A package with a `pcluster` command that prints its version."""
    path = folder / f"small_pcluster-{version}-py3-none-any.whl"
    info = f"small_pcluster-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("small_pcluster.py", f"def main():\n    print({version!r})\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: small-pcluster\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/entry_points.txt", "[console_scripts]\npcluster = small_pcluster:main\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


def start(folder: Path) -> subprocess.Popen[str]:
    node = folder / "bin" / "node"
    node.parent.mkdir(exist_ok=True)
    node.write_text("#!/bin/sh\n")
    node.chmod(0o755)
    environment = {
        **os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "PATH": f"{node.parent}:{os.environ['PATH']}",
        "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-c", CODE, str(folder / "pins.txt")], env=environment, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def version_of(process: subprocess.Popen[str]) -> tuple[str, bool]:
    """What the installed command prints, and whether it was installed just now."""
    out, err = process.communicate(timeout=280)
    assert process.returncode == 0, err
    done = subprocess.run([out.strip()], capture_output=True, text=True, check=True)
    return done.stdout.strip(), "installing pcluster" in err


@pytest.mark.slow
def test_it_is_made_once_and_again_after_an_end_in_the_middle(tmp_path: Path) -> None:
    (tmp_path / "pins.txt").write_text(f"{wheel(tmp_path, '1.0')}\n")
    first = start(tmp_path)
    while first.poll() is None and not list(tmp_path.glob("cache/trainwright/pcluster-*/bin/python*")):
        time.sleep(0.02)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    assert not list(tmp_path.glob("cache/trainwright/*/trainwright-pins.txt")), "it was killed in the middle"
    both = [start(tmp_path), start(tmp_path)]
    assert sorted(version_of(process) for process in both) == [("1.0", False), ("1.0", True)], "one waits for the other"
    (tmp_path / "pins.txt").write_text(f"{wheel(tmp_path, '2.0')}\n")
    assert version_of(start(tmp_path)) == ("2.0", True), "other pins, another environment"


@pytest.mark.slow
def test_a_package_index_that_cannot_be_reached_is_said(tmp_path: Path) -> None:
    (tmp_path / "pins.txt").write_text("no-such-package==1.0\n")
    process = start(tmp_path)
    _, err = process.communicate(timeout=280)
    assert process.returncode
    assert "pcluster cannot be installed" in err
    assert "no-such-package" in err
