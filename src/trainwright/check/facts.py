"""What rules may query from AWS or a node. `aws/` and `health/` implement it and the caller passes it in, so that
`check` itself does not import boto3. None means that the object does not exist."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Reservation:
    """A capacity reservation."""

    id: str
    instance: str
    zone: str
    count: int
    is_block: bool
    state: str = "active"
    placement_group: str = ""  # the name, where the reservation was made inside one
    zone_id: str = ""


@dataclass(frozen=True, slots=True)
class Subnet:
    """A subnet."""

    id: str
    zone: str
    free_addresses: int
    public_addresses: bool  # assigns a public address to every instance
    zone_id: str = ""


@dataclass(frozen=True, slots=True)
class Image:
    """A machine image; `parallelcluster` is the version of ParallelCluster it was built with."""

    id: str
    arch: str
    parallelcluster: str = ""
    os: str = ""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """An EC2 key pair; its kind is rsa or ed25519."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class GroupRule:
    """One rule of a security group. `groups` and `ranges` are the other side."""

    protocol: str  # -1 is everything
    from_port: int
    to_port: int
    groups: tuple[str, ...] = ()
    ranges: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """A security group."""

    id: str
    ingress: tuple[GroupRule, ...] = ()
    egress: tuple[GroupRule, ...] = ()


@dataclass(frozen=True, slots=True)
class FileSystem:
    """An FSx file system and the security groups in front of it."""

    id: str
    kind: str  # lustre | openzfs | ontap | windows
    groups: tuple[str, ...] = ()


class AwsFacts(Protocol):
    """What rules may query from AWS."""

    def reservation(self, id: str) -> Reservation | None: ...

    def subnet(self, id: str) -> Subnet | None: ...

    def image(self, id: str) -> Image | None: ...

    def key_pair(self, name: str) -> KeyPair | None: ...

    def security_group(self, id: str) -> Group | None: ...

    def file_system(self, id: str) -> FileSystem | None: ...

    @property
    def region(self) -> str: ...


class NodeFacts(Protocol):
    """What rules may query from the node they run on."""

    def path_exists(self, path: str) -> bool: ...

    def interfaces(self) -> list[str]: ...

    def version(self, software: str) -> str | None: ...
