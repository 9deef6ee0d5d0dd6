"""The spec: everything a user may write about a cluster and its jobs, each field defined once. The definitions
serve validation, the JSON schema and the documentation. None means "not written":
`defaults.py` fills it in, and says why."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from trainwright.spec.job import Job, JobKind
from trainwright.spec.part import Part, or_defaults
from trainwright.spec.people import DirectoryField, User
from trainwright.spec.units import Bytes
from trainwright.spec.words import Folder, Host, Name, S3Address, SettingName, Word

PlatformName = Literal["parallelcluster", "eks", "batch", "hyperpod", "hyperpod-eks", "local", "slurm", "kubernetes"]


class CountRange(Part):
    """How many nodes a queue keeps at least and may grow to."""

    min: int = Field(0, ge=0, description="Nodes that are always up.")
    max: int = Field(ge=0, description="Nodes the queue may grow to.")


def _count_range(value: Any) -> Any:
    return {"min": value, "max": value} if isinstance(value, int) and not isinstance(value, bool) else value


Nodes = Annotated[
    CountRange,
    BeforeValidator(_count_range, json_schema_input_type=int | CountRange),
]


class Capacity(Part):
    """Where the instances come from.

    Written as `on-demand`, `spot`, or one of `{reservation: cr-…}`, `{block: cr-…}`, `{group: arn}`,
    `{group: [cr-…, cr-…]}`, `{plan: arn}`."""

    kind: Literal["on-demand", "spot", "reservation", "block", "group", "plan"]
    id: Word | None = None
    reservations: tuple[Word, ...] = ()  # of a group that `up` makes; it has no id before


RESERVATIONS_OF_A_GROUP = 6  # as many as the stack `capacity` takes
_CAPACITY_KINDS = ("reservation", "block", "group", "plan")
_TRAINING_PLAN = re.compile(r"arn:aws[a-z-]*:sagemaker:[a-z0-9-]*:[0-9]{12}:training-plan/[A-Za-z0-9-]+")


def _capacity(value: Any) -> Any:
    if isinstance(value, str):
        if value not in ("on-demand", "spot"):
            raise ValueError(
                f"capacity {value!r} is not on-demand, spot, {{reservation:}}, {{block:}}, {{group:}} or {{plan:}}"
            )
        return {"kind": value}
    if isinstance(value, dict) and "kind" not in value:
        if len(value) != 1 or next(iter(value)) not in _CAPACITY_KINDS:
            raise ValueError("capacity takes exactly one of reservation, block, group or plan, with its id")
        kind, target = next(iter(value.items()))
        if kind == "group" and isinstance(target, (list, tuple)):
            return {"kind": kind, "reservations": _members(target)}
        if not isinstance(target, str):
            raise ValueError(f"capacity {kind} takes an id, such as cr-0a1b2c3d4e5f67890")
        if kind == "plan" and not _TRAINING_PLAN.fullmatch(target):
            raise ValueError("capacity plan takes the ARN of a training plan: arn:aws:sagemaker:…:training-plan/NAME")
        return {"kind": kind, "id": target}
    return value


def _members(target: Any) -> tuple[str, ...]:
    """The reservations of a group that is written as a list."""
    members = tuple(str(one) for one in target)
    if not all(re.fullmatch(r"cr-[0-9a-f]{8,17}", one) for one in members):
        raise ValueError("a group takes an ARN, or a list of reservation ids such as cr-0a1b2c3d4e5f67890")
    if not 2 <= len(set(members)) == len(members) <= RESERVATIONS_OF_A_GROUP:
        raise ValueError(f"a group has 2 to {RESERVATIONS_OF_A_GROUP} different reservations")
    return members


class _CapacityInput(Part):
    """Exactly one of the four."""

    reservation: Word | None = Field(None, description="Id of an On-Demand Capacity Reservation (cr-…).")
    block: Word | None = Field(None, description="Id of a Capacity Block for ML (cr-…).")
    group: Word | tuple[Word, ...] | None = Field(
        None, description="ARN of a resource group of reservations, or a list of reservation ids that `up` groups."
    )
    plan: Word | None = Field(
        None, description="Platforms hyperpod and hyperpod-eks: ARN of a SageMaker training plan."
    )


CapacityField = Annotated[
    Capacity,
    BeforeValidator(_capacity, json_schema_input_type=Literal["on-demand", "spot"] | _CapacityInput),
]


class Script(Part):
    """A boot script: an https or s3 address pinned to a version, and its arguments."""

    source: Word = Field(description="Address of the script: https://… at a fixed commit or tag, or s3://bucket/key.")
    args: tuple[Word, ...] = Field((), description="Arguments the script is called with.")


class Queue(Part):
    """A group of equal nodes that jobs are sent to."""

    name: Name = Field(description="Name of the queue: lower-case letters, digits and hyphens, at most 25.")
    instance: Word | None = Field(None, description="EC2 instance type, such as p5.48xlarge.")
    count: Nodes | None = Field(None, description="Nodes: a number, or {min: 0, max: 16}.")
    nodes: int | None = Field(None, ge=1, le=4096, description="platform local: how many nodes to start.")
    cpus: int | None = Field(None, ge=1, description="platform local: CPUs per node.")
    gpus: int | None = Field(None, ge=0, description="platform local: (stand-in) GPUs per node.")
    capacity: CapacityField = Field(
        Capacity(kind="on-demand"),
        description="on-demand (default), spot, {reservation: cr-…}, {block: cr-…}, {group: arn} or {plan: arn}.",
    )
    placement: bool | Word | None = Field(
        None,
        description="Cluster placement group: true, false, or the name of an existing one. Unset: by rule of thumb.",
    )
    efa: bool | None = Field(None, description="Elastic Fabric Adapter. Unset: on where the instance has it.")
    root_volume: Bytes | None = Field(None, description="Size of a node's root volume, such as 200GiB.")
    scripts: tuple[Script, ...] = Field((), description="Boot scripts of this queue's nodes, in order.")
    exclusive: bool = Field(True, description="A job has whole nodes to itself.")
    provisioner: Literal["managed", "self-managed", "karpenter"] | None = Field(
        None,
        description="platform eks: what makes the nodes. managed: a managed node group; self-managed: a node group "
        "that EKS does not repair or update; karpenter: nodes come with jobs and go when idle. Unset: karpenter for "
        "`{min: 0, max: …}`, else managed.",
    )


class Lustre(Part):
    """FSx for Lustre: the fast shared file system for data and checkpoints."""

    id: Word | None = Field(None, description="An existing file system (fs-…); nothing is created then.")
    capacity: Bytes | None = Field(None, description="Size, such as 4.8TiB. 1.2 TiB or a multiple of 2.4 TiB.")
    throughput: int | None = Field(
        None, description="MB/s per TiB: 125, 250, 500 or 1000 (persistent-1: 50, 100, 200)."
    )
    deployment: Literal["persistent-1", "persistent-2", "scratch-1", "scratch-2"] | None = Field(
        None, description="Deployment type. Default persistent-2."
    )
    compression: bool | None = Field(None, description="LZ4 compression. Default on.")
    efa: bool = Field(False, description="EFA-enabled Lustre (persistent-2; large minimum sizes).")
    managed: bool = Field(
        False, description="Let the cluster create and own it (parallelcluster) rather than a stack that outlives it."
    )


class OpenZfs(Part):
    """FSx for OpenZFS: home directories."""

    id: Word | None = Field(None, description="An existing volume (fsvol-…); nothing is created then.")
    capacity: Bytes | None = Field(None, description="Size, such as 512GiB.")
    throughput: int | None = Field(None, description="MB/s of the file system, such as 512.")


class Ebs(Part):
    """An EBS volume of the head node, shared over NFS."""

    capacity: Bytes = Field(description="Size, such as 200GiB.")


class Efs(Part):
    """Amazon EFS."""

    id: Word | None = Field(None, description="An existing file system (fs-…).")


class Storage(Part):
    """A file system, by the folder it is mounted at. Exactly one of lustre, openzfs, efs, ebs or nvme."""

    mount: Folder = Field(description="Folder on every node, such as /fsx.")
    lustre: Lustre | None = Field(None, description="FSx for Lustre.")
    openzfs: OpenZfs | None = Field(None, description="FSx for OpenZFS.")
    efs: Efs | None = Field(None, description="Amazon EFS.")
    ebs: Ebs | None = Field(None, description="An EBS volume shared by the head node.")
    nvme: Literal["raid0"] | None = Field(
        None, description="The instance's own NVMe disks, striped. Lost when the node goes."
    )
    bucket: Word | None = Field(
        None, description="S3 bucket linked to a Lustre file system both ways: s3://name[/prefix]."
    )
    folder: Word | None = Field(None, description="platform local: a folder of this machine.")

    @model_validator(mode="after")
    def _one_kind(self) -> Storage:
        kinds = [k for k in ("lustre", "openzfs", "efs", "ebs", "nvme", "folder") if getattr(self, k) is not None]
        if len(kinds) != 1:
            said = " and ".join(kinds) if kinds else "none"
            raise ValueError(f"storage takes exactly one of lustre, openzfs, efs, ebs, nvme, folder; here: {said}")
        if self.bucket is not None and self.lustre is None:
            raise ValueError("only a lustre file system can be linked to a bucket")
        return self

    @property
    def kind(self) -> str:
        return next(k for k in ("lustre", "openzfs", "efs", "ebs", "nvme", "folder") if getattr(self, k) is not None)

    @property
    def stack_key(self) -> str:
        """The part of a stack's name that stands for the mount folder."""
        return self.mount.strip("/").replace("/", "-").lower() or "root"


