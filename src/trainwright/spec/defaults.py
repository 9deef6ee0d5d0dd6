"""What a spec leaves out, filled in, each with the reason: `plan --explain` prints them.
Nothing is guessed in silence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from trainwright.catalog.capabilities import platforms
from trainwright.catalog.instances import find_instance
from trainwright.catalog.runtime import runs_on
from trainwright.spec.job import Job
from trainwright.spec.model import CountRange, Head, Lustre, OpenZfs, Queue, Software, Spec, Storage
from trainwright.spec.part import Part

P = TypeVar("P", bound=Part)

GIB = 2**30
TIB = 2**40


@dataclass(frozen=True, slots=True)
class Default:
    """One value that was filled in: where, what and why."""

    path: str
    value: str
    why: str


class _Filler:
    """Collects the defaults while a part of the spec is rebuilt with them."""

    def __init__(self) -> None:
        self.filled: list[Default] = []

    def fill(self, part: P, path: str, name: str, value: Any, why: str, show: Callable[[Any], str] = str) -> P:
        """The part with `name` set to `value` if the user left it out."""
        if getattr(part, name) is not None:
            return part
        self.filled.append(Default(f"{path}.{name}" if path else name, show(value), why))
        return part.model_copy(update={name: value})


def resolve(spec: Spec) -> tuple[Spec, tuple[Default, ...]]:
    """The spec with every default filled in, and the list of what was filled."""
    fill = _Filler()
    queues = tuple(_queue(spec, queue, f"queues.{queue.name}", fill) for queue in spec.queues)
    storage = tuple(_storage(item, f"storage.{item.mount}", fill) for item in spec.storage)
    platform = platforms()[spec.platform]
    has_head = platform.on_aws and ("head",) not in platform.cannot
    head = _head(spec, spec.head, fill) if has_head else spec.head
    software = _software(spec, fill) if platform.on_aws else spec.software
    jobs = tuple(_job(queues, job, f"jobs.{job.name}", fill) for job in spec.jobs)
    if platform.on_aws:
        spec = fill.fill(spec, "", "region", "us-east-1", "no region was named; prices and capacity differ by region")
    update = {"queues": queues, "storage": storage, "head": head, "software": software, "jobs": jobs}
    return spec.model_copy(update=update), tuple(fill.filled)


def placement_rule(queue: Queue) -> tuple[bool, str]:
    """Whether nodes should share a cluster placement group, by the rule of thumb, and why."""
    if queue.capacity.kind in ("reservation", "block", "group", "plan"):
        return (
            False,
            "reserved capacity is already placed by AWS; a placement group on top asks for capacity that is not there",
        )
    if queue.efa:
        return True, "nodes that talk over EFA should stand close together"
    return False, "without EFA, closeness buys little and makes capacity harder to get"


def _queue(spec: Spec, queue: Queue, path: str, fill: _Filler) -> Queue:
    if not platforms()[spec.platform].on_aws:
        queue = fill.fill(
            queue, path, "nodes", queue.count.max if queue.count else 1, "one node is the smallest cluster"
        )
        if spec.platform == "slurm" and queue.exclusive and queue.instance is None:
            return queue  # whole nodes: the job counts their CPUs when it starts
        return fill.fill(queue, path, "cpus", 1, "one CPU per node shares a laptop fairly")
    known = find_instance(queue.instance or "")
    queue = fill.fill(queue, path, "count", CountRange(min=0, max=1), "one node at most, none while idle", _show_count)
    has_efa = known is not None and known.efa_cards > 0
    why = f"{queue.instance} has {known.efa_cards} EFA cards" if known and has_efa else f"{queue.instance} has no EFA"
    queue = fill.fill(queue, path, "efa", has_efa, why)
    enabled, reason = placement_rule(queue)
    if ("queues", "*", "placement") in platforms()[spec.platform].cannot:
        enabled, reason = False, "the platform places nodes by itself"
    queue = fill.fill(queue, path, "placement", enabled, reason)
    if spec.platform == "eks":
        queue = fill.fill(queue, path, "provisioner", *node_provisioner(queue))
    heavy = known is not None and (known.is_gpu or known.is_neuron)
    size, reason = (
        (512, "images, drivers and containers of accelerator nodes need room")
        if heavy
        else (128, "enough for the system")
    )
    return fill.fill(queue, path, "root_volume", size * GIB, reason, _show_gib)


def node_provisioner(queue: Queue) -> tuple[str, str]:
    """What makes the nodes of a queue on EKS, and why."""
    if queue.provisioner is not None:
        return queue.provisioner, "written in the queue"
    if queue.count is not None and queue.count.min == 0 < queue.count.max:
        return "karpenter", "no node is up without a job, and nobody but Karpenter would start one with the job"
    return "managed", "the nodes are always up; EKS replaces one that breaks"


def _storage(item: Storage, path: str, fill: _Filler) -> Storage:
    if item.lustre is not None and item.lustre.id is None:
        return item.model_copy(update={"lustre": _lustre(item.lustre, f"{path}.lustre", fill)})
    if item.openzfs is not None and item.openzfs.id is None:
        zfs: OpenZfs = fill.fill(
            item.openzfs, f"{path}.openzfs", "capacity", 512 * GIB, "home folders of a team", _show_gib
        )
        zfs = fill.fill(zfs, f"{path}.openzfs", "throughput", 320, "MB/s; enough for home folders of a team")
        return item.model_copy(update={"openzfs": zfs})
    return item


def _lustre(lustre: Lustre, path: str, fill: _Filler) -> Lustre:
    lustre = fill.fill(lustre, path, "deployment", "persistent-2", "survives a server failure; the newest generation")
    scratch = (lustre.deployment or "").startswith("scratch")
    if not scratch:
        unit = 250 if lustre.deployment == "persistent-2" else 200
        lustre = fill.fill(lustre, path, "throughput", unit, f"MB/s per TiB; a fair middle for {lustre.deployment}")
    lustre = fill.fill(lustre, path, "capacity", 1200 * GIB, "the smallest Lustre file system", _show_gib)
    return fill.fill(lustre, path, "compression", True, "LZ4 costs little and saves space and network")


def _head(spec: Spec, head: Head, fill: _Filler) -> Head:
    big = sum(q.count.max if q.count else 1 for q in spec.queues) > 64
    machines = [find_instance(q.instance or "") for q in spec.queues]
    family = "m7g" if machines and all(m is not None and m.arch == "arm64" for m in machines) else "m5"
    size = f"{family}.8xlarge" if big else f"{family}.2xlarge"
    why = (
        "over 64 nodes: the controller needs cores"
        if big
        else "the controller of up to 64 nodes, and people compiling on it"
    )
    head = fill.fill(head, "head", "instance", size, why)
    if head.key is not None and ("head", "ssh_from") not in platforms()[spec.platform].cannot:
        why = "no port is open: the key works through Session Manager; name your own addresses to open one"
        head = fill.fill(head, "head", "ssh_from", "127.0.0.1/32", why)
    return fill.fill(
        head, "head", "root_volume", 200 * GIB, "logs, virtual environments and container layers", _show_gib
    )


def _software(spec: Spec, fill: _Filler) -> Software:
    software = fill.fill(
        spec.software, "software", "os", "ubuntu2204", "the best supported by drivers, EFA and Lustre clients"
    )
    software = fill.fill(software, "software", "containers", "none", "no container runtime was asked for")
    if ("software", "runtime") in platforms()[spec.platform].cannot:
        return software
    machines = [find_instance(queue.instance or "") for queue in spec.queues]
    if not any(machine is not None and runs_on(machine) for machine in machines):
        return fill.fill(software, "software", "runtime", "none", "PyTorch for CUDA has no kernels for these nodes")
    if spec.jobs and all(job.container for job in spec.jobs):
        return fill.fill(software, "software", "runtime", "none", "every job brings a container")
    why = "the nodes bring no PyTorch: the head node installs it once, on shared storage"
    return fill.fill(software, "software", "runtime", "managed", why)


def _job(queues: tuple[Queue, ...], job: Job, path: str, fill: _Filler) -> Job:
    job = fill.fill(job, path, "queue", queues[0].name, "the first queue")
    queue = next((q for q in queues if q.name == job.queue), None)
    if queue is not None:
        nodes = queue.nodes or (queue.count.max if queue.count else 1)
        job = fill.fill(job, path, "nodes", max(1, nodes), f"all nodes of queue {queue.name}")
    return job


def _show_gib(size: int) -> str:
    return f"{size / GIB:,.0f} GiB"


def _show_count(count: CountRange) -> str:
    return f"{count.min} to {count.max}"
