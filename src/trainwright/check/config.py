"""The user's settings for `check`: the section `[tool.trainwright.check]` of pyproject.toml, or `[check]` of
trainwright.toml, in the working directory or the nearest one above it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from trainwright.check.finding import LEVELS, Finding, Level
from trainwright.errors import UserError, did_you_mean

_LISTS = ("select", "ignore", "exclude")
_TABLES = ("per-file-ignores", "levels", "targets")
_TARGETS = ("parallelcluster", "slurm")
_KEYS = (*_LISTS, *_TABLES, "docs-url", "fail-on")


@dataclass(frozen=True, slots=True)
class Config:
    """Settings; the defaults are those of a project without a section."""

    folder: Path = field(default_factory=Path)  # patterns are relative to it
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()  # pattern -> beginnings of codes
    levels: tuple[tuple[str, Level], ...] = ()  # beginning of a code -> level
    targets: tuple[tuple[str, str], ...] = ()  # software -> version
    docs_url: str = ""
    fail_on: Level = "warning"  # the least level that makes the exit status 1
    source: str = ""  # the file that holds the section

    def verify(self, codes: Sequence[str]) -> None:
        """Codes that no rule has and targets that no rule asks for are typing mistakes."""
        stated = [(code, "levels") for code, _ in self.levels]
        stated += [(code, f"per-file-ignores.{pattern!r}") for pattern, of in self.per_file_ignores for code in of]
        for prefix, key in stated:
            if not any(code.startswith(prefix) for code in codes):
                raise UserError(
                    f"{key}: no rule starts with {prefix!r}", where=self.source,
                    fix=did_you_mean(prefix, codes) or "`trainwright check --rules` lists them",
                )  # fmt: skip
        for name, version in self.targets:
            self._verify_target(name, version)

    def _verify_target(self, name: str, version: str) -> None:
        from trainwright.check.pcluster_schema import text, versions

        if name not in _TARGETS:
            raise UserError(
                f"targets: no rule asks for the version of {name!r}", where=self.source,
                fix=did_you_mean(name, _TARGETS) or f"it has {', '.join(_TARGETS)}",
            )  # fmt: skip
        if name == "slurm":
            if re.fullmatch(r"\d\d\.\d\d(\.\d+)?", version) is None:
                raise UserError(
                    f"targets: {version!r} is no version of slurm", where=self.source, fix='write it as in "24.11"'
                )
            return
        known = [text(one) for one in versions()]
        if ".".join(version.split(".")[:2]) not in known or not re.fullmatch(r"\d+\.\d+(\.\d+)?", version):
            raise UserError(
                f"targets: {version!r} is no known version of {name}", where=self.source,
                fix=f"use {known[-1]} to {known[0]}, as a text in quotes",
            )  # fmt: skip

    def excludes(self, path: str) -> bool:
        """Whether a file or directory is left out."""
        return any(self.matches(path, pattern) for pattern in self.exclude)

    def ignores(self, finding: Finding) -> bool:
        """Whether a finding's code is ignored in its file."""
        return any(
            finding.code.startswith(codes) and self.matches(finding.file, pattern)
            for pattern, codes in self.per_file_ignores
        )

    def level_of(self, finding: Finding) -> Level:
        """The level the user gave the rule, the longest beginning winning."""
        stated = [(code, level) for code, level in self.levels if finding.code.startswith(code)]
        return max(stated, key=lambda pair: len(pair[0]))[1] if stated else finding.level

    def matches(self, path: str, pattern: str) -> bool:
        """A pattern matches a file name, a path from the project's directory, or a directory and all below it."""
        try:
            relative = Path(path).absolute().relative_to(self.folder.absolute()).as_posix()
        except ValueError:
            relative = Path(path).as_posix()
        pattern = pattern.strip("/")
        return (
            fnmatch(relative, pattern)
            or fnmatch(relative, f"{pattern}/*")
            or fnmatch(relative, f"**/{pattern}/*")
            or ("/" not in pattern and any(fnmatch(part, pattern) for part in relative.split("/")))
        )


def load_config(start: Path | None = None) -> Config:
    """The nearest section at or above a directory; without one, the defaults."""
    folder = (start or Path.cwd()).absolute()
    for place in (folder, *folder.parents):
        for name, path in (("trainwright.toml", ("check",)), ("pyproject.toml", ("tool", "trainwright", "check"))):
            file = place / name
            if file.is_file():
                section = _section(file, path)
                if section is not None:
                    return _config(section, file)
    return Config(folder)


def _section(file: Path, path: tuple[str, ...]) -> dict[str, Any] | None:
    text = file.read_text(encoding="utf-8", errors="replace")
    if path[-1] not in text or (len(path) > 1 and "trainwright" not in text):
        return None  # nearly every pyproject.toml: not worth importing the parser
    import tomllib

    try:
        value: Any = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"not valid TOML: {error}", where=str(file)) from error
    if len(path) == 1 and _at(value, ("tool", "trainwright", "check")) is not None:
        raise UserError("[tool.trainwright.check] is for pyproject.toml", where=str(file), fix="write [check] here")
    return _at(value, path)


def _at(value: Any, path: tuple[str, ...]) -> dict[str, Any] | None:
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else None


def _config(section: dict[str, Any], file: Path) -> Config:
    for key in section:
        if key not in _KEYS:
            raise UserError(
                f"unknown setting {key!r} for check", where=str(file),
                fix=did_you_mean(key, _KEYS) or f"it has {', '.join(_KEYS)}",
            )  # fmt: skip
    lists = {key: _texts(section.get(key, []), key, file) for key in _LISTS}
    tables = {key: _table(section.get(key, {}), key, file) for key in _TABLES}
    for code, level in tables["levels"].items():
        if level not in LEVELS:
            raise UserError(f"{level!r} is not a level for {code}", where=str(file), fix=f"use {', '.join(LEVELS)}")
    docs_url = str(section.get("docs-url", ""))
    if docs_url and not re.match(r"https?://[^/\s]+", docs_url):
        raise UserError(f"docs-url {docs_url!r} is not an absolute address", where=str(file), fix="begin with https://")
    fail_on = section.get("fail-on", "warning")
    if fail_on not in LEVELS:
        raise UserError(f"fail-on: {fail_on!r} is not a level", where=str(file), fix=f"use {', '.join(LEVELS)}")
    return Config(
        folder=file.parent,
        **lists,
        per_file_ignores=tuple(
            (pattern, _texts(codes, f"per-file-ignores.{pattern}", file))
            for pattern, codes in tables["per-file-ignores"].items()
        ),
        levels=tuple(tables["levels"].items()),
        targets=tuple((name, str(version)) for name, version in tables["targets"].items()),
        docs_url=docs_url,
        fail_on=fail_on,
        source=str(file),
    )


def _texts(value: Any, key: str, file: Path) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise UserError(f"{key} must be a list of texts", where=str(file), fix=f'write {key} = ["…"]')
    return tuple(value)


def _table(value: Any, key: str, file: Path) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UserError(f"{key} must be a table", where=str(file), fix=f"write [… .{key}]")
    return value