class Head(Part):
    """The head (login) node."""

    instance: Word | None = Field(None, description="EC2 instance type of the head node.")
    key: Word | None = Field(
        None, description="EC2 key pair for ssh (ed25519). Unset: reach the node through Session Manager."
    )
    host: Host | None = Field(None, description="platform slurm: where ssh reaches the head node, such as user@head.")
    ssh_from: Word | None = Field(
        None, description="Addresses that may reach ssh, as a CIDR such as 203.0.113.0/24. Default: none."
    )
    root_volume: Bytes | None = Field(None, description="Size of its root volume.")
    scripts: tuple[Script, ...] = Field((), description="Boot scripts of the head node, in order.")


class Software(Part):
    """Operating system, image and container runtime."""

    os: Literal["ubuntu2204", "ubuntu2404", "alinux2", "alinux2023", "rhel8", "rhel9", "rocky8", "rocky9"] | None = (
        Field(None, description="Operating system of the nodes.")
    )
    image: Word = Field("stock", description="stock, or the id of an image of your own (ami-…).")
    containers: Literal["none", "docker", "enroot", "docker+enroot"] | None = Field(
        None, description="Container runtime: docker, enroot (with Slurm's pyxis plugin), docker+enroot, or none."
    )
    runtime: Literal["managed", "none"] | Folder | None = Field(
        None,
        description="Python environment of jobs without a container: managed (made on shared storage by the head "
        "node), none, or the folder of a virtual environment of your own.",
    )


