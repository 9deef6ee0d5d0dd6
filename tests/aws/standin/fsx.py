"""FSx as AWS has it: file systems and data repository associations with ids, network interfaces, limits and a life
cycle that takes time. Kept by account and region."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from standin.clock import Clock

CREATION = {"LUSTRE": 600.0, "OPENZFS": 900.0}
DELETION = 300.0
LINKING = 120.0
THROUGHPUTS = {"PERSISTENT_2": (125, 250, 500, 1000), "PERSISTENT_1": (50, 100, 200)}


class FsxError(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class FileSystem:
    id: str
    kind: str
    fields: dict[str, Any]
    tags: list[dict[str, str]]
    created: float
    ready: float
    interfaces: list[str]
    token: str = ""
    gone: float | None = None


@dataclass
class Association:
    id: str
    file_system: str
    fields: dict[str, Any]
    tags: list[dict[str, str]]
    created: float
    ready: float
    gone: float | None = None


@dataclass
class Fsx:
    """One region. `client(service)` reaches the EC2 and S3 of the same region."""

    clock: Clock
    region: str
    account: str
    client: Callable[[str], Any]
    systems: dict[str, FileSystem] = field(default_factory=dict)
    associations: dict[str, Association] = field(default_factory=dict)

    def create(self, wanted: dict[str, Any]) -> FileSystem:
        self.tick()
        token = wanted.get("ClientRequestToken", "")
        for system in self.systems.values():
            if token and system.token == token:
                return system
        kind = wanted["FileSystemType"]
        _hold_limits(kind, wanted)
        subnet = wanted["SubnetIds"][0]
        made = self.client("ec2").create_network_interface(
            SubnetId=subnet, Groups=wanted.get("SecurityGroupIds", []), Description="Created By Amazon FSx"
        )["NetworkInterface"]
        now = self.clock.now()
        system = FileSystem(
            f"fs-{uuid.uuid4().hex[:17]}", kind, wanted | {"VpcId": made["VpcId"]}, wanted.get("Tags", []), now,
            now + self.clock.takes(CREATION.get(kind, 600.0)), [made["NetworkInterfaceId"]], token,
        )  # fmt: skip
        if kind == "OPENZFS":
            system.fields["RootVolumeId"] = f"fsvol-{uuid.uuid4().hex[:17]}"
        self.systems[system.id] = system
        return system

    def delete(self, id: str) -> FileSystem:
        system = self.find(id)
        if system.gone is None:
            system.gone = self.clock.now() + self.clock.takes(DELETION)
            for association in self.associations.values():
                if association.file_system == id and association.gone is None:
                    association.gone = system.gone
        return system

    def link(self, wanted: dict[str, Any]) -> Association:
        system = self.find(wanted["FileSystemId"])
        deployment = system.fields.get("LustreConfiguration", {}).get("DeploymentType", "")
        if system.kind != "LUSTRE" or deployment == "SCRATCH_1":
            raise FsxError("UnsupportedOperation", "Data repository associations need PERSISTENT or SCRATCH_2 Lustre")
        if self.state(system) != "AVAILABLE":
            raise FsxError("BadRequest", f"File system {system.id} is {self.state(system)}")
        bucket = wanted["DataRepositoryPath"].removeprefix("s3://").split("/")[0]
        try:
            self.client("s3").head_bucket(Bucket=bucket)
        except Exception as error:
            raise FsxError("BadRequest", f"The bucket {bucket} does not exist or cannot be accessed") from error
        for other in self.associations.values():
            if other.file_system == system.id and other.fields["FileSystemPath"] == wanted["FileSystemPath"]:
                raise FsxError("BadRequest", f"{wanted['FileSystemPath']} is linked already")
        now = self.clock.now()
        made = Association(
            f"dra-{uuid.uuid4().hex[:17]}",
            system.id,
            wanted,
            wanted.get("Tags", []),
            now,
            now + self.clock.takes(LINKING),
        )
        self.associations[made.id] = made
        return made

    def unlink(self, id: str) -> Association:
        self.tick()
        if id not in self.associations:
            raise FsxError("DataRepositoryAssociationNotFound", f"Association '{id}' does not exist.")
        association = self.associations[id]
        association.gone = association.gone or self.clock.now() + self.clock.takes(LINKING)
        return association

    def find(self, id: str) -> FileSystem:
        self.tick()
        if id not in self.systems:
            raise FsxError("FileSystemNotFound", f"File system '{id}' does not exist.")
        return self.systems[id]

    def tick(self) -> None:
        """Remove what is gone by now, network interfaces included."""
        now = self.clock.now()
        for system in list(self.systems.values()):
            if system.gone is not None and system.gone <= now:
                del self.systems[system.id]
                for interface in system.interfaces:
                    self.client("ec2").delete_network_interface(NetworkInterfaceId=interface)
        for association in list(self.associations.values()):
            if association.gone is not None and association.gone <= now:
                del self.associations[association.id]

    def state(self, thing: FileSystem | Association) -> str:
        if thing.gone is not None:
            return "DELETING"
        return "AVAILABLE" if thing.ready <= self.clock.now() else "CREATING"

    def arn(self, id: str) -> str:
        kind = "association" if id.startswith("dra-") else "file-system"
        return f"arn:aws:fsx:{self.region}:{self.account}:{kind}/{id}"

    def describe(self, system: FileSystem) -> dict[str, Any]:
        kept = ("FileSystemType", "StorageCapacity", "StorageType", "SubnetIds", "VpcId", "FileSystemTypeVersion")
        fields = {key: system.fields[key] for key in kept if key in system.fields}
        fields |= {
            "FileSystemId": system.id,
            "OwnerId": self.account,
            "CreationTime": system.created,
            "Lifecycle": self.state(system),
            "NetworkInterfaceIds": system.interfaces,
            "DNSName": f"{system.id}.fsx.{self.region}.amazonaws.com",
            "ResourceARN": self.arn(system.id),
            "Tags": system.tags,
        }
        if system.kind == "LUSTRE":
            fields["LustreConfiguration"] = {
                **system.fields.get("LustreConfiguration", {}),
                "MountName": system.id[3:11],
            }
        if system.kind == "OPENZFS":
            volume = {"RootVolumeId": system.fields["RootVolumeId"]}
            own = {k: v for k, v in system.fields["OpenZFSConfiguration"].items() if k != "RootVolumeConfiguration"}
            fields["OpenZFSConfiguration"] = {**own, **volume}
        return fields

    def describe_link(self, association: Association) -> dict[str, Any]:
        kept = ("FileSystemPath", "DataRepositoryPath", "BatchImportMetaDataOnCreate", "ImportedFileChunkSize", "S3")
        fields = {key: association.fields[key] for key in kept if key in association.fields}
        return fields | {
            "AssociationId": association.id,
            "FileSystemId": association.file_system,
            "Lifecycle": self.state(association),
            "ResourceARN": self.arn(association.id),
            "CreationTime": association.created,
            "Tags": association.tags,
        }


def _hold_limits(kind: str, wanted: dict[str, Any]) -> None:
    """The limits of FSx: capacities in steps, throughputs from a list."""
    capacity = int(wanted.get("StorageCapacity", 0))
    if kind == "OPENZFS":
        if not 64 <= capacity <= 524288:
            raise FsxError("BadRequest", f"Storage capacity {capacity} is not between 64 and 524288 GiB")
        return
    settings = wanted.get("LustreConfiguration", {})
    deployment = settings.get("DeploymentType", "SCRATCH_1")
    step = 3600 if deployment == "SCRATCH_1" else 2400
    if capacity not in (1200, 2400) and (capacity <= 0 or capacity % step):
        raise FsxError("BadRequest", f"Storage capacity {capacity} is not 1200, 2400 or a multiple of {step} GiB")
    rate = settings.get("PerUnitStorageThroughput")
    if deployment in THROUGHPUTS and int(rate or 0) not in THROUGHPUTS[deployment]:
        raise FsxError("BadRequest", f"PerUnitStorageThroughput {rate} is not valid for {deployment}")
    if str(settings.get("EfaEnabled", "false")).lower() == "true" and deployment != "PERSISTENT_2":
        raise FsxError("BadRequest", "EFA needs PERSISTENT_2")
