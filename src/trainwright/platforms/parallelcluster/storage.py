"""Shared storage: Lustre, OpenZFS, EFS and EBS at their mount folders. Whatever the cluster creates is retained."""

from __future__ import annotations

from typing import Any

from trainwright.catalog.storage import lustre_throughput_mb_s
from trainwright.platforms.annotated import Why
from trainwright.platforms.setting import Setting, gib, lustre_gib
from trainwright.platforms.wiring import BUCKET_FOLDER, Ids, deployment
from trainwright.spec.model import Storage

KEPT = Why("Retain", "deleting the cluster must not delete data")


def shared_storage(setting: Setting, ids: Ids) -> list[Any]:
    """The SharedStorage section; NVMe is local to each node and part of its queue."""
    return [_entry(item, ids) for item in setting.spec.storage if item.nvme is None]


def _entry(item: Storage, ids: Ids) -> Any:
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
    assert item.ebs is not None, "check: SPC001"
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
    return Why(link, f"the bucket appears at {item.mount}{BUCKET_FOLDER}; changes are synced both ways")
