"""Which job of a spec a user means, and which files it names."""

from __future__ import annotations

import os
from pathlib import Path

from trainwright.errors import UserError, did_you_mean
from trainwright.spec.load import LoadedSpec


def job_index(loaded: LoadedSpec, name: str | None) -> int:
    """The place of a job in the spec; with one job in the spec it need not be named."""
    names = [job.name for job in loaded.spec.jobs]
    if not names:
        raise UserError(
            f"spec {loaded.spec.name!r} has no job", where=loaded.path,
            fix="add one under `jobs:`; `submit` also takes --recipe or --script, `predict` --model and --instance",
        )  # fmt: skip
    if name is None and len(names) == 1:
        return 0
    if name in names:
        return names.index(name)
    known = f"name one of {', '.join(names)}"
    if name is None:
        raise UserError(f"spec {loaded.spec.name!r} has {len(names)} jobs", where=loaded.path, fix=known)
    raise UserError(
        f"spec {loaded.spec.name!r} has no job {name!r}", where=loaded.path, fix=did_you_mean(name, names) or known
    )


def base_of(loaded: LoadedSpec, index: int, *path: str | int) -> Path:
    """What a relative path of a job starts from: this folder for a flag, else the folder of its file."""
    node = loaded.node.get("jobs", index, *path)
    if node is not None and node.span.source:
        return Path.cwd()
    return Path((node.span.file if node is not None else "") or loaded.path).parent.absolute()


def recipe_path(loaded: LoadedSpec, index: int) -> str:
    """The file of a job's recipe, where it is the user's own; empty where the job names one of ours, or none."""
    name = loaded.spec.jobs[index].recipe or ""
    if not name.endswith((".yaml", ".yml")) and "/" not in name:
        return ""
    return os.path.relpath(base_of(loaded, index, "recipe") / name)  # as messages show it
