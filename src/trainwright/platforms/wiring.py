"""Which stacks stand around a cluster, with their parameters, and the ids the cluster's own files refer to: those the
spec names, or the outputs of the stacks. Every AWS platform shares this."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainwright.catalog.offerings import zones_of
from trainwright.catalog.regions import zone_kind
from trainwright.catalog.storage import openzfs_throughputs
from trainwright.platforms.directory.join import CA, SYSTEM_CA, DirectoryAccess, users_json
from trainwright.platforms.setting import Setting, gib, lustre_gib
from trainwright.platforms.zones import AUTO, choose_zones
from trainwright.spec.model import Queue, Storage
from trainwright.stacks.library import template
from trainwright.stacks.references import reference

BUCKET_FOLDER = "/data"
ZONES_OF_A_DATABASE = 2


@dataclass(frozen=True, slots=True)
class StackPlan:
    """One CloudFormation stack: a template of ours, its parameters and what it is for."""

    key: str
    template: str
    parameters: Mapping[str, str]
    why: str

    def output(self, name: str) -> str:
        return reference(self.key, self.template, name)


@dataclass(frozen=True, slots=True)
class Ids:
    """What a cluster file refers to: real ids, or the outputs of stacks that are not deployed yet."""

    vpc: str | None
    public_subnet: str
    private_subnets: tuple[str, ...]
    security_group: str | None
    file_systems: Mapping[str, str] = field(default_factory=dict)  # mount folder -> file system or volume id
    database: Mapping[str, str] = field(default_factory=dict)  # uri, user, secret, client (a security group)
    bucket: str | None = None
    directory: DirectoryAccess | None = None


@dataclass(frozen=True, slots=True)
class Wiring:
    stacks: tuple[StackPlan, ...]
    ids: Ids
    zones: int = 1  # of a created network
    zone_subnets: tuple[str, ...] = ()  # private subnets, one per zone, those that no node uses too


def wire(setting: Setting, *, bucket: bool, cluster_owns_lustre: bool, least_zones: int = 1) -> Wiring:
    """The stacks and ids of a spec. `bucket`: boot scripts need a home. `cluster_owns_lustre`: the platform can create
    a Lustre file system itself where the spec says `managed`. `least_zones`: of the network, whatever nodes need."""
    network = _network(setting, least_zones)
    ids = _network_ids(setting, network)
    storage: list[StackPlan] = []
    file_systems: dict[str, str] = {}
    for item in setting.spec.storage:
        stack, file_system = _storage(item, ids, cluster_owns_lustre)
        storage += [stack] if stack is not None else []
        if file_system is not None:
            file_systems[item.mount] = file_system
    accounting, database = _accounting(setting, ids, network)
    home = _bucket(setting) if bucket else None
    people, directory = directory_of(setting, ids, home)
    parts = (network, home, *storage, accounting, people, *_groups(setting))
    stacks = [stack for stack in parts if stack is not None]
    return Wiring(
        tuple(stacks),
        Ids(
            vpc=ids.vpc,
            public_subnet=ids.public_subnet,
            private_subnets=ids.private_subnets,
            security_group=ids.security_group,
            file_systems=file_systems,
            database=database,
            bucket=home.output("BucketName") if home else None,
            directory=directory,
        ),
        zone_count(setting, least_zones),
        _zone_subnets(setting, network),
    )


def _zone_subnets(setting: Setting, network: StackPlan | None) -> tuple[str, ...]:
    if network is None:
        return setting.spec.kubernetes.subnets
    zones = sum(key in network.parameters for key in (f"Zone{n}" for n in range(1, 7)))
    return (network.output("PrivateSubnet"), *(network.output(f"PrivateSubnet{n}") for n in range(2, zones + 1)))


def _network(setting: Setting, least_zones: int) -> StackPlan | None:
    if setting.spec.network.private_subnet is not None:
        return None
    return StackPlan("network", "network", _zones(setting, least_zones), "the spec names no network")


def zone_count(setting: Setting, least: int = 1) -> int:
    """How many zones the network stack has. A database needs two even where the nodes need one."""
    given, database = setting.spec.network, ZONES_OF_A_DATABASE if _creates_database(setting) else 1
    return max(given.zones, 1 + len(given.more_zones), least, database)


def _zones(setting: Setting, least: int) -> dict[str, str]:
    """The zone parameters of the network stack."""
    spec, given, count = setting.spec, setting.spec.network, zone_count(setting, least)
    if spec.zone is not None:
        named = (spec.zone, *given.more_zones)
        by_id = zone_kind(spec.zone) == "id"  # names differ between accounts, so only ids can be added
        others = [zone for zone in zones_of(spec.region or "") if zone not in named] if by_id else []
        zones = [*named, *others][: max(count, len(named))]
        return {"ZoneStyle": str(zone_kind(spec.zone)), **{f"Zone{n}": zone for n, zone in enumerate(zones, 1)}}
    chosen = choose_zones(spec, count, setting.offers).zones
    style = {"ZoneStyle": "id"} if AUTO not in chosen else {}
    return {**style, **{f"Zone{n}": zone for n, zone in enumerate(chosen, 1)}}


def _network_ids(setting: Setting, stack: StackPlan | None) -> Ids:
    given = setting.spec.network
    if stack is None:
        return Ids(given.vpc, str(given.public_subnet), (str(given.private_subnet),), given.security_group)
    # Zones beyond those the user asked for are there for the database; nodes keep to the first.
    asked = max(given.zones, 1 + len(given.more_zones))
    private = [stack.output("PrivateSubnet"), *(stack.output(f"PrivateSubnet{n}") for n in range(2, asked + 1))]
    return Ids(stack.output("Vpc"), stack.output("PublicSubnet"), tuple(private), stack.output("SecurityGroup"))


def _home_of_stack(ids: Ids) -> dict[str, str]:
    """The network parameters of a stack that holds a file system."""
    assert ids.vpc is not None, "check: SPC007"
    assert ids.security_group is not None, "check: SPC007"
    return {"Vpc": ids.vpc, "Subnet": ids.private_subnets[0], "NodeSecurityGroup": ids.security_group}


def _storage(item: Storage, ids: Ids, cluster_owns_lustre: bool) -> tuple[StackPlan | None, str | None]:
    key = item.stack_key
    if item.lustre is not None:
        if item.lustre.id is not None or (item.lustre.managed and cluster_owns_lustre):
            return None, item.lustre.id
        stack = _lustre(key, item, _home_of_stack(ids))
        return stack, stack.output("FileSystemId")
    if item.openzfs is not None:
        if item.openzfs.id is not None:
            return None, item.openzfs.id
        stack = _openzfs(key, item, _home_of_stack(ids))
        return stack, stack.output("RootVolumeId")
    return None, item.efs.id if item.efs is not None else None


def deployment(item: Storage) -> str:
    """FSx's name of a Lustre deployment: persistent-2 -> PERSISTENT_2."""
    assert item.lustre is not None
    return (item.lustre.deployment or "persistent-2").upper().replace("-", "_")


