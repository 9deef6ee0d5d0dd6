"""The adopted spec as text: YAML with the open questions on top, and the notes for a terminal."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import yaml

from trainwright.adopt.result import Adoption, Note
from trainwright.yaml_numbers import looks_like_number


class _Exact(yaml.SafeDumper):
    """Quotes whatever some reader could take for a number: `1e-4` among the arguments stays as it was written."""


def _quoted(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="'" if looks_like_number(text) else None)


_Exact.add_representer(str, _quoted)


def spec_text(adoption: Adoption) -> str:
    """The spec, and above it what was assumed or is still to be filled in."""
    lines = [f"# Adopted by `trainwright adopt` from {adoption.file}."]
    if adoption.assumed:
        lines.append("# To look at:")
        lines += [f"#   {note.what}: {note.why}" for note in adoption.assumed]
    return "\n".join(lines) + "\n" + exact_yaml(adoption.spec)


def exact_yaml(content: dict[str, Any]) -> str:
    """YAML that every reader reads as it was meant."""
    text: str = yaml.dump(content, Dumper=_Exact, sort_keys=False, width=110, allow_unicode=True)
    return text


def notes_text(adoption: Adoption) -> str:
    parts = []
    for title, notes in (
        ("carried over", adoption.carried), ("assumed", adoption.assumed), ("dropped", adoption.dropped)
    ):  # fmt: skip
        parts.append(f"{title}: {len(notes)}")
        parts += [f"  {_short(note.what)}  ({note.where}): {note.why}" for note in _unique(notes)]
    return "\n".join(parts)


def as_data(adoption: Adoption) -> dict[str, Any]:
    return {
        "spec": adoption.spec,
        **{
            kind: [asdict(note) for note in _unique(getattr(adoption, kind))]
            for kind in ("carried", "assumed", "dropped")
        },
    }


def _unique(notes: list[Note]) -> list[Note]:
    return list(dict.fromkeys(notes))


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 72 else text[:69] + "..."
