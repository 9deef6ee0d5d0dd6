"""What `check` found on the way to another verb: errors stop the verb, warnings are printed and it goes on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from trainwright.check.finding import Finding
    from trainwright.check.gate import CheckFailed


def show_findings(findings: Iterable[Finding]) -> None:
    """One line per warning, on stderr; `trainwright check` says more about each."""
    for finding in findings:
        if finding.level == "warning":
            click.echo(f"warning {finding.code} {finding.span.at(finding.file)}: {finding.message}", err=True)


def show_refusal(error: CheckFailed) -> None:
    """Every finding, as `trainwright check` prints them."""
    import sys

    from trainwright.check.own_codes import OWN_CODES
    from trainwright.check.registry import all_rules
    from trainwright.check.text import render

    rules = {rule.code: rule for rule in (*all_rules(), *OWN_CODES)}
    click.echo(render(error.result, rules, colour=sys.stderr.isatty()), err=True)
