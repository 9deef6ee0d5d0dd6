"""The one model every rule looks at. A reader turns a file of any format into it and keeps the positions, so one rule
serves every format. A field is None when the file does not say it; a `Value` that is not `known` was said, but as a
placeholder or reference whose value the file does not hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from trainwright.spec.source import WHOLE_FILE, Node, Span

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Value(Generic[T_co]):
    """A value with its place. `text` is what was written; `key` is where its key stands."""

    value: T_co
    span: Span
    text: str = ""
    key: Span | None = None
    known: bool = True


def known(value: Value[T] | None) -> T | None:
    """The value itself when the file says it plainly, else None."""
    return value.value if value is not None and value.known else None


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
    instances_listed: Value[bool] | None = (
        None  # written as a list (`Instances`), where one type can also be written plainly
    )
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
    scratch: Value[str] | None = None  # mount folder of the NVMe disks
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


@dataclass(slots=True)
class Storage:
    """A file system."""

    span: Span
    kind: str  # lustre | openzfs | ontap | efs | ebs | nvme | cache
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
    """How instances are started, where a file spells it out (CloudFormation)."""

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
    users: set[str] = field(default_factory=set)  # what starts instances with it: batch, eks


@dataclass(slots=True)
class Policy:
    """A grant of access: a managed policy's name or ARN, or an endpoint or inline policy."""

    name: Value[str]
    kind: str = "managed"  # managed | endpoint | inline


@dataclass(slots=True)
class EnvVar:
    """An environment variable that a job or image sets."""

    name: str
    value: Value[str]
    span: Span
    comment: str = ""  # the comment on or above the line: a reason or benchmark note silences ENV002


@dataclass(slots=True)
class Command:
    """One command of a shell script, in words, with the place of each."""

    words: list[Value[str]]
    span: Span
    inside_srun: bool = False
    line_text: str = ""
    options: dict[str, Value[str]] = field(default_factory=dict)  # without dashes, hyphens as underscores
    batch_variables: frozenset[str] = frozenset()  # unknown variables that the batch script itself expands
    runner: Command | None = None  # the srun, mpirun or docker that starts it
    conditional: bool = False  # inside an if, a loop or a function

    @property
    def program(self) -> str:
        return self.words[0].value if self.words else ""

    def option(self, *names: str) -> Value[str] | None:
        """The value of `--name value` or `--name=value`; an option without a value gives an empty string."""
        for index, word in enumerate(self.words):
            for name in names:
                if word.value == name:
                    following = self.words[index + 1] if index + 1 < len(self.words) else None
                    if following is None or following.value.startswith("--"):
                        return Value("", word.span, word.text)
                    return following
                if word.value.startswith(name + "="):
                    return Value(word.value[len(name) + 1 :], word.span, word.text)
        return None


@dataclass(slots=True)
class ModelDims:
    """The shape of a model as a job states it."""

    span: Span
    name: Value[str] | None = None
    hidden: Value[int] | None = None
    layers: Value[int] | None = None
    heads: Value[int] | None = None
    kv_heads: Value[int] | None = None
    ffn: Value[int] | None = None
    vocab: Value[int] | None = None
    tokenizer_vocab: Value[int] | None = None
    max_position: Value[int] | None = None
    experts: Value[int] | None = None


@dataclass(slots=True)
class Job:
    """A job, from an sbatch script, a Kubernetes manifest or a spec of ours."""

    span: Span
    scheduler: str  # slurm | kubernetes | batch | spec
    name: Value[str] | None = None
    platform: str = ""  # hyperpod where the file shows it
    instance: Value[str] | None = None
    nodes: Value[int] | None = None
    gpus_per_node: list[Value[int]] = field(default_factory=list)  # everywhere the file says it
    efa_per_node: list[Value[int]] = field(default_factory=list)
    processes_per_node: Value[int] | None = None
    tasks_per_node: Value[int] | None = None
    cpus_per_task: Value[int] | None = None
    workers: Value[int] | None = None  # loader processes a rank
    exclusive: Value[bool] | None = None
    directives: dict[str, Value[str]] = field(default_factory=dict)  # sbatch long options, without the dashes
    env: list[EnvVar] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    tensor: Value[int] | None = None
    pipeline: Value[int] | None = None
    context: Value[int] | None = None
    expert: Value[int] | None = None
    virtual: Value[int] | None = None
    shard: Value[int] | None = None
    replicate: Value[int] | None = None
    global_batch: Value[int] | None = None  # sequences a step
    micro_batch: Value[int] | None = None
    sequence: Value[int] | None = None
    model: ModelDims | None = None
    warmup: Value[int] | None = None
    decay: Value[int] | None = None
    steps: Value[int] | None = None
    checkpoint_dir: Value[str] | None = None
    checkpoint_steps: Value[int] | None = None
    checkpoint_keep: Value[int] | None = None
    datasets: dict[str, Value[str]] = field(default_factory=dict)  # train, valid, test
    launch: Command | None = None  # the command that starts the ranks
    script: ShellScript | None = None  # the script it stands in
    pod: Pod | None = None
    image: Value[str] | None = None
    mounts: list[Value[str]] = field(default_factory=list)
    queue: Queue | None = None  # the queue it runs on, where the file holds both
    extra: dict[str, Value[Any]] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return self.name.value if self.name is not None and self.name.value else "the job"