def _lustre(key: str, item: Storage, home: dict[str, str]) -> StackPlan:
    lustre = item.lustre
    assert lustre is not None
    parameters = {
        **home,
        "DeploymentType": deployment(item),
        "Capacity": str(lustre_gib(lustre.capacity)),
        **({"Throughput": str(lustre.throughput)} if lustre.throughput else {}),
        "Compression": "LZ4" if lustre.compression else "NONE",
        "Efa": str(lustre.efa).lower(),
        **({"Bucket": item.bucket, "BucketFolder": BUCKET_FOLDER} if item.bucket else {}),
    }
    return StackPlan(f"lustre-{key}", "lustre", parameters, f"the file system at {item.mount}; it outlives the cluster")


def _openzfs(key: str, item: Storage, home: dict[str, str]) -> StackPlan:
    zfs = item.openzfs
    assert zfs is not None
    kinds = [k for k in ("SINGLE_AZ_HA_2", "SINGLE_AZ_HA_1") if zfs.throughput in openzfs_throughputs(k)]
    parameters = {
        **home,
        "DeploymentType": kinds[0],
        "Capacity": str(gib(zfs.capacity)),
        "Throughput": str(zfs.throughput),
    }
    return StackPlan(f"openzfs-{key}", "openzfs", parameters, f"the folders at {item.mount}; they outlive the cluster")


