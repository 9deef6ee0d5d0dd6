"""Which cluster on AWS a user means by a spec file, or by a name and a region."""

from __future__ import annotations

from pathlib import Path


def on_aws(target: str, region: str | None) -> tuple[str, str] | None:
    """(region, name) of a ParallelCluster; None where the target is something else."""
    if region is not None and not Path(target).is_file():
        return region, target
    if not Path(target).is_file():
        return None
    from trainwright.spec.defaults import resolve
    from trainwright.spec.load import load

    spec, _ = resolve(load(target).spec)
    return (spec.region or "", spec.name) if spec.platform == "parallelcluster" else None
