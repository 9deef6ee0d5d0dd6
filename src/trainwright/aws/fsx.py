"""FSx: the file systems behind a cluster and their links to buckets."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trainwright.aws.session import Account, AwsRefused, aws_errors


@dataclass(frozen=True)
class FileSystemRow:
    """A file system; `state` is FSx's Lifecycle."""

    id: str
    kind: str  # LUSTRE | OPENZFS
    state: str
    capacity_gib: int
    created: datetime
    deployment: str
    throughput: int | None  # MB/s: per TiB on Lustre, in all on OpenZFS
    interfaces: tuple[str, ...] = ()


@dataclass(frozen=True)
class Link:
    """A data repository association."""

    id: str
    file_system: str
    path: str
    bucket: str
    state: str


@dataclass(frozen=True)
class FsxApi:
    account: Account

    def find(self, id: str) -> FileSystemRow | None:
        try:
            with aws_errors(f"file system {id}"):
                rows = self._client.describe_file_systems(FileSystemIds=[id])["FileSystems"]
        except AwsRefused as error:
            if error.code == "FileSystemNotFound":
                return None
            raise
        return _row(rows[0]) if rows else None

    def links(self, file_system: str) -> list[Link]:
        only = [{"Name": "file-system-id", "Values": [file_system]}]
        with aws_errors(f"file system {file_system}"):
            rows = self._client.describe_data_repository_associations(Filters=only)["Associations"]
        return [
            Link(
                r["AssociationId"],
                r["FileSystemId"],
                r.get("FileSystemPath", ""),
                r["DataRepositoryPath"],
                r["Lifecycle"],
            )
            for r in rows
        ]

    def delete(self, row: FileSystemRow) -> None:
        """Begin to delete a file system with what is on it. No final backup is taken: the user asked for its deletion
        by name. Files of a linked bucket stay in the bucket."""
        settings: dict[str, Any] = {
            "LUSTRE": {"LustreConfiguration": {"SkipFinalBackup": True}},
            "OPENZFS": {
                "OpenZFSConfiguration": {
                    "SkipFinalBackup": True,
                    "Options": ["DELETE_CHILD_VOLUMES_AND_SNAPSHOTS"],
                }
            },
        }
        try:
            with aws_errors(f"file system {row.id}"):
                self._client.delete_file_system(
                    FileSystemId=row.id, ClientRequestToken=str(uuid.uuid4()), **settings.get(row.kind, {})
                )
        except AwsRefused as error:
            if error.code != "FileSystemNotFound":
                raise

    @property
    def _client(self) -> Any:
        return self.account.client("fsx")


def _row(row: dict[str, Any]) -> FileSystemRow:
    lustre, zfs = row.get("LustreConfiguration", {}), row.get("OpenZFSConfiguration", {})
    rate = lustre.get("PerUnitStorageThroughput") or zfs.get("ThroughputCapacity")
    return FileSystemRow(
        id=row["FileSystemId"],
        kind=row["FileSystemType"],
        state=row.get("Lifecycle", ""),
        capacity_gib=int(row.get("StorageCapacity", 0)),
        created=row["CreationTime"],
        deployment=lustre.get("DeploymentType") or zfs.get("DeploymentType") or "",
        throughput=int(rate) if rate else None,
        interfaces=tuple(row.get("NetworkInterfaceIds", ())),
    )
