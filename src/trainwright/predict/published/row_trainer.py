"""Which trainer profile a published row describes: by the framework it names, and by what it states about compilation,
overlap and sequence parallelism."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from functools import cache
from pathlib import Path

from trainwright.predict.profiles import Profile, profile

FRAMEWORKS_FILE = Path(__file__).with_name("frameworks.toml")


@cache
def _frameworks() -> dict[str, str]:
    return tomllib.loads(FRAMEWORKS_FILE.read_text(encoding="utf-8"))


def profile_for(text: str) -> Profile | None:
    """The profile of the framework named in the text (the longest name wins), or None where none is known."""
    names = [name for name in _frameworks() if name in text.lower()]
    return profile(_frameworks()[max(names, key=len)]) if names else None


def profile_of(row: dict[str, str]) -> Profile:
    """The profile of the row's framework, adjusted by what the row states."""
    source = f"{row.get('source_repo_or_doc', '')} {row.get('path_or_url', '')}"
    model, notes = row.get("model", ""), row.get("notes", "").lower()
    trainer = profile_for(model) or profile_for(row.get("path_or_url", "")) or profile_for(source) or profile("torch")
    if "hf trainer" in notes or "hf model" in notes:
        trainer = profile("torch")
    if trainer.name == "megatron" and row.get("precision", "").lower() == "fp16":
        trainer = profile("megatron-classic")  # Megatron's fp16 tables predate fused attention
    compiled = row.get("compile", "").lower()
    if compiled == "yes" and trainer.fusion in ("eager", "native"):
        trainer = replace(trainer, fusion="compiled")
    if compiled == "no" and trainer.fusion == "compiled":
        trainer = replace(trainer, fusion="eager")
    if "asynctp" in notes or "async tp" in notes:
        trainer = replace(trainer, tp_overlap="async")
    if "no seq-parallel" in notes:
        return replace(trainer, sequence=False)
    if "seq-parallel" in notes or "sequence parallel" in notes:
        return replace(trainer, sequence=True)
    return trainer
