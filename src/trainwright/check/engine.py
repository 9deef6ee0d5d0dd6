"""Runs the rules over files: finds the files, reads each, runs every rule that applies, honours `ignore` comments. An
exception inside a rule becomes a finding, never a crash."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainwright.check.finding import Finding, Skip
from trainwright.check.input import is_regular, read_input
from trainwright.check.model import File
from trainwright.check.readers.recognise import looks_readable, read_file
from trainwright.check.registry import Rule, all_rules
from trainwright.errors import UserError, did_you_mean
from trainwright.spec.mistakes import SpecError
from trainwright.spec.source import SourceError

UNREADABLE = "TW001"  # a file that cannot be read or parsed
INVALID_SPEC = "TW002"  # a spec that violates its schema
CRASHED = "TW003"  # a rule that failed
IMPOSSIBLE = "SPC"  # what a spec asks for in vain stays impossible under a comment that ignores it

_IGNORE = re.compile(r"(?:#|//)\s*trainwright:\s*ignore\[([A-Z0-9, ]+)\]")
_SKIPPED_FOLDERS = {".git", ".venv", "node_modules", "__pycache__", ".terraform", "site-packages", ".mypy_cache"}


@dataclass(slots=True)
class Result:
    """What one call found."""

    findings: list[Finding] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)
    files: int = 0
    unread: list[str] = field(default_factory=list)  # files of a directory that could not be parsed
    ignored: int = 0
    texts: dict[str, str] = field(default_factory=dict)  # of files with findings, for excerpts and fixes

    def worst(self) -> str:
        levels = {finding.level for finding in self.findings}
        return next((level for level in ("error", "warning", "info") if level in levels), "none")


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rules to run, by prefix of their codes."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()

    def wants(self, code: str) -> bool:
        chosen = not self.select or code.startswith(self.select)
        return chosen and not (self.ignore and code.startswith(self.ignore))

    def verify(self, codes: Sequence[str]) -> None:
        """A prefix that matches no rule is a typing mistake."""
        for prefix in (*self.select, *self.ignore):
            if not any(code.startswith(prefix) for code in codes):
                raise UserError(
                    f"no rule starts with {prefix!r}",
                    fix=did_you_mean(prefix, codes) or "`trainwright check --rules` lists them",
                )


def check(paths: Sequence[str], selection: Selection | None = None, facts: dict[str, Any] | None = None) -> Result:
    """Check files and directories (`-` is standard input). `facts` answers the `aws` and `node` rules."""
    selection = selection or Selection()
    rules = all_rules()
    selection.verify([rule.code for rule in rules] + [UNREADABLE, INVALID_SPEC, CRASHED])
    wanted = [rule for rule in rules if selection.wants(rule.code)]
    runnable = [rule for rule in wanted if rule.needs == "offline" or (facts or {}).get(rule.needs) is not None]
    result = Result()
    for path, named in _files(paths):
        _check_one(path, named, runnable, selection, facts or {}, result)
    result.skips = [Skip(rule.code, _why_skipped(rule)) for rule in wanted if rule not in runnable]
    result.findings.sort(key=lambda f: (f.file, f.span.line, f.span.column, f.code))
    return result


def _why_skipped(rule: Rule) -> str:
    if rule.needs == "aws":
        return "needs AWS; run with --aws"
    return "needs facts of the node a job runs on, which no verb collects yet"


def _files(paths: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """The files to read, each with whether the user named it."""
    for path in paths:
        if path == "-":
            yield path, True
        elif Path(path).is_dir():
            for folder, folders, names in os.walk(path):
                folders[:] = sorted(f for f in folders if f not in _SKIPPED_FOLDERS)
                wanted = (os.path.join(folder, name) for name in sorted(names) if looks_readable(Path(name)))
                yield from ((os.path.normpath(name), False) for name in wanted if is_regular(name))
        elif Path(path).exists():
            yield path, True
        else:
            raise UserError(f"no such file or folder: {path}", fix=did_you_mean(path, _neighbours(path)))


def _neighbours(path: str) -> list[str]:
    folder = Path(path).parent
    return (
        [str(folder / name.name) if str(folder) != "." else name.name for name in folder.iterdir()]
        if folder.is_dir()
        else []
    )


def _check_one(
    path: str, named: bool, rules: list[Rule], selection: Selection, facts: dict[str, Any], result: Result
) -> None:
    shown = "<stdin>" if path == "-" else path
    try:
        text = read_input(path)
        file = read_file(shown, text)
    except SpecError as error:
        mistakes = [Finding(INVALID_SPEC, "error", m.file, m.span, m.what, m.fix) for m in error.mistakes]
        _add(mistakes, text, shown, selection, result)
        result.files += 1
        return
    except SourceError as error:
        # A directory may hold YAML of any kind: what cannot be parsed there is reported only if the user named it.
        if named:
            _add([Finding(UNREADABLE, "error", shown, error.span, error.what, error.fix)], "", shown, selection, result)
            result.files += 1
        else:
            result.unread.append(shown)
        return
    if file is None:
        if named:
            raise UserError(
                "not a kind of file that `check` knows" if text.strip() else "the file is empty", where=shown,
                fix="it reads Trainwright specs, ParallelCluster, eksctl, CloudFormation, HyperPod, Kubernetes, "
                "sbatch and shell files, Dockerfiles",
            )  # fmt: skip
        return
    _run_rules(file, rules, selection, facts, result)


def check_file(file: File) -> Result:
    """The offline rules over one file that is read already, for verbs that check a spec before they use it."""
    result = Result()
    _run_rules(file, [rule for rule in all_rules() if rule.needs == "offline"], Selection(), {}, result)
    result.findings.sort(key=lambda f: (f.file, f.span.line, f.span.column, f.code))
    return result


def _run_rules(file: File, rules: list[Rule], selection: Selection, facts: dict[str, Any], result: Result) -> None:
    result.files += 1
    findings = [f for rule in rules for f in run_rule(rule, file, facts.get(rule.needs))]
    _add(findings, file.text, file.path, selection, result)


def run_rule(rule: Rule, file: File, facts: Any = None) -> list[Finding]:
    """One rule over one file; its failure is a finding."""
    try:
        return [
            Finding(
                rule.code, p.level or rule.level, p.span.source or file.path, p.span, p.message, p.fix, p.edit, p.why
            )
            for p in rule.run(file, facts)
        ]
    except Exception as error:  # a rule may be a user's; whatever it raises is reported and the others run
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        message = f"rule {rule.code} failed on this file: {type(error).__name__}: {error} ({where})"
        return [
            Finding(
                CRASHED, "warning", file.path, file.span, message, "report it, and go on with --ignore " + rule.code
            )
        ]


def _add(findings: list[Finding], text: str, path: str, selection: Selection, result: Result) -> None:
    silenced = ignored_lines(text) if "trainwright:" in text else {}
    kept = [f for f in findings if selection.wants(f.code)]
    loud = [f for f in kept if f.code.startswith(IMPOSSIBLE) or not _is_silenced(f, path, silenced)]
    result.ignored += len(kept) - len(loud)
    result.findings += loud
    if loud:
        result.texts[path] = text


def _is_silenced(finding: Finding, path: str, silenced: dict[int, set[str]]) -> bool:
    return finding.file == path and finding.code in silenced.get(finding.span.line, ())


def ignored_lines(text: str) -> dict[int, set[str]]:
    """Line -> codes ignored there. A comment on a line of its own applies to the next line."""
    silenced: dict[int, set[str]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        match = _IGNORE.search(line)
        if match:
            alone = line[: match.start()].strip() == ""
            silenced.setdefault(number + 1 if alone else number, set()).update(re.findall(r"[A-Z0-9]+", match[1]))
    return silenced
