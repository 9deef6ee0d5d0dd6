"""Findings for machines: JSON, SARIF 2.1.0 for code scanning, GitHub's workflow commands, GitLab's code quality."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote

from trainwright import __version__
from trainwright.check.engine import Result
from trainwright.check.examples import example_of
from trainwright.check.finding import Finding
from trainwright.check.known import fingerprint
from trainwright.check.registry import Rule
from trainwright.check.text import visible
from trainwright.spec.source import Span

_SARIF_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
_GITHUB_LEVELS = {"error": "error", "warning": "warning", "info": "notice"}


def as_json(result: Result, docs_url: str = "") -> str:
    """A list of rows, one per finding; with an address of the docs, `url` is absolute."""
    rows = [finding.row() | ({"url": _page(finding.code, docs_url)} if docs_url else {}) for finding in result.findings]
    return json.dumps(rows, indent=2, ensure_ascii=False)


def _page(code: str, docs_url: str) -> str:
    return f"{docs_url.rstrip('/')}/rules/{code}/"


def as_github(result: Result) -> str:
    """Workflow commands, which GitHub shows beside the lines of a pull request."""
    return "\n".join(_github(finding) for finding in result.findings)


def _github(finding: Finding) -> str:
    span = finding.span
    place = {"file": finding.file, "line": span.line, "col": span.column, "endLine": span.end_line}
    if span.end_line == span.line:
        place["endColumn"] = span.end_column
    place["title"] = finding.code
    properties = ",".join(f"{key}={_escape(str(value), property_=True)}" for key, value in place.items())
    message = "\n".join(_said(finding, "why: ", "fix: "))
    return f"::{_GITHUB_LEVELS[finding.level]} {properties}::{_escape(message)}"


def _said(finding: Finding, before_why: str, before_fix: str) -> list[str]:
    """Message, reason and fix, as far as the finding has them."""
    reason = [before_why + finding.why.rstrip(".")] if finding.why else []
    return [finding.message, *reason, *([before_fix + finding.fix] if finding.fix else [])]


def _escape(text: str, property_: bool = False) -> str:
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    text = visible(text)  # the log of a workflow obeys colours
    return text.replace(":", "%3A").replace(",", "%2C") if property_ else text


def as_gitlab(result: Result) -> str:
    """GitLab's code quality report."""
    severities = {"error": "major", "warning": "minor", "info": "info"}
    seen: Counter[str] = Counter()
    rows = []
    for finding in result.findings:
        mark = fingerprint(finding, result.text_of(finding.file))
        seen[mark] += 1
        rows.append(
            {
                "description": finding.message + (f" ({finding.fix})" if finding.fix else ""),
                "check_name": finding.code,
                "fingerprint": mark if seen[mark] == 1 else f"{mark}-{seen[mark]}",
                "severity": severities[finding.level],
                "location": {"path": relative(finding.file), "lines": {"begin": finding.span.line}},
            }
        )
    return json.dumps(rows, indent=2, ensure_ascii=False)


def relative(path: str) -> str:
    """A path from the working directory, with forward slashes."""
    return Path(os.path.relpath(path)).as_posix() if path != "<stdin>" else path


def statistics(result: Result, rules: dict[str, Rule]) -> list[dict[str, str | int]]:
    """Findings counted by rule, every place of a cause, the most frequent first."""
    counts: Counter[tuple[str, str]] = Counter()
    fixable: Counter[str] = Counter()
    for finding in result.findings:
        counts[finding.code, finding.level] += 1 + len(finding.also)
        fixable[finding.code] += finding.edit is not None
    return [
        {
            "code": code,
            "level": level,
            "count": count,
            "fixable": fixable[code],
            "title": rules[code].title if code in rules else "",
        }
        for (code, level), count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    ]


def as_sarif(result: Result, rules: dict[str, Rule], docs_url: str = "") -> str:
    """A SARIF log with the rules that reported something and the findings, fixes included."""
    spoke = sorted({finding.code for finding in result.findings})
    driver = {
        "name": "trainwright",
        "version": __version__,
        **({"informationUri": docs_url} if docs_url else {}),
        "rules": [_sarif_rule(code, rules.get(code), docs_url) for code in spoke],
    }
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "columnKind": "unicodeCodePoints",
                "results": [_sarif_result(finding, spoke.index(finding.code)) for finding in result.findings],
            }
        ],
    }
    return json.dumps(log, indent=2, ensure_ascii=False)


def _sarif_rule(code: str, rule: Rule | None, docs_url: str) -> dict[str, Any]:
    described: dict[str, Any] = {"id": code}
    if docs_url:
        described["helpUri"] = _page(code, docs_url)
    if rule is not None:
        described["help"] = _sarif_help(rule)
        described["shortDescription"] = {"text": rule.title}
        described["fullDescription"] = {"text": rule.document}
        described["defaultConfiguration"] = {"level": _SARIF_LEVELS[rule.level]}
    return described


def _sarif_help(rule: Rule) -> dict[str, str]:
    """The rule's page with its example: complete without a link."""
    example = example_of(rule.code)
    fenced = [f"```\n{block}\n```" if number % 2 else block for number, block in enumerate(example)]
    return {
        "text": "\n\n".join([rule.document, *example]),
        "markdown": "\n\n".join([f"# {rule.code}", rule.document, *fenced]),
    }


def _sarif_region(span: Span) -> dict[str, int]:
    return {
        "startLine": span.line,
        "startColumn": span.column,
        "endLine": span.end_line,
        "endColumn": span.end_column,
    }


def _sarif_result(finding: Finding, rule_index: int) -> dict[str, Any]:
    artifact = {"uri": quote(relative(finding.file))}
    described: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": rule_index,
        "level": _SARIF_LEVELS[finding.level],
        "message": {"text": ". ".join(_said(finding, "Why: ", "Fix: "))},
        "locations": [{"physicalLocation": {"artifactLocation": artifact, "region": _sarif_region(finding.span)}}],
    }
    if finding.edit is not None:
        replacement = {
            "deletedRegion": _sarif_region(finding.edit.span),
            "insertedContent": {"text": finding.edit.text},
        }
        described["fixes"] = [
            {
                "description": {"text": finding.fix},
                "artifactChanges": [{"artifactLocation": artifact, "replacements": [replacement]}],
            }
        ]
    return described
