"""A folder of files that belong together and were written by us: a plan, an image. Its record lists every file with its
checksum, so that the same command can be run again, and nothing of anybody else's is overwritten."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainwright.errors import UserError
from trainwright.files import read_regular, write_text

ARCHIVE = ".zip"
EXECUTABLE = (".sh", ".sbatch")


def digests(files: Mapping[str, str], archives: Mapping[str, bytes] | None = None) -> dict[str, str]:
    """The checksum of every file, for a record's `files`."""
    texts = {name: _digest(text.encode()) for name, text in sorted(files.items())}
    return texts | {name: _digest(content) for name, content in (archives or {}).items()}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def earlier_files(folder: Path, record: str, what: str, option: str) -> dict[str, str] | None:
    """The text files that stand in a folder by its record; None when the folder is new. A folder of anything else is
    refused: `what` it should hold, and the `option` that names another, are for the message."""
    fix = f"name another folder with {option}"
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return None
    listed = folder / record
    if not listed.is_file():
        raise UserError(f"{folder} is not empty and holds no {what}", fix=fix)
    try:
        names = [str(name) for name in json.loads(_text(listed))["files"]]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{listed} is not the record of a {what}: {error}", fix=fix) from error
    paths = {name: inside(folder, name, record, option) for name in names if not name.endswith(ARCHIVE)}
    return {name: _text(path) for name, path in paths.items() if path.is_file()}


def _text(path: Path) -> str:
    return read_regular(path).decode("utf-8", errors="replace")


def write_folder(
    folder: Path,
    files: Mapping[str, str],
    archives: Mapping[str, bytes],
    record: str,
    facts: Mapping[str, Any],
    earlier: Mapping[str, str] | None,
    option: str,
) -> None:
    """Write the files and the record of their facts; remove those that an earlier one had and this one has not."""
    texts = {**files, record: json.dumps(facts, indent=2) + "\n"}
    names = [*texts, *archives]
    for name in names:
        inside(folder, name, record, option)
    gone = sorted(_recorded(folder, record) - set(names)) if earlier is not None else []
    aside = folder.with_name(f".{folder.name}.{os.urandom(4).hex()}")
    try:
        for name, text in texts.items():
            write_text(aside / name, text)
            (aside / name).chmod(0o755 if name.endswith(EXECUTABLE) else 0o644)
        for name, content in archives.items():
            (aside / name).parent.mkdir(parents=True, exist_ok=True)
            (aside / name).write_bytes(content)
        _put_in_place(aside, folder, names, [inside(folder, name, record, option) for name in gone])
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _recorded(folder: Path, record: str) -> set[str]:
    """Every file that the record in a folder names, archives too: these we wrote, and no others."""
    return {str(name) for name in json.loads(_text(folder / record))["files"]}


def _put_in_place(aside: Path, folder: Path, names: list[str], gone: list[Path]) -> None:
    """Move files that were written whole to their folder: a full disk before this leaves what was there unchanged."""
    if not folder.exists():
        aside.rename(folder)
        return
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (aside / name).replace(folder / name)
    for path in gone:
        path.unlink(missing_ok=True)
        for parent in path.parents:
            if parent == folder or not parent.is_dir() or any(parent.iterdir()):
                break
            parent.rmdir()


def inside(folder: Path, name: str, record: str, option: str) -> Path:
    """The path of a file; a record that names one outside its folder was not written by us."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise UserError(
            f"{folder / record} names a file outside its folder: {name}", fix=f"name another folder with {option}"
        )
    return path
