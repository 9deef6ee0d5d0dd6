"""Which job of a spec a user means."""

from __future__ import annotations

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