def _creates_database(setting: Setting) -> bool:
    accounting = setting.spec.accounting
    return accounting is not None and accounting.uri is None


def _accounting(setting: Setting, ids: Ids, network: StackPlan | None) -> tuple[StackPlan | None, dict[str, str]]:
    given = setting.spec.accounting
    if given is None:
        return None, {}
    if given.uri is not None:
        return None, {"uri": given.uri, "user": given.user or "", "secret": given.secret or ""}
    subnets = network.output("PrivateSubnets") if network is not None else ",".join(given.subnets)
    assert ids.vpc is not None, "check: SPC007"
    parameters = {"Vpc": ids.vpc, "Subnets": subnets}
    stack = StackPlan("accounting", "accounting", parameters, "Slurm's job records outlive the head node")
    outputs = {"uri": "Uri", "user": "UserName", "secret": "PasswordSecretArn", "client": "ClientSecurityGroup"}
    return stack, {key: stack.output(name) for key, name in outputs.items()}


def directory_of(setting: Setting, ids: Ids, home: StackPlan | None) -> tuple[StackPlan | None, DirectoryAccess | None]:
    """The stack that makes a directory, where the spec asks for one, and how nodes reach it or one that is there."""
    given, spec = setting.spec.directory, setting.spec
    if given is None:
        return None, None
    if given.uri is not None:
        ca = given.ca or SYSTEM_CA
        return None, DirectoryAccess(given.uri, str(given.base), str(given.reader), str(given.secret), ca)
    assert home is not None, "nodes fetch the script that joins them"
    parameters = {
        **_home_of_stack(ids),
        "ClusterName": spec.name,
        "Bucket": home.output("BucketName"),
        "Users": users_json(spec.users),
    }
    stack = StackPlan("directory", "directory", parameters, "the users of the cluster, with their ssh keys")
    uri, base, reader = (stack.output(name) for name in ("Uri", "Base", "Reader"))
    return stack, DirectoryAccess(uri, base, reader, stack.output("PasswordSecretArn"), CA, stack.output("Certificate"))


def _bucket(setting: Setting) -> StackPlan:
    return StackPlan("bucket", "bucket", {}, "boot scripts are fetched from it; there is room for data")


def capacity_key(queue: Queue) -> str:
    """The key of the stack that groups a queue's reservations."""
    return f"capacity-{queue.name}"


def _groups(setting: Setting) -> list[StackPlan]:
    """A stack for each queue that names several reservations."""
    stacks = []
    for queue in setting.spec.queues:
        if queue.capacity.reservations:
            ids = {f"Reservation{n}": id for n, id in enumerate(queue.capacity.reservations, 1)}
            parameters = {"GroupName": f"{setting.spec.name}-{queue.name}", **ids}
            why = f"queue {queue.name} uses {len(ids)} reservations as one"
            stacks.append(StackPlan(capacity_key(queue), "capacity", parameters, why))
    return stacks


def check_parameters(stack: StackPlan) -> None:
    """A parameter the template does not know, or one it needs and does not get, is our mistake: say so at once."""
    known = template(stack.template)
    unknown = set(stack.parameters) - set(known.parameters)
    missing = known.required - set(stack.parameters)
    if unknown or missing:
        raise KeyError(f"stack {stack.key}: unknown {sorted(unknown)}, missing {sorted(missing)}")
