"""CAP: instance types: whether they exist, match, and are supported by the image."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check.finding import Level
from trainwright.check.model import Cluster, File, Value
from trainwright.check.pcluster_schema import may_be_older_than, version_of
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.tables import machine, machines, sizes_of, table
from trainwright.errors import did_you_mean
from trainwright.spec.source import Span


@rule("CAP005", "error")
def gpu_is_driven_by_the_image(file: File) -> Iterator[Problem]:
    """ParallelCluster's own images do not support GPUs older than Turing.

    Since 3.9 ParallelCluster refuses P2, P3, P3dn, G2, G3 and G3s with its own images, which carry NVIDIA's open
    kernel driver for Turing and newer. A custom image is not reported, nor is a file that states an older version; one
    that the newest version refuses and one before 3.9 accepts is a note.

    Why: `pcluster create-cluster` ends with an error. The driver of the images supports GPUs from Turing on (compute
    capability 7.5; a V100 of p3 has 7.0), and without it jobs find no GPU.

    Fix: use g4dn, g5 or newer, p4d or newer; or build an image with the closed driver and name it.

    Source: ParallelCluster 3.9 to 3.16, InstanceTypeBaseAMICompatibleValidator; NVIDIA, open kernel modules (Turing
    and later).

    When to ignore: you use ParallelCluster before 3.9.
    """
    roots = [root for root in file.nodes if root.get("Scheduling") is not None] if not file.specs else []
    version, stated = version_of(file, roots[0]) if roots else (_OPEN_DRIVER, False)
    if version < _OPEN_DRIVER and stated:
        return
    for cluster, queue in file.queues:
        if cluster.platform != "parallelcluster" or cluster.image is not None or "image" in queue.extra:
            continue
        for value in filter(_has_old_gpu, queue.instances):
            if (
                machine(value) is not None or not file.specs
            ):  # of the rest of a spec SPC says that there is no such type
                yield problem(
                    value,
                    f"{queue.label}: since 3.9 ParallelCluster refuses {value.value} with its own images, which have "
                    "no driver for GPUs older than Turing",
                    "use g4dn, g5, p4d or newer, or name an image with the closed NVIDIA driver",
                    level="info" if may_be_older_than(file, _OPEN_DRIVER) else None,
                )


def _has_old_gpu(value: Value[str]) -> bool:
    """By the name of the family: EC2 retired most of these, and the catalog lacks what it retired."""
    family, _, size = value.value.partition(".")
    return value.known and family in table("parallelcluster")["old_gpu_families"] and _SIZE.fullmatch(size) is not None


_OPEN_DRIVER = (3, 9)  # the first version whose validator refuses older GPUs
_SIZE = re.compile(r"(\d+x|x)?large|metal(-\d+xl)?|nano|micro|small|medium")


@rule("CAP006", "error")
def instance_types_exist(file: File) -> Iterator[Problem]:
    """Instance types must exist, and those of one Slurm cluster share an architecture.

    A type is a family, a dot and a size in small letters: `p5.48xlarge`. A size that EC2 does not have, or that a known
    family does not come in (a warning: the catalog may be older than EC2; a note for metal sizes, which EC2 adds to old
    families), is a typing mistake. Head and compute nodes of a ParallelCluster share programs, so all are x86 or all
    Arm.

    Why: creation is refused, or nodes of the queue never start.

    Fix: use the name that the message proposes; `trainwright catalog list` has them all.

    Source: EC2 DescribeInstanceTypes; ParallelCluster, InstanceTypeValidator and
    InstanceArchitectureCompatibilityValidator.

    When to ignore: the type is newer than the catalog.
    """
    reported: set[tuple[Span, str]] = set()
    for cluster in file.clusters:
        heads = [cluster.head.instance] if cluster.head is not None and cluster.head.instance is not None else []
        queues = [] if file.specs else cluster.queues  # SPC006 says so
        for value in [*heads, *(value for queue in queues for value in queue.instances)]:
            if value.known and (value.span, value.value) not in reported:
                reported.add((value.span, value.value))
                yield from _spelling(value)
        yield from _architecture(cluster)


def _spelling(value: Value[str]) -> Iterator[Problem]:
    family, dot, size = value.value.removeprefix("ml.").partition(".")
    sizes = sizes_of(family) if dot and machine(value) is None else ()
    if machine(value) is not None and value.value != value.value.lower():
        yield problem(value, f"{value.value}: EC2 writes its types in small letters", f"write {value.value.lower()}")
    if not sizes:
        return
    hint = f"{family} comes as {', '.join(sizes)}"
    if not _SIZE.fullmatch(size):
        near = did_you_mean(size, sizes).replace("'", f"'{family}.", 1)
        yield problem(value, f"{value.value} is not an instance type", near or hint)
    else:
        level: Level = "info" if size.startswith("metal") else "warning"
        yield problem(value, f"the catalog has no {value.value}", hint, level=level)


def _architecture(cluster: Cluster) -> Iterator[Problem]:
    head = machine(cluster.head.instance) if cluster.head is not None else None
    if cluster.platform != "parallelcluster" or head is None:
        return
    for queue in cluster.queues:
        for value, type_ in machines(queue):
            if type_.arch != head.arch:
                yield problem(
                    value,
                    f"{queue.label}: {type_.name} is {type_.arch}, and the head node ({head.name}) {head.arch}",
                    "use instance types of one architecture",
                )