class Network(Part):
    """Existing network parts. What is not named is created by the network stack."""

    vpc: Word | None = Field(None, description="Existing VPC (vpc-…).")
    public_subnet: Word | None = Field(None, description="Existing subnet of the head node (subnet-…).")
    private_subnet: Word | None = Field(None, description="Existing subnet of the compute nodes (subnet-…).")
    security_group: Word | None = Field(None, description="Existing EFA-valid security group (sg-…).")
    zones: int = Field(1, ge=1, le=6, description="Availability zones of a created network.")
    more_zones: tuple[Word, ...] = Field(
        (), max_length=5, description="Which zones to add to `zone`, written the same way (id or name)."
    )


class Accounting(Part):
    """Slurm accounting. `true` creates an Aurora database; or name an existing one."""

    uri: Word | None = Field(None, description="host:port of an existing MySQL-compatible database.")
    user: Word | None = Field(None, description="User name in that database.")
    secret: Word | None = Field(None, description="ARN of the secret that holds its password.")
    subnets: tuple[Word, ...] = Field(
        (), description="Private subnets in two zones for the created database, when the network exists already."
    )


AccountingField = Annotated[
    Accounting | None, BeforeValidator(or_defaults, json_schema_input_type=bool | Accounting | None)
]


class Mail(Part):
    """Where alerts are mailed to, and through which server."""

    to: Word = Field(description="Address that gets the alerts.")
    sender: Word = Field(description="Address that they come from.")
    server: Word = Field(description="host:port of a mail server that takes mail from the cluster without a password.")


class Alerts(Part):
    """Where alerts go, beside the dashboards."""

    webhook: Word | None = Field(None, description="URL that gets a POST with each group of alerts.")
    mail: Mail | None = Field(None, description="Mail, through a server of your network.")
    sns: Word | None = Field(None, description="ARN of an SNS topic whose policy lets the head node's role publish.")


class Monitoring(Part):
    """Exporters on every node, and a Prometheus with rules, alerts and dashboards. `true` takes the defaults."""

    alerts: Alerts = Field(Alerts(), description="Where alerts go. Default: nowhere but the dashboards.")
    retention_days: int = Field(30, ge=1, description="Days that Prometheus keeps what it measured.")
    remote_write: Annotated[Word, Field(pattern=r"^https?://[^\s'\"]+$")] | None = Field(
        None, description="Address that Prometheus also writes to, such as that of Amazon Managed Prometheus."
    )


MonitoringField = Annotated[
    Monitoring | None, BeforeValidator(or_defaults, json_schema_input_type=bool | Monitoring | None)
]


