"""What a file says about clusters: queues, file systems, the head node, networks and access, whatever its format."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from trainwright.check.value import Value
from trainwright.spec.source import Span


@dataclass(slots=True)
class BootScript:
    """A script that nodes fetch and run when they start."""

    source: Value[str]
    args: list[Value[str]] = field(default_factory=list)
    when: str = ""


@dataclass(slots=True)
class Queue:
    """A group of equal nodes: a ParallelCluster compute resource, a node group, an instance group, a queue of ours."""

    span: Span
    name: Value[str] | None = None  # the queue's (or node group's) name
    resource: Value[str] | None = None  # ParallelCluster: the compute resource's own name
    instances: list[Value[str]] = field(default_factory=list)
    instances_listed: Value[bool] | None = None  # written as an `Instances` list, although there is a single type
    min_count: Value[int] | None = None
    max_count: Value[int] | None = None
    capacity: Value[str] | None = None  # on-demand | spot | block
    reservation: Value[str] | None = None
    reservation_group: Value[str] | None = None
    placement: Value[bool] | None = None  # None: not stated at all
    placement_name: Value[str] | None = None
    efa: Value[bool] | None = None
    subnets: list[Value[str]] = field(default_factory=list)
    zones: list[Value[str]] = field(default_factory=list)
    public_ip: Value[bool] | None = None
    security_groups: list[Value[str]] = field(default_factory=list)
    slurm_settings: dict[str, Value[Any]] = field(default_factory=dict)  # the queue's own
    resource_slurm_settings: dict[str, Value[Any]] = field(default_factory=dict)  # the compute resource's
    scripts: list[BootScript] = field(default_factory=list)
    policies: list[Value[str]] = field(default_factory=list)
    root_volume_gib: Value[int] | None = None
    scratch: Value[str] | None = None  # mount directory of the NVMe disks
    extra: dict[str, Value[Any]] = field(
        default_factory=dict
    )  # what one format alone says (market_type, threads_per_core, ...)

    @property
    def label(self) -> str:
        """How a message names this queue."""
        names = [v.value for v in (self.name, self.resource) if v is not None and v.value]
        return "/".join(names) or "the queue"


@dataclass(slots=True)
class Link:
    """A link between a file system and a bucket."""

    bucket: Value[str] | None
    span: Span
    exports: bool = True  # changed files go back to the bucket by themselves


@dataclass(slots=True)
class Storage:
    """A file system."""

    span: Span
    kind: str  # lustre | openzfs | ontap | efs | ebs | raid | nvme | cache
    name: Value[str] | None = None
    mount: Value[str] | None = None
    existing: Value[str] | None = None  # the id of a file system that is not created here
    capacity_gib: Value[float] | None = None
    deployment: Value[str] | None = None  # PERSISTENT_1 | PERSISTENT_2 | SCRATCH_1 | SCRATCH_2
    throughput: Value[int] | None = None  # per TiB (Lustre) or whole (OpenZFS)
    media: Value[str] | None = None  # SSD | HDD
    drive_cache: Value[str] | None = None
    kms_key: Value[str] | None = None
    backup_days: Value[int] | None = None
    import_path: Value[str] | None = None
    export_path: Value[str] | None = None
    chunk_size: Value[int] | None = None
    auto_import: Value[str] | None = None
    links: list[Link] = field(default_factory=list)
    version: Value[str] | None = None
    metadata: Value[str] | None = None
    efa: Value[bool] | None = None
    deletion_policy: Value[str] | None = None
    encrypted: Value[bool] | None = None
    subnets: list[Value[str]] = field(default_factory=list)


@dataclass(slots=True)
class Head:
    """The head (login, controller) node."""

    span: Span
    instance: Value[str] | None = None
    key: Value[str] | None = None
    subnet: Value[str] | None = None
    security_groups: list[Value[str]] = field(default_factory=list)
    policies: list[Value[str]] = field(default_factory=list)
    scripts: list[BootScript] = field(default_factory=list)
    root_volume_gib: Value[int] | None = None
    imds_secured: Value[bool] | None = None
    allowed_ips: list[Value[str]] = field(default_factory=list)  # who may connect by ssh or DCV, login nodes included


@dataclass(slots=True)
class Database:
    """The Slurm accounting database a cluster uses."""

    span: Span
    uri: Value[str] | None = None
    user: Value[str] | None = None
    secret: Value[str] | None = None


@dataclass(slots=True)
class Cluster:
    """A cluster, or the part of one that a file describes."""

    span: Span
    platform: str  # parallelcluster | eks | hyperpod | batch | local ...
    name: Value[str] | None = None
    region: Value[str] | None = None
    zones: list[Value[str]] = field(default_factory=list)
    version: Value[str] | None = None  # of Kubernetes (EKS) or of ParallelCluster where the file says it
    os: Value[str] | None = None
    image: Value[str] | None = None
    imds: Value[str] | None = None  # v1.0 | v2.0
    head: Head | None = None
    queues: list[Queue] = field(default_factory=list)
    storages: list[Storage] = field(default_factory=list)
    slurm_settings: dict[str, Value[Any]] = field(default_factory=dict)
    slurm_include: Value[str] | None = None
    database: Database | None = None
    containers: Value[str] | None = None
    extra: dict[str, Value[Any]] = field(default_factory=dict)


@dataclass(slots=True)
class PortRule:
    """One rule of a security group."""

    span: Span
    protocol: Value[str] | None = None  # "-1" is everything
    from_port: Value[int] | None = None
    to_port: Value[int] | None = None
    peer: Value[str] | None = None  # a CIDR, or the logical id / sg- id of a group
    itself: bool = False


@dataclass(slots=True)
class SecurityGroup:
    """A security group with the rules the file gives it."""

    span: Span
    name: str
    ingress: list[PortRule] = field(default_factory=list)
    egress: list[PortRule] = field(default_factory=list)
    egress_stated: bool = False
    uses: set[str] = field(default_factory=set)  # what it is attached to: efa, lustre, openzfs, database
    shared: bool = False  # what it is attached to has other groups too
    open_ended: bool = False  # some of its rules are made by a loop


@dataclass(slots=True)
class Interface:
    """One network interface of a launch template."""

    span: Span
    card: Value[int] | None = None
    device: Value[int] | None = None
    kind: Value[str] | None = None  # efa | efa-only | interface
    public_ip: Value[bool] | None = None


@dataclass(slots=True)
class LaunchTemplate:
    """How instances are started, where a file defines it (CloudFormation)."""

    span: Span
    name: str
    instance: Value[str] | None = None
    interfaces: list[Interface] = field(default_factory=list)
    interfaces_span: Span | None = None
    tokens: Value[str] | None = None  # IMDS: required | optional
    hop_limit: Value[int] | None = None
    placement: Value[str] | None = None  # the placement group's name or reference
    market: Value[str] | None = None  # capacity-block | spot
    reservation: Value[str] | None = None
    reservation_group: Value[str] | None = None
    conditional: bool = False  # some interfaces depend on a condition
    users: set[str] = field(default_factory=set)  # what starts instances with it: batch, eks
    user_data: Value[str] | None = None  # of Terraform; a heredoc is not known
    image: Value[str] | None = None  # of Terraform, by its id
    disk: Value[int] | None = None  # of Terraform: GiB of the root volume


@dataclass(slots=True)
class Policy:
    """A grant of access: a managed policy's name or ARN, or an endpoint or inline policy."""

    name: Value[str]
    kind: str = (
        "managed"  # managed | endpoint | inline, or instance | inline-instance where it may be no node that has it
    )


@dataclass(frozen=True, slots=True)
class SlurmRecord:
    """One line of Slurm's own files: a node, a partition, a switch, a GPU, or a single setting."""

    kind: str  # nodename | partitionname | switchname | blockname | gres | setting | include ...
    values: dict[str, Value[str]]  # by key in small letters
