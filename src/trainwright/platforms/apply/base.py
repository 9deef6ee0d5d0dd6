"""What a platform on AWS adds so that `up`, `status` and `down` can make, show and remove its clusters: three small
classes, each a subclass of the shared one of this package.

    Build         `steps`: the stacks of the plan, then what is no stack of it; each a `Step` (steps.py)
    Removal       `own_stacks` and `own_steps`: what goes before the shared stacks (network, storage)
    StatusReader  which machines are its nodes, and its queues

A `Step` has one method, `advance`: ask AWS where this thing stands, do the next thing, return True when it is over. It
keeps nothing between runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from trainwright.aws.session import Account
    from trainwright.platforms.apply.build import Build
    from trainwright.platforms.apply.remove import Removal
    from trainwright.platforms.apply.status import StatusReader
    from trainwright.platforms.plan.tree import ClusterPlan

Say = Callable[[str], None]


@runtime_checkable
class AwsPlatform(Protocol):
    """A platform that `up` makes on AWS. `say` takes lines for the user, such as the installation of a tool."""

    name: str

    def build(self, plan: ClusterPlan, account: Account, force: bool, say: Say) -> Build: ...

    def removal(self, cluster: str, account: Account, say: Say) -> Removal: ...

    def reader(self, cluster: str, account: Account) -> StatusReader: ...


def aws_platform(name: str) -> AwsPlatform | None:
    """The platform of that name, or None where it is none of AWS."""
    from trainwright.platforms.base import platform_named

    platform = platform_named(name)
    return platform if isinstance(platform, AwsPlatform) else None
