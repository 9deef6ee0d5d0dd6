"""STO: shared file systems: sizes that FSx refuses, and what slows GPUs down."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.catalog.storage import find_lustre_rule, lustre_problem
from trainwright.check import reasons
from trainwright.check.model import Cluster, File, Job, Storage, Value, known
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.tables import machines, table
from trainwright.errors import UserError

_WITH_UNIT = re.compile(r"\d+(\.\d+)?\s*[KMGT]i?B?")
TIERED = "INTELLIGENT_TIERING"  # has no size, and a throughput of its own
_DEFAULT_DEPLOYMENT = {"parallelcluster": "SCRATCH_2", "cloudformation": "SCRATCH_1"}


def new_lustres(file: File) -> Iterator[Storage]:
    """The Lustre file systems that a file would create."""
    return (s for s in file.all_storages if s.kind == "lustre" and s.existing is None)


def deployment_of(file: File, storage: Storage) -> str | None:
    """The deployment type, with the default of FSx or ParallelCluster; None when it is a placeholder."""
    if storage.deployment is None:
        return _DEFAULT_DEPLOYMENT.get(file.format)
    return known(storage.deployment)


@rule("STO001", "error")
def lustre_size_is_sold(file: File) -> Iterator[Problem]:
    """A Lustre file system's size, throughput and deployment type must be a combination that FSx offers.

    SSD sizes are 1,200 GiB or multiples of 2,400 (SCRATCH_1: 1,200, 2,400 or multiples of 3,600). PERSISTENT_1 offers
    50, 100 or 200 MB/s per TiB, PERSISTENT_2 125, 250, 500 or 1,000; hard disks 12 or 40 in steps of 6,000 or 1,800
    GiB.

    Why: FSx refuses the file system, and the stack fails after the network and the head node are created.

    Fix: use the nearest size or throughput that the message names.

    Source: FSx for Lustre API reference; ParallelCluster, FsxStorageCapacityValidator and
    FsxStorageTypeOptionsValidator.

    When to ignore: never; FSx refuses the combination.
    """
    for storage in new_lustres(file):
        if known(storage.media) == TIERED:
            continue
        if storage.capacity_gib is None and file.format in ("parallelcluster", "cloudformation"):
            where = storage.mount or storage.name or storage.span
            yield problem(
                where,
                "a new Lustre file system needs a size",
                f"add StorageCapacity: {_smallest(file, storage)} or more",
            )
        yield from _no_number(storage)
        deployment, size, rate = deployment_of(file, storage), known(storage.capacity_gib), known(storage.throughput)
        media = known(storage.media) or "SSD"
        known_rule = find_lustre_rule(deployment, media) if deployment is not None else None
        if known_rule is None or size is None or storage.capacity_gib is None or known(storage.efa):
            continue
        # A throughput that must not be there, or is missing, is STO002's.
        stated = storage.throughput if known_rule.throughputs else None
        if stated is not None and not stated.known:
            continue
        if stated is None and known_rule.throughputs:
            rate = known_rule.throughputs[0]
        trouble = lustre_problem(known_rule.deployment, round(size), rate if known_rule.throughputs else None, media)
        if trouble is not None:
            wrong_rate = stated is not None and stated.value not in known_rule.throughputs
            at: Value[float] | Value[int] = stated if wrong_rate and stated is not None else storage.capacity_gib
            what, _, choice = trouble.partition("; ")
            yield problem(at, what, choice)


def _smallest(file: File, storage: Storage) -> int:
    """The smallest size in GiB that FSx sells."""
    known_rule = find_lustre_rule(deployment_of(file, storage) or "SCRATCH_2", known(storage.media) or "SSD")
    return known_rule.next_capacity(1, known(storage.throughput)) if known_rule is not None else 1200


def _no_number(storage: Storage) -> Iterator[Problem]:
    if (size := storage.capacity_gib) is not None and not size.known and _WITH_UNIT.fullmatch(size.text):
        yield problem(size, f"the size is a number of GiB: {size.text!r} is refused", "write the number of GiB alone")


@rule("STO003", "warning")
def storage_keeps_up_with_the_gpus(file: File) -> Iterator[Problem]:
    """The shared file system should be fast enough for the accelerators that read from it.

    A Lustre file system delivers its size in TiB times its throughput per TiB, to all nodes together. Below about 15
    MB/s per accelerator, input for images and video is too slow, and saving the state of the accelerators takes over an
    hour. Where the file holds the job too, a checkpoint must be written before the next one is due.

    Why: GPUs wait for data, at the price of GPUs: 6.88 USD per hour for each H100 of a p5.48xlarge (us-east-2, August
    2026).

    Fix: choose a higher throughput per TiB or a larger file system.

    Source: FSx for Lustre user guide, performance; the reference notes on 4,800 GiB at 250 MB/s.

    When to ignore: data is read from elsewhere, such as NVMe copies or S3.
    """
    floor = table("storage")["mb_s_per_accelerator"]
    for cluster in file.clusters:
        chips = _accelerators(cluster)
        for storage in cluster.storages:
            total, at = _delivers(storage), storage.throughput or storage.capacity_gib
            if total is not None and at is not None and total < floor * chips:
                yield problem(
                    at,
                    f"{total / 1000:.1f} GB/s for {chips} accelerators: {total / chips:.2g} MB/s each",
                    f"raise throughput or size: {floor:.0f} MB/s each are {floor * chips / 1000:.1f} GB/s",
                    level="info",  # text needs far less than images
                )
    for job in file.jobs:
        yield from _slow_checkpoint(file, job)


def _delivers(storage: Storage) -> float | None:
    """MB/s that a new Lustre file system delivers to all its clients together."""
    size, rate = known(storage.capacity_gib), known(storage.throughput)
    lustre = find_lustre_rule(known(storage.deployment) or "SCRATCH_2")
    if storage.kind != "lustre" or storage.existing is not None or size is None or lustre is None:
        return None
    if storage.throughput is None:
        rate = lustre.baseline
    return size / 1024 * rate if rate and rate > 0 and size > 0 else None


def _slow_checkpoint(file: File, job: Job) -> Iterator[Problem]:
    every, folder = job.extra.get("checkpoint_seconds"), known(job.checkpoint_dir)
    model = known(job.model.name) if job.model is not None else None
    if every is None or folder is None or model is None:
        return
    for storage in file.all_storages:
        mount, total = known(storage.mount), _delivers(storage)
        if mount is None or total is None or not (folder + "/").startswith(mount.rstrip("/") + "/"):
            continue
        size = _checkpoint_bytes(model)
        seconds = size / 1e6 / total
        if seconds > every.value > 0:
            yield problem(
                every,
                f"{job.label}: {size / 1e9:,.0f} GB at {total / 1000:.1f} GB/s take {seconds / 60:.0f} min to write, "
                f"and the next checkpoint starts after {every.value / 60:.0f}",
                "write less often, or make the file system faster",
                why=reasons.CHECKPOINTS_OVERLAP,
            )


def _checkpoint_bytes(model: str) -> float:
    """0 for an unknown model shape."""
    from trainwright.train.models.shape import lookup, parameter_count

    try:
        return float(parameter_count(lookup(model)) * table("storage")["checkpoint_bytes_per_parameter"])
    except UserError:
        return 0.0


_MANY_NODES = 100  # a maximum above it, with nothing reserved, says "no limit"


def _accelerators(cluster: Cluster) -> int:
    """Those of the largest queue: the maximum counts of several are rarely all in use at once."""
    largest = 0
    for queue in cluster.queues:
        types = machines(queue)
        nodes = known(queue.max_count)
        unlimited = not known(queue.min_count) and queue.reservation is None and (nodes or 0) > _MANY_NODES
        if types and nodes is not None and not unlimited:
            largest = max(largest, nodes * types[0][1].accelerator_count)
    return largest


@rule("STO004", "error")
def efa_lustre_is_whole(file: File) -> Iterator[Problem]:
    """A Lustre file system with EFA needs the right deployment type, version, metadata and size.

    EFA on Lustre is PERSISTENT_2 on SSD with Lustre 2.15 and a metadata configuration, in steps of 38,400 GiB at 125
    MB/s per TiB, 19,200 at 250, 9,600 at 500 and 4,800 at 1,000; and the clients need Ubuntu 22.04, Amazon Linux 2023
    or RHEL 9.

    Why: FSx refuses the file system; with an older client, nodes mount it over TCP, with at most 100 instead of 1,200
    Gbps per node.

    Fix: as the message says, or disable EFA on the file system.

    Source: FSx for Lustre user guide, EFA-enabled file systems; awslabs/awsome-distributed-ai issue 551.

    When to ignore: never for the sizes; for the client, when other nodes than these use EFA.
    """
    for storage in new_lustres(file):
        if not known(storage.efa) or storage.efa is None:
            continue
        deployment = deployment_of(file, storage)
        if deployment is not None and deployment != "PERSISTENT_2":
            at = storage.deployment if storage.deployment is not None else storage.efa
            fix = "use PERSISTENT_2 with a throughput and a metadata configuration, or no EFA"
            yield problem(at, f"EFA on Lustre needs PERSISTENT_2, not {deployment}", fix)
            continue
        if known(storage.version) not in (None, "2.15") and storage.version is not None:
            yield problem(storage.version, f"EFA needs Lustre 2.15, not {storage.version.value}", "write 2.15")
        if storage.metadata is None and file.format == "cloudformation":
            yield problem(storage.efa, _METADATA, "add MetadataConfiguration: {Mode: AUTOMATIC}")
        elif storage.metadata is None and file.format == "terraform" and "metadata_configuration" not in file.text:
            yield problem(storage.efa, _METADATA, 'add metadata_configuration { mode = "AUTOMATIC" }', level="info")
        size, rate = known(storage.capacity_gib), known(storage.throughput)
        if size is not None and rate is not None and storage.capacity_gib is not None:
            trouble = lustre_problem("PERSISTENT_2", round(size), rate, efa=True)
            if trouble is not None:
                what, _, choice = trouble.partition("; ")
                yield problem(storage.capacity_gib, f"with EFA at {rate} MB/s per TiB, {what}", choice)
    yield from _clients(file)


_METADATA = "EFA needs a metadata configuration"


def _clients(file: File) -> Iterator[Problem]:
    able = table("storage")["efa_client_systems"]
    for cluster in file.clusters:
        wanted = any(known(s.efa) for s in cluster.storages if s.kind == "lustre")
        if wanted and cluster.os is not None and cluster.os.known and cluster.os.value not in able:
            yield problem(
                cluster.os,
                f"the Lustre client of {cluster.os.value} cannot use EFA",
                f"use one of {', '.join(able)}",
                why=reasons.LUSTRE_OVER_TCP,
            )
