"""STO: access to a file system, and where it is mounted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainwright.catalog.storage import storage_ports
from trainwright.check.finding import Level
from trainwright.check.model import Cluster, File, PortRule, SecurityGroup, Value, known
from trainwright.check.readers.terraform import rules_elsewhere
from trainwright.check.readers.terraform_variables import is_written_beside
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.tables import machines, table
from trainwright.spec.source import Span

if TYPE_CHECKING:
    from trainwright.check.facts import AwsFacts, GroupRule

_KINDS = ("lustre", "openzfs")
_MAIN = {"lustre": 988, "openzfs": 2049}  # the port that a mount begins with
_WITHOUT_THE_REST: dict[str, Level] = {"lustre": "warning", "openzfs": "info"}  # NFS 4 needs no other
_REST = (
    "AWS requires these ports beside the first (988 and 1018 to 1023 for Lustre): what clients and servers send "
    "to them is dropped."
)
_NUMBERS = {"6": "tcp", "17": "udp"}


@rule("STO005", "error")
def file_system_is_reachable(file: File) -> Iterator[Problem]:
    """The security group of a file system must admit its protocol.

    Lustre: tcp 988 and 1018 to 1023. OpenZFS (NFS): tcp and udp 111, 2049 and 20001 to 20003. A group that opens 988 is
    taken as a Lustre group even where the template holds no file system. Where only the ports beside the first (988 or
    2049) are missing, it is a warning, for OpenZFS a note. A file system with several groups is not reported.

    Why: the mount hangs, and nodes are replaced again and again because they never report ready: ParallelCluster
    waits 35 minutes (2,100 seconds) for each.

    Fix: add the ports that the message names, from the nodes' group.

    Source: FSx user guides, access control with VPC security groups; ParallelCluster,
    ExistingFsxNetworkingValidator; ParallelCluster 3.16, NODE_BOOTSTRAP_TIMEOUT.

    When to ignore: another security group of the file system admits the missing ports.
    """
    for group in file.security_groups:
        uses = {use for use in group.uses if use in _KINDS}
        if not uses and _opens(group.ingress, "tcp", 988) and not _opens(group.ingress, "tcp", 22):
            uses = {"lustre"}
        if any(_vague(one) for one in group.ingress) or group.shared or group.open_ended:
            continue
        for use in sorted(uses):
            missing = _missing(group, use)
            if missing and not _has_rules_elsewhere(file, group):
                served = _opens(group.ingress, "tcp", _MAIN[use])
                yield problem(
                    group.span,
                    f"{group.name}: {use} {'also ' if served else ''}needs ingress for {', '.join(missing)}",
                    "add ingress rules for them, from the nodes' security group",
                    # A group without a rule may get its rules from whoever uses the module.
                    level=_WITHOUT_THE_REST[use] if served else None if group.ingress else "info",
                    why=_REST if served else "",
                )


def _has_rules_elsewhere(file: File, group: SecurityGroup) -> bool:
    """Whether another file of a Terraform configuration adds rules to the group."""
    return file.format == "terraform" and is_written_beside(file.path, rules_elsewhere(group.name))


def _vague(one: PortRule) -> bool:
    return any(value is not None and not value.known for value in (one.protocol, one.from_port, one.to_port))


def _missing(group: SecurityGroup, use: str) -> list[str]:
    shut = []
    for protocol, low, high in _needed(use):
        ports = [port for port in range(low, high + 1) if not _opens(group.ingress, protocol, port)]
        if ports:
            shut.append(_words(protocol, ports[0], ports[-1]))
    return shut


def _needed(kind: str) -> list[tuple[str, int, int]]:
    return [(protocol, low, high) for protocol in ("tcp", "udp") for low, high in storage_ports(kind, protocol)]


def _words(protocol: str, low: int, high: int) -> str:
    return f"{protocol} {low}" if low == high else f"{protocol} {low}-{high}"


def _opens(rules: list[PortRule], protocol: str, port: int) -> bool:
    for one in rules:
        named = known(one.protocol)
        if named in ("-1", "all"):
            return True
        if named is None or _NUMBERS.get(named, named) != protocol or not one.from_port or not one.to_port:
            continue
        if one.from_port.value <= port <= one.to_port.value:
            return True
    return False


@rule("STO005", "error", needs="aws")
def existing_file_system_is_reachable(file: File, aws: AwsFacts) -> Iterator[Problem]:
    """The security groups of an existing file system must admit its protocol.

    With AWS access the groups of the file system are read and their ports compared with what the protocol needs.

    Why: the mount hangs, and nodes are replaced again and again because they never report ready: ParallelCluster
    waits 35 minutes (2,100 seconds) for each.

    Fix: add the ports that the message names to one of the groups.

    Source: ParallelCluster, ExistingFsxNetworkingValidator; ParallelCluster 3.16, NODE_BOOTSTRAP_TIMEOUT.

    When to ignore: the groups will be changed before the cluster is created.
    """
    for storage in file.all_storages:
        id = known(storage.existing)
        details = aws.file_system(id) if id is not None and storage.kind in _KINDS else None
        if details is None or details.kind not in _KINDS or storage.existing is None:
            continue
        groups = [group for group in map(aws.security_group, details.groups) if group is not None]
        rules = [one for group in groups for one in group.ingress]
        missing = [
            _words(protocol, low, high)
            for protocol, low, high in _needed(details.kind)
            if not _lets_in(rules, protocol, low, high)
        ]
        if groups and missing:
            yield problem(
                storage.existing,
                f"the security groups of {id} do not admit {', '.join(missing)}",
                f"add them to {details.groups[0]}, from the nodes' security group",
            )


def _lets_in(rules: list[GroupRule], protocol: str, low: int, high: int) -> bool:
    matching = [one for one in rules if one.protocol in ("-1", protocol)]
    return all(
        any(one.protocol == "-1" or one.from_port <= port <= one.to_port for one in matching)
        for port in range(low, high + 1)
    )


@rule("STO006", "error")
def mounts_do_not_collide(file: File) -> Iterator[Problem]:
    """Mount directories must be free, different and not nested, and the storage within the limits.

    ParallelCluster mounts the nodes' own disks at `/scratch` unless `EphemeralVolume` says otherwise (a warning where a
    shared one has that directory), and reserves directories of the system and its own. Names of storage have at most 30
    characters and are not `default`; one new FSx, one new EFS and five EBS volumes per cluster (a RAID array counts as
    none of them), twenty existing ones.

    Why: the cluster is refused; where it is not, one mount hides another.

    Fix: mount at a directory of its own, such as /fsx.

    Source: ParallelCluster, SharedStorageMountDirValidator, DuplicateMountDirValidator, OverlappingMountDirValidator,
    constants.

    When to ignore: never in ParallelCluster; elsewhere when the nesting is intended.
    """
    for cluster in file.clusters:
        if cluster.platform == "local":
            continue
        yield from _colliding(cluster)
        if cluster.platform == "parallelcluster":
            yield from _reserved_mounts(cluster)
            yield from _storage_names(cluster)
        # A spec's file systems are created by separate stacks, not by the cluster.
        if file.format == "parallelcluster":
            yield from _storage_counts(cluster)


def _path(mount: Value[str]) -> str:
    return "/" + mount.value.strip("/")


def _reserved_mounts(cluster: Cluster) -> Iterator[Problem]:
    kept = table("parallelcluster")["reserved_mounts"]
    for storage in cluster.storages:
        if storage.mount is not None and storage.mount.known and _path(storage.mount) in kept:
            yield problem(
                storage.mount,
                f"{_path(storage.mount)} is a directory of the system or of ParallelCluster",
                "mount at a separate directory, such as /fsx",
            )


def _colliding(cluster: Cluster) -> Iterator[Problem]:
    shared = [s.mount for s in cluster.storages if s.mount is not None and s.mount.known and s.kind != "nvme"]
    local = _local_mounts(cluster)
    kept = set(table("parallelcluster")["reserved_mounts"])
    seen: list[Value[str]] = []
    for mount in shared + local:
        path = _path(mount)
        twin = next((other for other in seen if _path(other) == path), None)
        nested = next((other for other in seen if _inside(path, _path(other))), None)
        if twin is not None:
            yield problem(
                mount,
                f"{path} is mounted twice (first on line {twin.span.line})" if mount.text else _by_default(path, twin),
                "give each its own directory" if mount.text else "mount the shared one elsewhere",
                level="warning" if mount in local and cluster.platform == "parallelcluster" else None,
            )
        elif nested is not None and not {path, _path(nested)} & kept:  # which is reported already
            yield problem(mount, f"{path} and {_path(nested)} are nested", "give each its own directory")
        # Scratch disks of two queues may share a directory: they are on different nodes.
        if mount not in local:
            seen.append(mount)


_DEFAULT_SCRATCH = "/scratch"


def _local_mounts(cluster: Cluster) -> list[Value[str]]:
    """Where nodes mount their own disks; ParallelCluster does where they have some, named or not."""
    mounts: dict[Span, Value[str]] = {}
    by_default: list[Value[str]] = []
    for queue in cluster.queues:
        with_disks = [value for value, type_ in machines(queue) if type_.nvme_gb]
        if queue.scratch is not None and queue.scratch.known and (with_disks or cluster.platform != "parallelcluster"):
            mounts.setdefault(queue.scratch.span, queue.scratch)
        elif queue.scratch is None and with_disks and cluster.platform == "parallelcluster":
            by_default.append(Value(_DEFAULT_SCRATCH, with_disks[0].span))
    return [*mounts.values(), *by_default[:1]]


def _by_default(path: str, shared: Value[str]) -> str:
    return f"ParallelCluster mounts the disks of these nodes at {path}, and line {shared.span.line} something else"


def _inside(one: str, other: str) -> bool:
    return one.startswith(other + "/") or other.startswith(one + "/")


def _storage_names(cluster: Cluster) -> Iterator[Problem]:
    limit = table("parallelcluster")["names"]["storage"]
    seen: dict[str, int] = {}
    for storage in cluster.storages:
        name = storage.name
        if name is None or not name.known:
            continue
        if name.value == "default":
            yield problem(name, "`default` cannot name storage", "choose another name")
        elif len(name.value) > limit:
            yield problem(name, f"the name has {len(name.value)} characters; {limit} are allowed", "shorten it")
        elif name.value in seen:
            yield problem(
                name, f"two file systems are named {name.value!r} (first on line {seen[name.value]})", "rename one"
            )
        seen.setdefault(name.value, name.span.line)


def _storage_counts(cluster: Cluster) -> Iterator[Problem]:
    limits = table("parallelcluster")["counts"]
    fsx = [s for s in cluster.storages if s.kind in ("lustre", "openzfs", "ontap", "cache")]
    efs = [s for s in cluster.storages if s.kind == "efs"]
    groups = (
        ([s for s in fsx if s.existing is None], limits["new_fsx"], "new FSx file systems"),
        ([s for s in efs if s.existing is None], limits["new_efs"], "new EFS file systems"),
        ([s for s in fsx if s.existing is not None], limits["existing_fsx"], "existing FSx file systems"),
        ([s for s in efs if s.existing is not None], limits["existing_efs"], "existing EFS file systems"),
        ([s for s in cluster.storages if s.kind == "ebs"], limits["ebs"], "EBS volumes"),
        ([s for s in cluster.storages if s.kind == "raid"], limits["raid"], "RAID arrays"),
    )
    for storages, limit, what in groups:
        if len(storages) > limit:
            yield problem(
                storages[limit].mount or storages[limit].span,
                f"{len(storages)} {what}; ParallelCluster allows {limit}",
                f"keep {limit}, or create the others separately and name their ids",
            )
