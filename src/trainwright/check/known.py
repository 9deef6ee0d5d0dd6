"""Which findings are new: not in a baseline, or made by what changed since a revision."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import subprocess
from collections import Counter
from pathlib import Path

from trainwright.check.engine import Result, RulePlan, check_text
from trainwright.check.finding import Finding
from trainwright.errors import UserError
from trainwright.files import write_whole

# Whatever the user's own git configuration says about prefixes, directories and converters.
_DIFF_FORM = (
    "--unified=0", "--no-color", "--no-ext-diff", "--no-textconv", "--no-relative", "--src-prefix=a/",
    "--dst-prefix=b/",
)  # fmt: skip
_HUNK = re.compile(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@")


_VERSION = 2  # from this version on, a baseline names files from its own directory


def fingerprint(finding: Finding, text: str, folder: Path | None = None) -> str:
    """What stays the same when lines move: the file, as seen from a directory (by default the working one), the rule
    and the line's own text."""
    lines = text.splitlines()
    line = lines[finding.span.line - 1].strip() if 0 < finding.span.line <= len(lines) else ""
    name = finding.file
    if name != "<stdin>":
        name = Path(os.path.relpath(name) if folder is None else _seen_from(folder, name)).as_posix()
    return hashlib.blake2b(f"{name}\0{finding.code}\0{line}".encode(), digest_size=10).hexdigest()


def _seen_from(folder: Path, name: str) -> str:
    return os.path.relpath(os.path.realpath(name), os.path.realpath(folder))


def write_baseline(path: Path, result: Result) -> None:
    """Record every finding, so that later calls report only others."""
    counts = Counter(fingerprint(f, result.text_of(f.file), path.parent) for f in result.findings)
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        write_whole(path, json.dumps({"version": _VERSION, "findings": dict(sorted(counts.items()))}, indent=1) + "\n")
    except OSError as error:
        raise UserError(
            f"cannot write the baseline: {error.strerror or error}",
            where=str(path),
            fix="name a file in a folder that exists",
        ) from error


def only_new(path: Path, result: Result) -> int:
    """Drop the findings of the baseline; returns how many."""
    known, version = _read_baseline(path)
    folder = path.parent if version >= _VERSION else None
    new = []
    for finding in result.findings:
        mark = fingerprint(finding, result.text_of(finding.file), folder)
        if known[mark] > 0:
            known[mark] -= 1
        else:
            new.append(finding)
    dropped = len(result.findings) - len(new)
    result.findings = new
    return dropped


def _read_baseline(path: Path) -> tuple[Counter[str], int]:
    """Fingerprints with their numbers, and the version."""
    fix = f"write it with --write-baseline {path}"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read the baseline: {error}", where=str(path), fix=fix) from error
    findings, version = (content.get(key) if isinstance(content, dict) else None for key in ("findings", "version"))
    if not isinstance(findings, dict) or not all(type(count) is int for count in findings.values()):
        raise UserError("not a baseline: `findings` must map fingerprints to numbers", where=str(path), fix=fix)
    if type(version) is not int:
        raise UserError("not a baseline: it has no `version`", where=str(path), fix=fix)
    return Counter(findings), version


def only_changed(revision: str, result: Result, plan: RulePlan) -> int:
    """Drop the findings that a change since a revision did not make; returns how many. Those on changed lines are of
    the change, and so are those on other lines of a changed file that its text at the revision did not have."""
    changed = changed_lines(revision)
    earlier: dict[str, Counter[str]] = {}
    kept = []
    for finding in result.findings:
        lines = changed.get(os.path.realpath(finding.file))
        if lines is None:
            continue
        if lines and not any(n in lines for n in _lines_of(finding)):
            if finding.file not in earlier:
                earlier[finding.file] = Counter(_fingerprints_at(revision, finding.file, plan))
            known, mark = earlier[finding.file], fingerprint(finding, result.text_of(finding.file))
            known[mark] -= 1
            if known[mark] >= 0:
                continue
        kept.append(finding)
    dropped = len(result.findings) - len(kept)
    result.findings = kept
    return dropped


def _fingerprints_at(revision: str, path: str, plan: RulePlan) -> list[str]:
    """The findings of a file's text at a revision, beside the files of today."""
    first, *rest = re.split(r"(\.{2,3})", revision, maxsplit=1)
    base = first or "HEAD"
    if rest[:1] == ["..."]:
        base = _git("merge-base", base, rest[1] or "HEAD").strip()
    folder = os.path.dirname(os.path.realpath(path))
    try:
        text = _git("-C", folder, "show", f"{base}:./{os.path.basename(os.path.realpath(path))}")
    except UserError:  # it was elsewhere, or not there
        return []
    before = check_text(path, lambda: text, False, plan)
    return [fingerprint(finding, text) for finding in before.findings]


def _lines_of(finding: Finding) -> range:
    return range(finding.span.line, max(finding.span.line, finding.span.end_line) + 1)


def changed_lines(revision: str) -> dict[str, set[int]]:
    """Changed files -> changed lines; an empty set: the whole file is new."""
    top = _git("rev-parse", "--show-toplevel").strip()
    _verify_revision(revision)
    changed: dict[str, set[int]] = {}
    current: set[int] = set()
    for line in _git("diff", *_DIFF_FORM, revision, "--").split("\n"):
        if line.startswith("+++ "):
            current = changed.setdefault(os.path.realpath(os.path.join(top, line[6:].rstrip("\t"))), set())
        match = _HUNK.match(line)
        if match is not None:
            start, count = int(match[1]), int(match[2] if match[2] is not None else 1)
            current.update(range(start, start + count) or (-1,))  # a pure deletion changes no line that is left
    for name in _git("ls-files", "--others", "--exclude-standard", "--full-name", ":/").splitlines():
        changed[os.path.realpath(os.path.join(top, name))] = set()
    return changed


def _verify_revision(revision: str) -> None:
    """Git would obey a word that begins with `-` as an option, which may write files. `a..b` and `a...b` name two
    commits; one that is left out is HEAD."""
    ends = re.split(r"\.{2,3}", revision, maxsplit=1)
    if any(end.startswith("-") for end in ends):
        raise UserError(
            f"--diff: {revision!r} is not a revision", fix="name a commit, branch or tag: --diff origin/main"
        )
    for end in ends:
        try:
            _git("rev-parse", "--verify", f"{end or 'HEAD'}^{{commit}}")
        except UserError as error:
            raise UserError(f"--diff: git knows no commit {end or 'HEAD'!r}", fix=error.fix) from error


def _git(*words: str) -> str:
    command = ["git", "-c", "core.quotePath=false", *words]
    try:  # lines of any encoding: only the names and numbers are read
        done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="surrogateescape", check=True)
    except FileNotFoundError as error:
        raise UserError("--diff needs git", fix="install git") from error
    except subprocess.CalledProcessError as error:
        reason = error.stderr.strip().splitlines()
        raise UserError(
            f"git: {reason[0] if reason else 'failed'}", fix="name a revision of this repository"
        ) from error
    return done.stdout
