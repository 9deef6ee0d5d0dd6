"""The `local` platform: a spec's queues as a real Slurm on this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.errors import UserError
from trainwright.platforms.base import ClusterStatus
from trainwright.platforms.local import daemons, life, state
from trainwright.platforms.local.cluster import LocalCluster, LocalQueue
from trainwright.schedulers.shell import Shell
from trainwright.schedulers.slurm import SlurmScheduler

if TYPE_CHECKING:  # `jobs` and `logs` come through here, and need no spec
    from trainwright.spec.model import Queue, Spec


class LocalPlatform:
    """`up`, `down`, `status`, `connect` and the scheduler of a cluster on this machine."""

    def up(self, spec: Spec, say: Callable[[str], None]) -> ClusterStatus:
        life.up(cluster_from_spec(spec), say=say)
        return life.status(spec.name)

    def down(self, name: str, spec: Spec | None, say: Callable[[str], None]) -> None:
        stopped = life.down(name)
        say(f"stopped {len(stopped)} parts of {name}; nothing is left")

    def status(self, name: str, spec: Spec | None) -> ClusterStatus:
        return life.status(name)

    def connect(self, name: str, spec: Spec | None) -> tuple[list[str], dict[str, str]]:
        record = state.require(name)
        return [*daemons.enter(record), "bash"], {"SLURM_CONF": str(record.conf)}

    def scheduler(self, name: str, spec: Spec | None) -> SlurmScheduler:
        record = state.require(name)
        shell = Shell(prefix=daemons.enter(record), env=(("SLURM_CONF", str(record.conf)),))
        return SlurmScheduler(shell, cluster=name, interface="eth0" if record.namespaces else "lo")

    def preview(self, spec: Spec) -> SlurmScheduler:
        if spec.name in state.names():
            return self.scheduler(spec.name, spec)
        return SlurmScheduler(Shell(), cluster=spec.name, interface="eth0" if daemons.namespaces_allowed() else "lo")


def cluster_from_spec(spec: Spec) -> LocalCluster:
    """What a spec asks for, as far as one machine can give it; what it cannot is refused, not dropped."""
    refused = [name for name in ("zone", "region") if getattr(spec, name)]
    refused += [f"storage {item.mount}" for item in spec.storage if item.folder is None]
    if refused:
        raise UserError(
            f"platform local cannot honour {', '.join(refused)}",
            fix="take it out, or use storage: [{mount: /data, folder: /a/folder/of/this/machine}]",
        )
    mounts = tuple((str(Path(item.folder or "").expanduser().absolute()), item.mount) for item in spec.storage)
    settings = tuple((key, str(value)) for key, value in spec.slurm.items())
    queues = tuple(queue_from_spec(queue) for queue in spec.queues)
    return LocalCluster(spec.name, queues, spec.accounting is not None, mounts, settings)


def queue_from_spec(queue: Queue) -> LocalQueue:
    if queue.instance:
        raise UserError(
            f"queue {queue.name!r} asks for {queue.instance}, and platform local has no instance types",
            fix="write nodes, cpus and gpus instead",
        )
    most = queue.nodes or (queue.count.max if queue.count else 1)
    least = queue.count.min if queue.count else None
    return LocalQueue(queue.name, max(most, 1), queue.cpus or 1, queue.gpus or 0, least=least)
