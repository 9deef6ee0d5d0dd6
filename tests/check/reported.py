"""Findings as tests compare them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from trainwright.check.finding import Finding
from trainwright.cli.check import command


def shown(findings: list[Finding]) -> list[str]:
    """Level, code and line of each."""
    return [f"{f.level} {f.code} {f.span.line}" for f in findings]


def loud(findings: list[Finding]) -> list[str]:
    """Those that count: not the notes."""
    return shown([f for f in findings if f.level != "info"])


def rows(folder: Path, *options: str) -> list[dict[str, Any]]:
    """What `check FOLDER` prints as JSON."""
    answer = CliRunner().invoke(command, [str(folder), "--format", "json", "--no-cache", *options])
    return json.loads(answer.stdout)  # type: ignore[no-any-return]
