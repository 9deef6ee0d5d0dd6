"""Which cluster on AWS a user means by a spec file, or by a name and a region."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainwright.platforms.apply.base import AwsPlatform, aws_platform


@dataclass(frozen=True)
class Target:
    """One cluster on AWS."""

    platform: AwsPlatform
    region: str
    name: str


def on_aws(target: str, region: str | None) -> Target | None:
    """The cluster; None where the target is something else."""
    if not Path(target).is_file():
        platform = aws_platform("parallelcluster")
        return Target(platform, region, target) if region is not None and platform is not None else None
    from trainwright.spec.defaults import resolve
    from trainwright.spec.load import load

    spec, _ = resolve(load(target).spec)
    platform = aws_platform(spec.platform)
    return Target(platform, spec.region or "", spec.name) if platform is not None else None
