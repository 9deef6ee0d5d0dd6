"""STO: options of a Lustre file system that exclude or need each other."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.catalog.storage import find_lustre_rule
from trainwright.check import reasons
from trainwright.check.model import File, Storage, T, Value, known
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.rules.sto import TIERED, deployment_of, new_lustres
from trainwright.check.rules.sto_classes import classes_without_subnet
from trainwright.check.tables import table

_LISTS = re.compile(r"^$|[*,?(]")  # an entry that may be several subnets, or none
_OF_DISKS = (12, 40)  # throughputs that hard disks have, and SSDs do not
_PERSISTENT = ("PERSISTENT_1", "PERSISTENT_2")


@rule("STO002", "error")
def lustre_options_go_together(file: File) -> Iterator[Problem]:
    """Options of a Lustre file system must be compatible.

    Scratch takes no throughput, KMS key or backups; persistent needs a throughput; hard disks are PERSISTENT_1 only and
    alone have a drive cache; a bucket is linked by data repository associations (at most 8) or by ImportPath, not both,
    and with PERSISTENT_2 by associations only; ExportPath, chunk size and auto-import need ImportPath; a file system
    linked by ImportPath has no backups; every file system of Lustre is in one subnet. In ParallelCluster an
    existing file system takes no settings, and a new one goes with queues of one subnet. A StorageClass of Kubernetes'
    driver for Lustre names the subnet of the volumes that are made from it (a note where no claim of the file does).

    Why: FSx refuses the file system, and the cluster or stack that contains it is rolled back; claims stay Pending.

    Fix: remove one of the two, as the message says.

    Source: ParallelCluster, fsx_validators; FSx for Lustre API reference (CreateFileSystem: SubnetIds is required).

    When to ignore: never; FSx refuses the combination.
    """
    for storage in new_lustres(file):
        deployment = deployment_of(file, storage)
        if deployment is not None and (storage.deployment is not None or file.format == "parallelcluster"):
            yield from _by_deployment(file, storage, deployment)
        yield from _media(storage, deployment)
        yield from _links(file, storage)
        yield from _subnets(storage)
    yield from classes_without_subnet(file)
    if file.format == "parallelcluster":
        yield from _existing(file)
        yield from _one_zone(file)


def _subnets(storage: Storage) -> Iterator[Problem]:
    several = storage.subnets[1:] if not any(_LISTS.search(subnet.value) for subnet in storage.subnets) else []
    if several:
        yield problem(
            several[0],
            f"{len(storage.subnets)} subnets: a Lustre file system is in one, FSx refuses more",
            "keep the subnet of the nodes",
        )


def _existing(file: File) -> Iterator[Problem]:
    for storage in file.all_storages:
        if storage.kind != "lustre" or storage.existing is None:
            continue
        extra = (storage.capacity_gib, storage.deployment, storage.throughput, storage.import_path, storage.export_path)
        stated = [value for value in extra if value is not None]
        if stated and storage.existing.value.startswith("fs-"):
            yield problem(
                stated[0],
                f"{storage.existing.value} exists already: ParallelCluster refuses settings for its creation",
                "remove the settings beside FileSystemId",
                why=reasons.REFUSED_BY_PARALLELCLUSTER,
            )


def _one_zone(file: File) -> Iterator[Problem]:
    if not any(True for _ in new_lustres(file)):
        return
    named = [(queue, subnet) for _, queue in file.queues for subnet in queue.subnets]
    first = named[0][1].value if named else ""
    for queue, subnet in named:
        # Two placeholders of different queues may stand for one subnet.
        if subnet.value != first and (subnet.known or len(queue.subnets) > 1):
            yield problem(
                subnet,
                f"{queue.label}: ParallelCluster makes no file system for queues in several subnets",
                "keep one subnet for all queues, or create the file system separately and name its id",
                why=reasons.REFUSED_BY_PARALLELCLUSTER,
            )
            return


def _chosen(value: Value[T] | None) -> Value[T] | None:
    """A value that is there in any case: a choice (`!If`, `var.a ? 1 : null`), which reads as an empty text, may omit
    it."""
    return value if value is not None and (value.known or value.text) else None


def _by_deployment(file: File, storage: Storage, deployment: str) -> Iterator[Problem]:
    if deployment in _PERSISTENT:
        if storage.throughput is None and storage.deployment is not None and known(storage.media) != TIERED:
            known_rule = find_lustre_rule(deployment, known(storage.media) or "SSD")
            rates = ", ".join(map(str, known_rule.throughputs)) if known_rule is not None else "125, 250, 500, 1000"
            yield problem(
                storage.deployment,
                f"{deployment} needs a throughput per TiB",
                f"add {_rate(file)}: one of {rates}",
            )
        path = _chosen(storage.import_path)
        if deployment == "PERSISTENT_2" and path is not None and not storage.links:
            yield problem(
                path,
                "PERSISTENT_2 takes no ImportPath: FSx refuses it",
                f"remove {_names(file, storage)}, and link the bucket by a data repository association",
            )
        return
    if find_lustre_rule(deployment) is None:
        return  # with a misspelled deployment type the rest is unknown
    throughput, key = _chosen(storage.throughput), _chosen(storage.kms_key)
    for value, what in ((throughput, "throughput per TiB"), (key, "KMS key")):
        if value is not None:
            yield problem(
                value, f"{deployment} does not support a {what}", f"remove it, or {_persistent(file, storage)}"
            )
    days = known(storage.backup_days)
    if storage.backup_days is not None and days:
        linked = storage.import_path is not None  # with which no deployment type has backups
        fix = "remove it" if linked else f"remove it, or {_persistent(file, storage)}"
        yield problem(storage.backup_days, f"{deployment} has no backups", fix)


def _names(file: File, storage: Storage) -> str:
    """The settings of a link by path, as the file writes them: with one of them left FSx refuses the file system."""
    given = (storage.import_path, storage.export_path, storage.chunk_size, storage.auto_import)
    in_terraform = ("import_path", "export_path", "imported_file_chunk_size", "auto_import_policy")
    elsewhere = ("ImportPath", "ExportPath", "ImportedFileChunkSize", "AutoImportPolicy")
    names = in_terraform if file.format == "terraform" else elsewhere
    return " and ".join(name for name, value in zip(names, given, strict=True) if value is not None)


def _rate(file: File) -> str:
    return "per_unit_storage_throughput" if file.format == "terraform" else "PerUnitStorageThroughput"


def _persistent(file: File, storage: Storage) -> str:
    """The other way out, with what it needs: a throughput, and PERSISTENT_1 for a bucket that is linked by a path."""
    deployment = "PERSISTENT_2" if storage.import_path is None and storage.export_path is None else "PERSISTENT_1"
    known_rule = find_lustre_rule(deployment)
    rates = known_rule.throughputs if known_rule is not None else ()
    needs = [] if known(storage.throughput) in rates else [f"{_rate(file)}: one of {', '.join(map(str, rates))}"]
    size = known(storage.capacity_gib)
    if known_rule is not None and size is not None and not known_rule.capacity_fits(round(size)):
        needs.append(f"a size of {known_rule.next_capacity(round(size))} GiB")
    return f"use {deployment}" + (f" with {' and '.join(needs)}" if needs else "")


def _media(storage: Storage, deployment: str | None) -> Iterator[Problem]:
    if known(storage.media) == "HDD" and storage.media is not None and deployment not in ("PERSISTENT_1", None):
        for_disks = _chosen(storage.drive_cache) is not None or known(storage.throughput) in _OF_DISKS
        fix = "use PERSISTENT_1" if for_disks else "use SSD"
        yield problem(storage.media, f"hard disks need PERSISTENT_1, not {deployment}", fix)
    cache = _chosen(storage.drive_cache)
    if cache is not None and known(cache) != "NONE" and (storage.media is None or known(storage.media) == "SSD"):
        yield problem(cache, "a drive cache needs hard disks", "remove it")


def _linked(storage: Storage) -> str:
    """What an option of a link by path needs; PERSISTENT_2 takes no path."""
    instead = "remove it, and link the bucket by a data repository association"
    return instead if known(storage.deployment) == "PERSISTENT_2" else f"add ImportPath; or {instead}"


def _links(file: File, storage: Storage) -> Iterator[Problem]:
    limit = table("parallelcluster")["counts"]["links"]
    if len(storage.links) > limit:
        yield problem(
            storage.links[limit].span, f"{len(storage.links)} links to buckets; FSx allows {limit}", f"keep {limit}"
        )
    path = _chosen(storage.import_path) or _chosen(storage.export_path)
    if storage.links and path is not None:
        yield problem(
            path,
            "a file system is linked by associations or by ImportPath and ExportPath, not both",
            f"keep the data repository associations, and remove {_names(file, storage)}",
        )
    elif storage.import_path is None:
        options: tuple[tuple[Value[str] | Value[int] | None, str], ...] = (
            (_chosen(storage.export_path), "ExportPath"),
            (_chosen(storage.chunk_size), "ImportedFileChunkSize"),
            (_chosen(storage.auto_import), "AutoImportPolicy"),
        )
        for value, what in options:
            if value is not None and value.value not in ("NONE", 0):
                yield problem(value, f"{what} needs an ImportPath", _linked(storage))
    elif known(storage.backup_days) and storage.backup_days is not None:
        yield problem(
            storage.backup_days,
            "a file system linked by ImportPath has no backups",
            "remove it; the bucket holds the data",
        )
