"""Results of files that have not changed since the last call. A file counts as changed when it, a file in its directory
or the one above, or a path that its rules asked for did: rules also read what lies beside a file. The rules' own code
and data and the settings are part of the key."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trainwright import __version__
from trainwright.check import around
from trainwright.check.engine import Result, RulePlan
from trainwright.check.finding import Edit, Finding
from trainwright.files import write_whole
from trainwright.spec.source import Span


class Cache:
    """Results by path, kept in one file per set of rules and settings."""

    def __init__(self, path: Path, entries: dict[str, Any]) -> None:
        self.path = path
        self.entries = entries
        self.changed = False
        # Of paths and of directories, taken once per call: a file that changes after that is checked again next time.
        self.stamps: dict[str, str] = {}
        self.folders: dict[str, str] = {}

    @classmethod
    def open(cls, plan: RulePlan) -> Cache:
        around.forget()
        path = _folder() / f"{_key_of(plan)}.json"
        try:
            entries = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            entries = {}
        return cls(path, entries if isinstance(entries, dict) else {})

    def get(self, path: str, named: bool) -> Result | None:
        """The stored result of an unchanged file, which a user `named` or a walk met: that decides some levels."""
        full = os.path.abspath(path)
        entry = self.entries.get(_slot(full, named))
        if path == "-" or entry is None or entry["key"] != self.key(full):
            return None
        if any(self.stamp(name) != stamp for name, stamp in entry["looked_up"].items()):
            return None
        return Result(
            [_finding(row, path) for row in entry["findings"]],
            files=entry["files"],
            unread=[path] if entry["unread"] else [],
            ignored=entry["ignored"],
            ignored_by_settings=entry["ignored_by_settings"],
            templates=entry["templates"],
        )

    def put(self, path: str, named: bool, result: Result) -> None:
        if path == "-" or any(finding.file != path for finding in result.findings):
            return
        self.changed = True
        full = os.path.abspath(path)
        self.entries[_slot(full, named)] = {
            "key": self.key(full), "files": result.files, "unread": bool(result.unread), "ignored": result.ignored,
            "ignored_by_settings": result.ignored_by_settings, "templates": result.templates,
            "looked_up": {name: self.stamp(name) for name in result.looked_up},
            "findings": [_row(finding) for finding in result.findings],
        }  # fmt: skip

    def save(self) -> None:
        if not self.changed:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self.path, json.dumps(self.entries, separators=(",", ":")))
        except OSError:
            return  # a read-only home costs time, not correctness

    def key(self, full: str) -> str:
        folder = os.path.dirname(full)
        return f"{self.stamp(full)} {self.fingerprint(folder)} {self.fingerprint(os.path.dirname(folder))}"

    def stamp(self, name: str) -> str:
        """Of what a rule looked up, as `beside` notes it."""
        if name.endswith("/"):
            return self.fingerprint(name[:-1])
        if name not in self.stamps:
            self.stamps[name] = os.getcwd() if name == "." else _stamp_of_entry(name)
        return self.stamps[name]

    def fingerprint(self, folder: str) -> str:
        if folder not in self.folders:
            try:
                with os.scandir(folder) as entries:
                    stamps = sorted(f"{one.name} {_of(one.stat()) if one.is_file() else '/'}" for one in entries)
            except OSError:
                stamps = []
            self.folders[folder] = hashlib.blake2b("\n".join(stamps).encode(), digest_size=8).hexdigest()
        return self.folders[folder]


def _slot(full: str, named: bool) -> str:
    return f"{full}\nnamed" if named else full


def _folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home) / "trainwright" / "check"


def _key_of(plan: RulePlan) -> str:
    modules = {
        rule.function.__module__ for rule in plan.rules if not rule.function.__module__.startswith("trainwright.")
    }
    code = "\n".join(stamp for module in ("trainwright", *sorted(modules)) for stamp in _code_of(module))
    rules = ",".join(rule.code for rule in plan.rules)
    text = f"{__version__} {code} {rules} {plan.selection} {plan.config}"
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def _code_of(module: str) -> list[str]:
    """Stamps of all files of a module's package: its tables decide findings as its code does."""
    package = getattr(sys.modules.get(module.partition(".")[0]), "__file__", None) or ""
    if os.path.basename(package) == "__init__.py":
        return sorted(_stamps_below(os.path.dirname(package)))
    own = getattr(sys.modules.get(module), "__file__", None) or ""
    return [f"{own} {_stamp(own)}"]


def _stamps_below(folder: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_dir():
                yield f"{entry.path} {_stamp(entry.path)}"
            elif entry.name != "__pycache__" and not entry.is_symlink():
                yield from _stamps_below(entry.path)


def _stamp(path: str) -> str:
    try:
        return _of(os.stat(path))
    except OSError:
        return ""


def _stamp_of_entry(path: str) -> str:
    """Of a directory only that it is there: what it holds is asked for by name."""
    return "directory" if os.path.isdir(path) else _stamp(path)


def _of(status: os.stat_result) -> str:
    return f"{status.st_mtime_ns}:{status.st_size}"


def _row(finding: Finding) -> dict[str, Any]:
    row = asdict(finding)
    del row["file"]
    return row


def _finding(row: dict[str, Any], path: str) -> Finding:
    edit = row["edit"]
    return Finding(
        **{
            **row,
            "file": path,
            "span": Span(**row["span"]),
            "edit": Edit(**{**edit, "span": Span(**edit["span"])}) if edit is not None else None,
        }
    )
