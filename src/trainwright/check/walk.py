"""The files that `check` reads: those the user names, and those of a directory that may be of a kind it knows."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from trainwright.check.config import Config
from trainwright.check.input import is_regular
from trainwright.check.readers.recognise import looks_readable
from trainwright.errors import UserError, did_you_mean

_SKIPPED_FOLDERS = {
    ".git", ".github", ".venv", "node_modules", "__pycache__", ".terraform", "site-packages", ".mypy_cache",
    ".buildkite", ".circleci", ".gitlab", ".azure-pipelines", ".jenkins",  # of build services, like .github
    "test", "tests", "__tests__", "fixtures", "__fixtures__", "testdata", "test_data", "test_templates",  # tests
}  # fmt: skip
# What is wrong on purpose, and input of tests outside their directories (`testStack.json`).
_ON_PURPOSE = re.compile(
    r"(^|[-_.])(broken|invalid|insecure|vulnerable|malformed)([-_.]|$)|^test[A-Z_]|[-_]tests?$|^(checkov|tfsec|trivy)[-_]"
)


def files(paths: Sequence[str], config: Config) -> Iterator[tuple[str, bool]]:
    """The files to read, each with whether the user named it."""
    for path in paths:
        if path == "-":
            yield path, True
        elif Path(path).is_dir():
            yield from ((name, False) for name in _below(path, config))
        elif Path(path).exists():
            yield path, True
        elif Path(path).is_symlink():
            raise UserError(f"{path} is a link to {os.readlink(path)}, which does not exist")
        else:
            raise UserError(f"no such file or folder: {path}", fix=did_you_mean(path, _neighbours(path)))


def _below(path: str, config: Config) -> Iterator[str]:
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(
            name
            for name in folders
            if name.lower() not in _SKIPPED_FOLDERS
            and not _ON_PURPOSE.search(name)
            and not _excluded(folder, name, config)
        )
        for name in sorted(names):
            full = os.path.normpath(os.path.join(folder, name))
            if (
                looks_readable(name)
                and not _ON_PURPOSE.search(name)
                and is_regular(full)
                and not _excluded(folder, name, config)
            ):
                yield full


def _excluded(folder: str, name: str, config: Config) -> bool:
    return bool(config.exclude) and config.excludes(os.path.join(folder, name))


def _neighbours(path: str) -> list[str]:
    folder = Path(path).parent
    if not folder.is_dir():
        return []
    return [str(folder / name.name) if str(folder) != "." else name.name for name in folder.iterdir()]
