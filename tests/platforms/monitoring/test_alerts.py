"""Alerts: promtool accepts the rules and unit-tests each of them; each has a page of the runbook with what to do."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from alert_cases import CASES, Series

from trainwright.platforms.monitoring.rules import RULE_FILES, alerts

ROOT = Path(__file__).parents[3]
needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")


@needs_promtool
def test_promtool_accepts_the_rules() -> None:
    done = subprocess.run(["promtool", "check", "rules", *RULE_FILES], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case() -> None:
    assert set(CASES) == {alert["alert"] for alert in alerts()}


@needs_promtool
def test_every_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    tests = []
    for name, cases in CASES.items():
        for case in cases:
            tests.append(unit_test(name, case.fires, case.after, case.count))
            tests.append(unit_test(name, case.quiet, case.after, 0))
    path = tmp_path / "test.yaml"
    rules = {"rule_files": [str(path) for path in RULE_FILES], "evaluation_interval": "2m", "tests": tests}
    path.write_text(yaml.safe_dump(rules))
    done = subprocess.run(["promtool", "test", "rules", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(tests) >= 2 * len(CASES)


def unit_test(alert: str, series: Series, after: str, count: int) -> dict[str, object]:
    return {
        "name": f"{alert} {'fires' if count else 'is quiet'}",
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{alert}", alertstate="firing"}})',
                "eval_time": after,
                "exp_samples": [{"labels": "{}", "value": count}] if count else [],
            }
        ],
    }


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_every_alert_has_a_page_that_says_what_to_do(alert: dict[str, dict[str, str]]) -> None:
    page = ROOT / "docs/runbook" / f"{alert['labels']['runbook']}.md"
    text = page.read_text()
    assert alert["alert"] in text
    assert re.search(r"^## What it means$", text, re.MULTILINE), page
    assert re.search(r"^## What to do$", text, re.MULTILINE), page
    assert "```" in text or re.search(r"`[a-z]+ ", text), f"{page} names no command"
    assert f"runbook/{page.name}" in (ROOT / "mkdocs.yml").read_text()
    assert page.name in (ROOT / "docs/runbook/index.md").read_text()
