"""Which trainer profile a published row describes: by the framework it names, and by what it states about compilation,
overlap and sequence parallelism."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from functools import cache
from pathlib import Path

from trainwright.predict.profiles import Profile, profile

PRODUCTS_TIMED = "2026-11-16"  # the first day of that in our own trainer
FRAMEWORKS_FILE = Path(__file__).with_name("frameworks.toml")


@cache
def _frameworks() -> dict[str, str]:
    return tomllib.loads(FRAMEWORKS_FILE.read_text(encoding="utf-8"))


def profile_for(text: str) -> Profile | None:
    """The profile of the framework named in the text (the longest name wins), or None where none is known."""
    names = [name for name in _frameworks() if name in text.lower()]
    return profile(_frameworks()[max(names, key=len)]) if names else None


def year_of(row: dict[str, str]) -> float:
    """When the row was measured, as 2024.9 for December 2024, from the name of its document or its container's release;
    0 where neither has a date."""
    path, notes = row.get("path_or_url", "").lower(), row.get("notes", "")
    release = re.search(r"container=(\d\d)\.(\d\d)", notes) or re.search(r"[@:]v(\d\d)\.(\d\d)", path)
    if release:
        return 2000 + int(release[1]) + (int(release[2]) - 1) / 12
    date = re.search(r"(?<![0-9a-f])(20[12]\d)[-_]?(0[1-9]|1[0-2])?(?![0-9a-f])", path)
    return int(date[1]) + (int(date[2] or 1) - 1) / 12 if date else 0.0


def release_of(trainer: Profile, row: dict[str, str]) -> Profile:
    """The trainer as it was when the row was measured: Megatron before FlashAttention (mid 2022; fp16 dates a
    table without a date); its CUDA graphs on Grace since late 2025, its fused kernels for experts and for attention
    with sinks since mid 2026; torchtitan before its loss was chunked (with 4-bit formats), and before it was compiled
    (2025); ours before it timed the algorithms of a product."""
    year, path = year_of(row), row.get("path_or_url", "").lower()
    old = 0 < year < 2022.5 or row.get("precision", "").lower() == "fp16"
    if old and trainer.name.startswith("megatron"):
        return profile("megatron-classic")
    if trainer.name == "megatron" and 0 < year < 2026.4:
        trainer = replace(trainer, fused_experts=False, fused_sinks=False)
    if trainer.name == "megatron" and year >= 2025.8 and re.search(r"gb[23]00", row.get("gpu", "").lower()):
        return replace(trainer, graphs=True)
    measured = re.search(r"\b20\d\d-\d\d-\d\d\b", row.get("notes", ""))
    if trainer.timed_products and measured and measured[0] < PRODUCTS_TIMED:
        return replace(trainer, timed_products=False)
    if trainer.loss != "chunked" or "fp4" in path or year >= 2026:
        return trainer
    return replace(trainer, loss="compiled" if year >= 2025 and row.get("compile", "").lower() == "yes" else "eager")


def profile_of(row: dict[str, str]) -> Profile:
    """The profile of the row's framework, adjusted by what the row states."""
    source = f"{row.get('source_repo_or_doc', '')} {row.get('path_or_url', '')}"
    model, notes = row.get("model", ""), row.get("notes", "").lower()
    trainer = profile_for(model) or profile_for(row.get("path_or_url", "")) or profile_for(source) or profile("torch")
    if "hf trainer" in notes or "hf model" in notes:
        trainer = profile("torch")
    trainer = release_of(trainer, row)
    if not trainer.released:
        trainer = replace(trainer, released=year_of(row))
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
