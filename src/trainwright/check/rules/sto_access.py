"""STO, continued: who reaches a file system, and where it is mounted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainwright.catalog.storage import storage_ports
from trainwright.check.model import Cluster, File, PortRule, SecurityGroup, Value, known
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.tables import table

if TYPE_CHECKING:
    from trainwright.check.facts import AwsFacts, GroupRule

_KINDS = ("lustre", "openzfs")
_NUMBERS = {"6": "tcp", "17": "udp"}


@rule("STO005", "error")
def file_system_is_reachable(file: File) -> Iterator[Problem]:
    """The security group of a file system must let its protocol in.

    Lustre: tcp 988 and 1018 to 1023. OpenZFS (NFS): tcp and udp 111, 2049 and 20001 to 20003. A group that opens
    988 is taken for a Lustre group even where the template holds no file system.

    Why: the mount hangs, and nodes are replaced for ever because they never report ready.

    Fix: add the ports that the message names, from the nodes' group.

    Source: FSx user guides, access control with VPC security groups; ParallelCluster,
    ExistingFsxNetworkingValidator.
    """
    for group in file.security_groups:
        uses = {use for use in group.uses if use in _KINDS}
        if not uses and _opens(group.ingress, "tcp", 988) and not _opens(group.ingress, "tcp", 22):
            uses = {"lustre"}
        if any(_vague(one) for one in group.ingress):
            continue
        for use in sorted(uses):
            missing = _missing(group, use)
            if missing:
                yield problem(
                    group.span,
                    f"{group.name}: {use} also needs {', '.join(missing)} let in",
                    "add ingress rules for them, from the nodes' security group",
                )


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
        if named == "-1":
            return True
        if named is None or _NUMBERS.get(named, named) != protocol or not one.from_port or not one.to_port:
            continue
        if one.from_port.value <= port <= one.to_port.value:
            return True
    return False


@rule("STO005", "error", needs="aws")
def existing_file_system_is_reachable(file: File, aws: AwsFacts) -> Iterator[Problem]:
    """The security groups in front of an existing file system must let its protocol in.

    With AWS at hand the groups on the file system are read and their ports compared with what the protocol needs.

    Why: the mount hangs, and nodes are replaced for ever because they never report ready.

    Fix: add the ports that the message names to one of the groups.

    Source: ParallelCluster, ExistingFsxNetworkingValidator.
    """
    for storage in file.all_storages:
        id = known(storage.existing)
        found = aws.file_system(id) if id is not None and storage.kind in _KINDS else None
        if found is None or found.kind not in _KINDS or storage.existing is None:
            continue
        groups = [group for group in map(aws.security_group, found.groups) if group is not None]
        rules = [one for group in groups for one in group.ingress]
        missing = [
            _words(protocol, low, high)
            for protocol, low, high in _needed(found.kind)
            if not _lets_in(rules, protocol, low, high)
        ]
        if groups and missing:
            yield problem(
                storage.existing,
                f"the security groups of {id} do not let in {', '.join(missing)}",
                f"add them to {found.groups[0]}, from the nodes' security group",
            )


def _lets_in(rules: list[GroupRule], protocol: str, low: int, high: int) -> bool:
    matching = [one for one in rules if one.protocol in ("-1", protocol)]
    return all(
        any(one.protocol == "-1" or one.from_port <= port <= one.to_port for one in matching)
        for port in range(low, high + 1)
    )


@rule("STO006", "error")
def mounts_do_not_collide(file: File) -> Iterator[Problem]:
    """Mount folders must be free, different, and not inside one another; and storage not too many.

    ParallelCluster keeps folders of the system and its own for itself. Names of storage have at most 30 characters
    and are not `default`; one new FSx, one new EFS and five EBS volumes a cluster, twenty existing ones.

    Why: the cluster is refused; where it is not, one mount hides another.

    Fix: mount at a folder of its own, such as /fsx.

    Source: ParallelCluster, SharedStorageMountDirValidator, DuplicateMountDirValidator,
    OverlappingMountDirValidator, constants.
    """
    for cluster in file.clusters:
        if cluster.platform == "local":
            continue
        yield from _colliding(cluster)
        if cluster.platform == "parallelcluster":
            yield from _reserved_mounts(cluster)
            yield from _storage_names(cluster)
        # What a spec asks for is created by stacks around the cluster, and is no new file system of the cluster's own.
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
                f"{_path(storage.mount)} is a folder of the system or of ParallelCluster",
                "mount at a folder of its own, such as /fsx",
            )


def _colliding(cluster: Cluster) -> Iterator[Problem]:
    shared = [s.mount for s in cluster.storages if s.mount is not None and s.mount.known and s.kind != "nvme"]
    local = list({q.scratch.span: q.scratch for q in cluster.queues if q.scratch and q.scratch.known}.values())
    seen: list[Value[str]] = []
    for mount in shared + local:
        path = _path(mount)
        twin = next((other for other in seen if _path(other) == path), None)
        nested = next((other for other in seen if _inside(path, _path(other))), None)
        if twin is not None:
            yield problem(
                mount, f"{path} is mounted twice (first on line {twin.span.line})", "give each its own folder"
            )
        elif nested is not None:
            yield problem(mount, f"{path} and {_path(nested)} lie inside one another", "give each a folder of its own")
        # Scratch disks of two queues may share a folder: they are on different nodes.
        if mount not in local:
            seen.append(mount)


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
    )
    for storages, limit, what in groups:
        if len(storages) > limit:
            yield problem(
                storages[limit].mount or storages[limit].span,
                f"{len(storages)} {what}; ParallelCluster takes {limit}",
                f"keep {limit}, or make the others outside and name their ids",
            )