class Kubernetes(Part):
    """Platforms eks and hyperpod-eks: where on the cluster jobs run, and what they find there."""

    namespace: Word = Field("default", description="Namespace of the jobs.")
    context: Word | None = Field(None, description="Context of the kubeconfig. Default: the current one.")
    kind: JobKind = Field("pytorchjob", description="Kind of a job that names none: what the cluster has installed.")
    kueue: Word | None = Field(
        None, description="Kueue's LocalQueue of the namespace: jobs wait there until all their pods fit."
    )
    gang: Literal["volcano", "scheduler-plugins"] | None = Field(
        None,
        description="Gang scheduler that the training operator or MPI operator works with: all pods of a job start, or "
        "none. Kueue admits a job as a whole by itself.",
    )
    service_account: Word | None = Field(None, description="Service account of the pods, such as one that may read S3.")
    code: S3Address | None = Field(
        None,
        description="Place in S3 (s3://bucket/prefix) that `submit` puts the code of a script to, for pods to fetch. "
        "Default: a ConfigMap of the run, which holds 720 KB.",
    )
    claims: dict[Word, Word] = Field(
        {}, description="PersistentVolumeClaim by mount folder. Default: the folder's name (/fsx: fsx, /a/b: a-b)."
    )
    subnets: tuple[Word, ...] = Field(
        (), description="Private subnets in two zones for the control plane, when the network exists already."
    )
    api_from: tuple[Word, ...] = Field(
        (), description="Addresses that may reach the API of a created cluster, such as 203.0.113.0/24. Default: any."
    )


class BatchService(Part):
    """Platform batch: the queues and roles on AWS Batch."""

    queues: dict[Word, Word] = Field(
        {}, description="Job queue on AWS (name or ARN) by queue of this spec. Default: CLUSTER-QUEUE."
    )
    code: S3Address | None = Field(
        None,
        description="Place in S3 (s3://bucket/prefix) that `submit` puts the code of a script to. The job's role must "
        "be allowed to read it.",
    )
    job_role: Word | None = Field(None, description="ARN of the role that the containers have, such as one to read S3.")
    execution_role: Word | None = Field(None, description="ARN of the role that fetches secrets; needed to use them.")


class HyperPod(Part):
    """Platforms hyperpod and hyperpod-eks: how SageMaker watches over the nodes."""

    health_checks: tuple[Literal["stress", "connectivity"], ...] = Field(
        (),
        description="Deep health checks of new accelerator nodes, before the first job: stress (each node, about an "
        "hour) and connectivity (nodes together). Default: none.",
    )
    recovery: bool = Field(True, description="Reboot or replace a node that fails a health check.")


class Spec(Part):
    """A training cluster and the jobs that run on it."""

    name: Name = Field(description="Name of the cluster.")
    platform: PlatformName = Field(description="What the cluster is built with.")
    region: Word | None = Field(None, description="AWS region, such as us-east-2.")
    zone: Annotated[Word | None, BeforeValidator(lambda zone: None if zone == "auto" else zone)] = Field(
        None, description="Availability zone id (use2-az3) or name (us-east-2c); auto: one that offers the instances."
    )
    queues: tuple[Queue, ...] = Field(min_length=1, description="Groups of equal nodes.")
    storage: tuple[Storage, ...] = Field((), description="File systems, by mount folder.")
    head: Head = Field(Head(), description="The head (login) node.")
    software: Software = Field(Software(), description="Operating system, image and containers.")
    network: Network = Field(Network(), description="Existing network parts to use.")
    accounting: AccountingField = Field(None, description="Slurm accounting database: true, or an existing one.")
    monitoring: MonitoringField = Field(None, description="Exporters, dashboards and alerts: true, or where alerts go.")
    tags: dict[Word, Word] = Field({}, description="Tags on everything that is created.")
    slurm: dict[SettingName, Word | int] = Field({}, description="Further slurm.conf settings of the cluster.")
    kubernetes: Kubernetes = Field(Kubernetes(), description="Platforms eks and hyperpod-eks: where jobs run.")
    batch: BatchService = Field(BatchService(), description="Platform batch: job queues and roles.")
    hyperpod: HyperPod = Field(HyperPod(), description="Platforms hyperpod and hyperpod-eks: care for nodes.")
    users: tuple[User, ...] = Field((), description="People with an account on every node.")
    directory: DirectoryField = Field(
        None, description="Where nodes look users up: true makes an LDAP server with `users`, or an existing directory."
    )
    runs: Word | None = Field(
        None, description="Folder of the cluster that run folders go to. Default: trainwright/runs on shared storage."
    )
    jobs: tuple[Job, ...] = Field((), description="Jobs to run on the cluster.")

    def queue(self, name: str) -> Queue | None:
        """The queue of that name."""
        return next((queue for queue in self.queues if queue.name == name), None)