@dataclass(slots=True)
class ShellScript:
    """A shell script's text and commands: a launcher, a boot script, or a command block inside another file."""

    span: Span
    text: str
    commands: list[Command] = field(default_factory=list)
    env: list[EnvVar] = field(default_factory=list)  # what is exported
    kind: str = "shell"  # sbatch | shell | dockerfile
    first_line: int = 1
    assignments: list[EnvVar] = field(default_factory=list)  # every variable that is given a value, exported or not
    assigned: set[str] = field(default_factory=set)  # names that get a value in any way (read, for, :=)
    directives: list[tuple[str, Value[str]]] = field(default_factory=list)  # #SBATCH options, long names, in order
    late_directives: list[Span] = field(default_factory=list)  # #SBATCH lines after the first command: Slurm skips them
    comments: dict[int, str] = field(default_factory=dict)  # by line
    sources_others: bool = False  # takes in another script, which may set anything
    stray_braces: list[Span] = field(default_factory=list)


@dataclass(slots=True)
class Volume:
    """A volume of a pod."""

    span: Span
    name: Value[str]
    kind: str  # emptyDir | hostPath | persistentVolumeClaim | configMap | secret ...
    medium: Value[str] | None = None


@dataclass(slots=True)
class Container:
    """A container of a pod, as far as rules ask."""

    span: Span
    name: Value[str] | None = None
    image: Value[str] | None = None
    requests: dict[str, Value[str]] = field(default_factory=dict)
    limits: dict[str, Value[str]] = field(default_factory=dict)
    mounts: list[tuple[Value[str], str]] = field(default_factory=list)  # path and volume's name
    env: list[EnvVar] = field(default_factory=list)
    workdir: Value[str] | None = None


@dataclass(slots=True)
class Pod:
    """A pod template of a Kubernetes file; `job` is what it runs."""

    span: Span
    kind: str  # of the object it stands in: PyTorchJob, Pod ...
    role: str = ""  # Master, Worker, Launcher, the name of a replicated job
    replicas: Value[int] | None = None
    containers: list[Container] = field(default_factory=list)
    volumes: list[Volume] = field(default_factory=list)
    instance: Value[str] | None = None
    instances: list[Value[str]] = field(default_factory=list)  # every type its selectors allow
    host_network: bool = False
    host_ipc: bool = False
    mounted: set[str] = field(default_factory=set)  # volumes that any container uses, the first ones included


@dataclass(slots=True)
class Pin:
    """A version of a piece of software that the file fixes (or fails to fix)."""

    software: str  # as the catalog names it: efa | ofi_nccl | nccl | cuda | driver | libfabric | torch | kernel ...
    version: Value[str]


@dataclass(slots=True)
class File:
    """One file, read: what it says about clusters and jobs, with every position."""

    path: str
    text: str
    format: str
    nodes: list[Node] = field(default_factory=list)
    clusters: list[Cluster] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    scripts: list[ShellScript] = field(default_factory=list)
    security_groups: list[SecurityGroup] = field(default_factory=list)
    launch_templates: list[LaunchTemplate] = field(default_factory=list)
    storages: list[Storage] = field(default_factory=list)  # those of no cluster (CloudFormation)
    policies: list[Policy] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)
    pins: list[Pin] = field(default_factory=list)
    siblings: dict[str, File] = field(default_factory=dict)  # files beside this one that belong to it, by format
    span: Span = WHOLE_FILE

    @property
    def queues(self) -> Iterator[tuple[Cluster, Queue]]:
        """Every queue of the file with its cluster."""
        for cluster in self.clusters:
            for queue in cluster.queues:
                yield cluster, queue

    @property
    def all_storages(self) -> Iterator[Storage]:
        """Every file system of the file, inside a cluster or not."""
        for cluster in self.clusters:
            yield from cluster.storages
        yield from self.storages

    @property
    def boot_scripts(self) -> Iterator[BootScript]:
        for cluster in self.clusters:
            if cluster.head is not None:
                yield from cluster.head.scripts
            for queue in cluster.queues:
                yield from queue.scripts

    @property
    def all_env(self) -> Iterator[EnvVar]:
        """Every environment variable that a job or script sets."""
        for job in self.jobs:
            yield from job.env
        for script in self.scripts:
            yield from script.env

    def scalars(self) -> Iterator[Node]:
        """Every plain value of a YAML or JSON file."""
        for root in self.nodes:
            for node in root.walk():
                if node.is_scalar:
                    yield node
