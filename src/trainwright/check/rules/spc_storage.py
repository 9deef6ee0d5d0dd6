"""SPC: the file systems of a spec, and the services that jobs find on their platform."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.catalog.capabilities import platforms
from trainwright.catalog.instances import find_instance
from trainwright.catalog.storage import openzfs_throughputs
from trainwright.check.model import CheckedSpec, File
from trainwright.check.registry import Problem, rule
from trainwright.check.rules.spc_cluster import at

LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")  # RFC 1123; most objects may have several, joined by dots
SUBDOMAIN = re.compile(rf"{LABEL.pattern}(\.{LABEL.pattern})*")
NAMED = ("namespace", "kueue", "service_account")
LONGEST_NAME = 63  # of a namespace, and of what a label of a pod repeats


@rule("SPC009", "error")
def storage_can_be_created(file: File) -> Iterator[Problem]:
    """The file systems of a spec must be ones that can be created, linked and mounted together.

    A bucket is linked to a Lustre file system that the spec creates, not to a scratch-1 one; a cluster owns one Lustre
    with `managed: true` and one EFS at most (other Lustre file systems are created beside it); OpenZFS is sold with
    certain throughputs; NVMe disks are mounted at one folder, on instance types that have them.

    Why: FSx refuses the request, or the folder would be missing on the nodes.

    Fix: as the finding says.

    Source: FSx for Lustre, data repository associations; ParallelCluster, SharedStorage limits.

    When to ignore: never; `plan` stops at it.
    """
    for spec in file.specs:
        if platforms()[spec.full.platform].on_aws:
            yield from _buckets(spec)
            yield from _owned(spec)
            yield from _openzfs(spec)
            yield from _nvme(spec)
            yield from _stack_names(spec)


def _buckets(spec: CheckedSpec) -> Iterator[Problem]:
    for index, item in enumerate(spec.full.storage):
        if item.bucket is None or item.lustre is None:
            continue
        if item.lustre.id is not None:
            yield at(
                spec, "storage", index, "bucket", what="the link of an existing file system is not changed",
                fix="remove `bucket`",
            )  # fmt: skip
        elif item.lustre.deployment == "scratch-1":
            yield at(
                spec, "storage", index, "bucket", what="a scratch-1 file system cannot be linked both ways",
                fix="use scratch-2 or persistent-2",
            )  # fmt: skip


def _owned(spec: CheckedSpec) -> Iterator[Problem]:
    items = list(enumerate(spec.full.storage))
    lustre = [i for i, s in items if s.lustre is not None and s.lustre.managed and s.lustre.id is None]
    efs = [i for i, s in items if s.efs is not None and s.efs.id is None]
    for kind, owned, fix in (("lustre", lustre, "remove `managed`"), ("efs", efs, "name an existing one with `id:`")):
        for index in owned[1:]:
            yield at(spec, "storage", index, kind, what=f"a cluster owns one {kind} file system at most", fix=fix)
    for index in lustre:
        settings = spec.full.storage[index].lustre
        if spec.full.platform != "parallelcluster":
            yield at(
                spec, "storage", index, "lustre", "managed", what="only ParallelCluster can own a Lustre file system",
                fix="remove `managed`",
            )  # fmt: skip
        elif settings is not None and settings.efa:
            yield at(
                spec, "storage", index, "lustre", "efa", what="ParallelCluster cannot create Lustre with EFA",
                fix="remove `managed`",
            )  # fmt: skip
        elif _several_zones(spec):
            yield at(
                spec, "storage", index, "lustre", "managed",
                what="a cluster in several zones cannot own a Lustre file system", fix="remove `managed`",
            )  # fmt: skip


def _several_zones(spec: CheckedSpec) -> bool:
    """Whether a queue may stand in more than one zone of the network."""
    network = spec.full.network
    zones = max(network.zones, 1 + len(network.more_zones))
    anywhere = [
        q for q in spec.full.queues if not (q.efa or q.placement or q.capacity.kind not in ("on-demand", "spot"))
    ]
    return zones > 1 and bool(anywhere)


def _openzfs(spec: CheckedSpec) -> Iterator[Problem]:
    for index, item in enumerate(spec.full.storage):
        zfs = item.openzfs
        if zfs is None or zfs.id is not None:
            continue
        offered = {each for kind in ("SINGLE_AZ_HA_2", "SINGLE_AZ_HA_1") for each in openzfs_throughputs(kind)}
        if zfs.throughput not in offered:
            yield at(
                spec, "storage", index, "openzfs", "throughput", what=f"OpenZFS does not offer {zfs.throughput} MB/s",
                fix=f"choose one of {', '.join(map(str, sorted(offered)))}",
            )  # fmt: skip


def _nvme(spec: CheckedSpec) -> Iterator[Problem]:
    scratch = [index for index, item in enumerate(spec.full.storage) if item.nvme is not None]
    for index in scratch[1:]:
        yield at(spec, "storage", index, what="a node's NVMe disks are mounted at one folder", fix="keep one")
    machines = [find_instance(queue.instance or "") for queue in spec.full.queues]
    if scratch and all(machines) and not any(machine.nvme_gb for machine in machines if machine):
        names = ", ".join(sorted({machine.name for machine in machines if machine}))
        yield at(spec, "storage", scratch[0], "nvme", what=f"no queue has NVMe disks ({names})", fix="remove it")


def _stack_names(spec: CheckedSpec) -> Iterator[Problem]:
    seen: dict[tuple[str, str], str] = {}
    for index, item in enumerate(spec.full.storage):
        key = (item.kind, item.stack_key)
        if item.kind in ("lustre", "openzfs") and key in seen and seen[key] != item.mount:
            what = f"{seen[key]} and {item.mount} would share the stack {key[0]}-{key[1]}"
            yield at(spec, "storage", index, "mount", what=what, fix="rename one")
        seen.setdefault(key, item.mount)


@rule("SPC010", "error")
def services_are_named(file: File) -> Iterator[Problem]:
    """What a spec says about Kubernetes, Batch and its jobs must refer to parts that it has.

    Claims belong to folders that are mounted, Batch queues to queues of the spec, and no two jobs share a name.
    Namespace, queue, service account and claims have names that Kubernetes takes: lower-case letters, digits, hyphens.

    Why: a reference to nothing is dropped by the service, a job that shares its name cannot be named, and Kubernetes
    refuses every object with a wrong name, after the cluster was created.

    Fix: correct the name.

    Source: the spec itself; RFC 1123, names of Kubernetes objects.

    When to ignore: never; `submit` stops at it.
    """
    for spec in file.specs:
        full = spec.full
        mounted = {item.mount for item in full.storage} | {m.partition(":")[0] for job in full.jobs for m in job.mounts}
        for mount in full.kubernetes.claims:
            if mount not in mounted:
                what = f"kubernetes.claims names {mount}, which neither `storage` nor a job mounts"
                yield at(spec, "kubernetes", "claims", mount, what=what, fix="add it to a job's `mounts`, or remove it")
        yield from _kubernetes_names(spec)
        for name in full.batch.queues:
            if full.queue(name) is None:
                what = f"batch.queues names {name!r}, which is no queue of the spec"
                yield at(
                    spec, "batch", "queues", name, what=what, fix=f"one of {', '.join(q.name for q in full.queues)}"
                )
        names = [job.name for job in full.jobs]
        for index, name in enumerate(names):
            if name in names[:index]:
                yield at(spec, "jobs", index, "name", what=f"two jobs are called {name!r}", fix="rename one of them")


def _kubernetes_names(spec: CheckedSpec) -> Iterator[Problem]:
    said = spec.full.kubernetes
    if platforms()[spec.full.platform].scheduler != "kubernetes":
        return
    named: list[tuple[tuple[str, ...], str | None]] = [((key,), getattr(said, key)) for key in NAMED]
    for path, name in [*named, *((("claims", mount), claim) for mount, claim in said.claims.items())]:
        pattern = LABEL if path == ("namespace",) else SUBDOMAIN
        if name and not (pattern.fullmatch(name) and len(name) <= LONGEST_NAME):
            what = f"{name!r} is no name that Kubernetes takes for `{path[0]}`"
            fix = f"use lower-case letters, digits and hyphens, at most {LONGEST_NAME}"
            yield at(spec, "kubernetes", *path, what=what, fix=fix)
