"""The built-in corpus depends on the version of Python alone: not on who runs it, nor on how Python was installed."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from trainwright.train.data import source
from trainwright.train.data.readers import stdlib_files

COMMON = ("argparse.py", "json/decoder.py", "asyncio/events.py", "email/mime/text.py")
# What one installation has and another has not: build settings, what the site or the distribution adds or splits off.
OWN = (
    "_sysconfigdata__linux_x86_64-linux-gnu.py", "sitecustomize.py", "usercustomize.py", "tkinter/__init__.py",
    "ensurepip/__init__.py", "turtledemo/clock.py", "distutils/core.py", "idlelib/run.py", "lib2to3/main.py",
    "site-packages/torch/x.py", "dist-packages/x.py", "test/test_x.py", "lib-dynload/x.py", "venv/__init__.py",
    "__pycache__/x.py", "config-3.11-x86_64-linux-gnu/python-config.py", "pydoc_data/topics.py", "somebodys_own.py",
    "local_package/__init__.py",
)  # fmt: skip


def installation(root: Path, names: tuple[str, ...]) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"# {name}\n")
    return root


def test_two_installations_of_one_python_give_the_same_text(tmp_path: Path) -> None:
    plain = installation(tmp_path / "plain", COMMON)
    full = installation(tmp_path / "full", COMMON + OWN)
    (full / "linked.py").symlink_to(plain / "argparse.py")
    names = [[str(path.relative_to(root)) for path in stdlib_files(root)] for root in (plain, full)]
    assert names[0] == names[1] == sorted(COMMON)


def test_another_patch_release_is_another_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache of one release is never taken for another's: their sources differ."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert platform.python_version() in source.stdlib_folder().name
