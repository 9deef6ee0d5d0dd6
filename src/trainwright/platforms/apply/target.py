"""Which cluster on AWS a user means by a spec file, or by a name and a region."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainwright.aws.cloudformation import PLATFORM_TAG, StackApi
from trainwright.aws.session import Account
from trainwright.platforms.apply.base import AwsPlatform, aws_platform
from trainwright.platforms.tags import DEFAULT_PLATFORM


@dataclass(frozen=True)
class Target:
    """One cluster on AWS."""

    platform: AwsPlatform
    region: str
    name: str


def on_aws(target: str, region: str | None) -> Target | None:
    """The cluster; None where the target is something else."""
    if not Path(target).is_file():
        platform = aws_platform(platform_of(target, region)) if region is not None else None
        return Target(platform, str(region), target) if platform is not None else None
    from trainwright.spec.defaults import resolve
    from trainwright.spec.load import load

    spec, _ = resolve(load(target).spec)
    platform = aws_platform(spec.platform)
    return Target(platform, spec.region or "", spec.name) if platform is not None else None


def platform_of(cluster: str, region: str) -> str:
    """The platform of a cluster that is known by its name, from the tags of its stacks."""
    tags = [stack.tags for stack in StackApi(Account(region)).of_cluster(cluster)]
    return next((tag[PLATFORM_TAG] for tag in tags if PLATFORM_TAG in tag), DEFAULT_PLATFORM)
