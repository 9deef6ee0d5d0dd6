"""What was read from a running cluster: the spec, and the facts that a spec has no field for."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Discovery:
    """A cluster as its scheduler shows it. `facts` are for people and scripts, `notes` say what to look at."""

    source: str  # the commands' host, or the context
    spec: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def spec_text(discovery: Discovery) -> str:
    """The spec as YAML, with the notes on top."""
    import yaml

    lines = [f"# Read from {discovery.source} by `trainwright discover`.", *(f"# {note}" for note in discovery.notes)]
    body: str = yaml.safe_dump(discovery.spec, sort_keys=False, width=110)
    return "\n".join(lines) + "\n" + body


def as_data(discovery: Discovery) -> dict[str, Any]:
    return {"source": discovery.source, "spec": discovery.spec, "facts": discovery.facts, "notes": discovery.notes}


def spec_name(text: str, otherwise: str) -> str:
    """A name as a spec takes one."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:128] or otherwise
