"""The `local` platform: a spec's queues as a real Slurm on this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.platforms.base import ClusterStatus
from trainwright.platforms.local import daemons, life, repair, state
from trainwright.platforms.local.cluster import LocalCluster, LocalQueue
from trainwright.schedulers.shell import Gone, Shell, Unreachable
from trainwright.schedulers.slurm import SlurmScheduler

if TYPE_CHECKING:  # `jobs` and `logs` come through here, and need no spec
    from trainwright.spec.job import Job
    from trainwright.spec.model import Queue, Spec


@dataclass(frozen=True)
class HeadShell(Shell):
    """Commands on the head of one start of a local cluster. The head is looked up for each command, so that a head
    restarted by `up` is found; where the cluster is down or was started anew, nothing runs at all."""

    cluster: str = ""
    start: str = ""

    def argv(self, command: Sequence[str]) -> list[str]:
        record = self._record()
        # Slurm's commands try for many seconds to reach a controller that is not there.
        if "slurmctld" not in repair.running_roles(record):
            raise Unreachable(
                f"cannot reach {self.cluster}: slurmctld is not running", fix="`trainwright up SPEC` restarts it"
            )
        return [*daemons.enter(record), *command]

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "SLURM_CONF": str(self._record().conf)}

    def _record(self) -> state.Record:
        record = state.read(self.cluster)
        if record is None or record.identity != self.start:
            why = "is no longer up" if record is None else "was started anew since"
            raise Gone(
                f"cannot reach {self.cluster}: the cluster {why}",
                fix="`trainwright resume RUN` continues a run on a cluster that is up",
            )
        return record


class LocalPlatform:
    """`up`, `down`, `status`, `connect` and the scheduler of a cluster on this machine."""

    name = "local"

    def up(self, spec: Spec, say: Callable[[str], None], force: bool = False) -> ClusterStatus:
        life.up(cluster_from_spec(spec), say=say, force=force)
        return life.status(spec.name)

    def down(self, name: str, spec: Spec | None, say: Callable[[str], None], force: bool = False) -> None:
        stopped = life.down(name, force)
        say(f"stopped {len(stopped)} parts of {name}; nothing is left")

    def status(self, name: str, spec: Spec | None) -> ClusterStatus:
        return life.status(name)

    def connect(self, name: str, spec: Spec | None) -> tuple[list[str], dict[str, str]]:
        record = state.require(name)
        return [*daemons.enter(record), "bash"], {"SLURM_CONF": str(record.conf)}

    def scheduler(self, spec: Spec, job: Job, host: str = "") -> SlurmScheduler:
        if host:
            return SlurmScheduler(Shell(host=host), spec.name, python="python3")
        return scheduler_on(state.require(spec.name))

    def preview(self, spec: Spec, job: Job, host: str = "") -> SlurmScheduler:
        if host or spec.name in state.names():
            return self.scheduler(spec, job, host)
        return SlurmScheduler(Shell(), cluster=spec.name, interface="eth0" if daemons.namespaces_allowed() else "lo")

    def scheduler_again(self, cluster: str, host: str, at: Mapping[str, str]) -> SlurmScheduler:
        if host:
            return SlurmScheduler(Shell(host=host), cluster)
        start = at.get("start", "")
        return SlurmScheduler(HeadShell(cluster=cluster, start=start), cluster, start=start)


def local_schedulers() -> list[SlurmScheduler]:
    """The schedulers of all local clusters of this machine, also of those that do not answer."""
    return [scheduler_on(record) for name in state.names() if (record := state.read(name))]


def scheduler_on(record: state.Record) -> SlurmScheduler:
    """The scheduler of a local cluster that is up."""
    name, start = record.cluster.name, record.identity
    interface = "eth0" if record.namespaces else "lo"
    return SlurmScheduler(HeadShell(cluster=name, start=start), cluster=name, interface=interface, start=start)


def cluster_from_spec(spec: Spec) -> LocalCluster:
    """A checked spec as a cluster of this machine."""
    assert (spec.zone, spec.region) == (None, None), "check: SPC001"
    assert all(item.folder is not None for item in spec.storage), "check: SPC001"
    mounts = tuple((str(Path(item.folder or "").expanduser().absolute()), item.mount) for item in spec.storage)
    settings = tuple((key, str(value)) for key, value in spec.slurm.items())
    queues = tuple(queue_from_spec(queue) for queue in spec.queues)
    monitoring = spec.monitoring.model_dump(mode="json") if spec.monitoring else None
    return LocalCluster(spec.name, queues, spec.accounting is not None, mounts, settings, monitoring)


def queue_from_spec(queue: Queue) -> LocalQueue:
    assert queue.instance is None, "check: SPC001"
    most = queue.nodes or (queue.count.max if queue.count else 1)
    least = queue.count.min if queue.count else None
    return LocalQueue(queue.name, max(most, 1), queue.cpus or 1, queue.gpus or 0, least=least)
