"""Findings as tests compare them."""

from __future__ import annotations

from trainwright.check.finding import Finding


def shown(findings: list[Finding]) -> list[str]:
    """Level, code and line of each."""
    return [f"{f.level} {f.code} {f.span.line}" for f in findings]
