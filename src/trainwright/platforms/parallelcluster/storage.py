"""Shared storage: Lustre, OpenZFS, EFS and EBS at their mount folders. Whatever the cluster creates is retained."""

from __future__ import annotations

from typing import Any

from trainwright.catalog.storage import lustre_throughput_mb_s
from trainwright.platforms.annotated import Why
from trainwright.platforms.parallelcluster.queues import subnets_of
from trainwright.platforms.setting import Setting, gib, lustre_gib
from trainwright.platforms.wiring import BUCKET_FOLDER, Ids, deployment
from trainwright.spec.model import Storage

KEPT = Why("Retain", "deleting the cluster must not delete data")


def shared_storage(setting: Setting, ids: Ids) -> list[Any]:
    """The SharedStorage section; NVMe is local to each node and stands with its queue."""
    _refuse_lost_scratch(setting)
    _refuse_what_it_cannot_own(setting, ids)
    return [_entry(setting, index, item, ids) for index, item in enumerate(setting.spec.storage) if item.nvme is None]


def _refuse_lost_scratch(setting: Setting) -> None:
    scratches = [i for i, s in enumerate(setting.spec.storage) if s.nvme is not None]
    if len(scratches) > 1:
        setting.refuse("storage", scratches[1], what="a node's NVMe disks are mounted at one folder", fix="keep one")
    machines = [setting.queue_instance(i, q) for i, q in enumerate(setting.spec.queues)]
    if scratches and not any(machine.nvme_gb for machine in machines):
        names = ", ".join(sorted({machine.name for machine in machines}))
        setting.refuse("storage", scratches[0], "nvme", what=f"no queue has NVMe disks ({names})", fix="remove it")


def _refuse_what_it_cannot_own(setting: Setting, ids: Ids) -> None:
    """ParallelCluster creates one FSx and one EFS file system itself, FSx in one zone; stacks may create more."""
    items = list(enumerate(setting.spec.storage))
    lustre = [i for i, s in items if s.lustre is not None and s.lustre.managed and s.lustre.id is None]
    efs = [i for i, s in items if s.efs is not None and s.efs.id is None]
    for kind, found, fix in (("lustre", lustre, "remove `managed`"), ("efs", efs, "name an existing one with `id:`")):
        if len(found) > 1:
            setting.refuse("storage", found[1], kind, what=f"a cluster owns one {kind} file system at most", fix=fix)
    if lustre and any(len(subnets_of(queue, ids)) > 1 for queue in setting.spec.queues):
        setting.refuse(
            "storage", lustre[0], "lustre", "managed",
            what="a cluster in several zones cannot own a Lustre file system", fix="remove `managed`",
        )  # fmt: skip


def _entry(setting: Setting, index: int, item: Storage, ids: Ids) -> Any:
    name = item.mount.strip("/").replace("/", "-").replace("_", "-").lower()
    base = {"Name": name, "MountDir": item.mount}
    if item.lustre is not None:
        return _lustre(base, item, ids)
    if item.openzfs is not None:
        settings = {"VolumeId": ids.file_systems[item.mount]}
        return {**base, "StorageType": "FsxOpenZfs", "FsxOpenZfsSettings": settings}
    if item.efs is not None:
        own = item.efs.id is not None
        efs = {"FileSystemId": item.efs.id} if own else {"Encrypted": True, "DeletionPolicy": KEPT}
        return {**base, "StorageType": "Efs", "EfsSettings": efs}
    if item.ebs is None:
        setting.refuse("storage", index, what=f"ParallelCluster has no storage of kind {item.kind!r}", fix="remove it")
    ebs = {"VolumeType": "gp3", "Size": gib(item.ebs.capacity), "Encrypted": True, "DeletionPolicy": KEPT}
    return Why({**base, "StorageType": "Ebs", "EbsSettings": ebs}, "shared over NFS by the head node")


def _lustre(base: dict[str, Any], item: Storage, ids: Ids) -> Any:
    lustre = item.lustre
    assert lustre is not None
    base = {**base, "StorageType": "FsxLustre"}
    if item.mount in ids.file_systems:
        return {**base, "FsxLustreSettings": {"FileSystemId": ids.file_systems[item.mount]}}
    capacity = lustre_gib(lustre.capacity)
    speed = lustre_throughput_mb_s(capacity, lustre.throughput, deployment(item))
    settings: dict[str, Any] = {
        "DeploymentType": deployment(item),
        "StorageCapacity": Why(capacity, f"GiB; {speed:,.0f} MB/s for the whole file system"),
    }
    if lustre.throughput is not None:
        settings["PerUnitStorageThroughput"] = lustre.throughput
    if lustre.compression:
        settings["DataCompressionType"] = "LZ4"
    settings["DeletionPolicy"] = KEPT
    if item.bucket is not None:
        settings["DataRepositoryAssociations"] = [_bucket_link(item)]
    return {**base, "FsxLustreSettings": settings}


def _bucket_link(item: Storage) -> Any:
    events = ["NEW", "CHANGED", "DELETED"]
    link = {
        "Name": "bucket",
        "DataRepositoryPath": item.bucket,
        "FileSystemPath": BUCKET_FOLDER,
        "BatchImportMetaDataOnCreate": True,
        "AutoImportPolicy": events,
        "AutoExportPolicy": events,
    }
    return Why(link, f"the bucket appears at {item.mount}{BUCKET_FOLDER}; changes travel both ways")
