"""The rule files of Prometheus, shipped as they are: a person can copy them to a Prometheus of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
RULE_FILES = (DATA / "recording.yaml", DATA / "alerts.yaml")


def rule_files() -> dict[str, str]:
    """File name -> text."""
    return {path.name: path.read_text(encoding="utf-8") for path in RULE_FILES}


def rules() -> list[dict[str, Any]]:
    """Every rule of both files."""
    import yaml

    loaded = [yaml.safe_load(text) for text in rule_files().values()]
    return [rule for file in loaded for group in file["groups"] for rule in group["rules"]]


def alerts() -> list[dict[str, Any]]:
    return [rule for rule in rules() if "alert" in rule]
