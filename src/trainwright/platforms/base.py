"""What every platform can do, so that `up`, `down`, `status` and `connect` need not know which one it is."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from trainwright.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from trainwright.schedulers.base import Scheduler
    from trainwright.spec.job import Job
    from trainwright.spec.model import Spec


@dataclass(frozen=True)
class NodeStatus:
    """One node as its scheduler sees it."""

    name: str
    queue: str
    state: str
    reason: str = ""
    address: str = ""


@dataclass(frozen=True)
class QueueStatus:
    """One queue: how many nodes it keeps and may have, and how many are in which state."""

    name: str
    least: int
    most: int
    cpus: int
    gpus: int
    states: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ClusterStatus:
    """A cluster at one moment."""

    name: str
    platform: str
    state: str
    scheduler: str
    queues: tuple[QueueStatus, ...] = ()
    nodes: tuple[NodeStatus, ...] = ()
    problems: tuple[str, ...] = ()  # what is broken, and how to repair it


class Platform(Protocol):
    """One way of making a cluster. `spec` may be missing where a name alone finds the cluster."""

    def up(self, spec: Spec, say: Callable[[str], None], force: bool = False) -> ClusterStatus:
        """Make or repair the cluster. What would end running jobs is refused unless `force`."""
        ...

    def down(self, name: str, spec: Spec | None, say: Callable[[str], None], force: bool = False) -> None:
        """Remove the cluster; with jobs on it only where `force`."""
        ...

    def status(self, name: str, spec: Spec | None) -> ClusterStatus: ...

    def connect(self, name: str, spec: Spec | None) -> tuple[list[str], dict[str, str]]:
        """The command that opens a shell on the cluster's head, and what its environment needs beside the user's."""
        ...

    def scheduler(self, spec: Spec, job: Job, host: str = "") -> Scheduler:
        """Where a job of the spec goes; `host` is a Slurm head node to reach over ssh."""
        ...

    def preview(self, spec: Spec, job: Job, host: str = "") -> Scheduler:
        """The scheduler as far as a dry run needs it: it renders, and the cluster need not be up."""
        ...

    def scheduler_again(self, cluster: str, host: str, at: Mapping[str, str]) -> Scheduler:
        """The scheduler of an earlier run, from what `run.json` keeps. Nothing is asked of the cluster yet."""
        ...


# platform -> where its code is; imported only when used. A new platform adds a line.
PLATFORMS: dict[str, str] = {
    "parallelcluster": "trainwright.platforms.parallelcluster.platform:ParallelClusterPlatform",
    "eks": "trainwright.platforms.eks.platform:EksPlatform",
    "batch": "trainwright.platforms.batch.platform:BatchPlatform",
    "hyperpod": "trainwright.platforms.hyperpod.platform:HyperPodPlatform",
    "hyperpod-eks": "trainwright.platforms.eks.platform:HyperPodEksPlatform",
    "local": "trainwright.platforms.local.platform:LocalPlatform",
    "slurm": "trainwright.platforms.existing.platform:SlurmPlatform",
    "kubernetes": "trainwright.platforms.existing.platform:KubernetesPlatform",
}


def platform_named(name: str) -> Platform:
    """The platform of that name."""
    if name not in PLATFORMS:
        raise UserError(f"there is no platform {name!r}", fix=did_you_mean(name, PLATFORMS) or ", ".join(PLATFORMS))
    module, _, attribute = PLATFORMS[name].partition(":")
    made: Any = getattr(importlib.import_module(module), attribute)()
    return cast("Platform", made)


def find(target: str, overrides: tuple[str, ...] = ()) -> tuple[Platform, str, Spec | None]:
    """What a user means by FILE or NAME: the platform, the cluster's name, and the spec where a file was named."""
    if Path(target).is_file():
        from trainwright.spec.load import load

        spec = load(target, overrides).spec
        return platform_named(spec.platform), spec.name, spec
    if overrides or target.endswith((".yaml", ".yml")):
        raise UserError(f"there is no file {target!r}", fix="name a spec file, such as trainwright.yaml")
    return platform_named("local"), target, None
