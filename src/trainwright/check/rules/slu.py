"""SLU: Slurm as ParallelCluster sets it up."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from trainwright.catalog.instances import InstanceType
from trainwright.check import reasons
from trainwright.check.model import Cluster, Database, File, Queue, Value, known
from trainwright.check.pcluster_schema import version_of
from trainwright.check.readers.cfn_template import Template, target, template_of
from trainwright.check.readers.values import bool_at, to_int
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.tables import machines, table
from trainwright.spec.source import Node, Span


@rule("SLU001", "error")
def slurm_settings_are_free(file: File) -> Iterator[Problem]:
    """Custom Slurm settings must not override what ParallelCluster sets itself.

    ParallelCluster writes the settings that start and stop nodes (resume, suspend, prolog, epilog, GresTypes,
    TaskPlugin ...), with an accounting database also those of accounting; and in queues and compute resources the node
    names, CPUs and gres. CustomSlurmSettings and CustomSlurmSettingsIncludeFile exclude each other.

    Why: ParallelCluster refuses to create the cluster.

    Fix: remove the setting, or use ParallelCluster's own key for it (ScaledownIdletime for SuspendTime).

    Source: ParallelCluster, slurm_settings_validator.

    When to ignore: never; ParallelCluster refuses these settings unless its validators are suppressed.
    """
    denied = table("parallelcluster")["slurm_denied"]
    for cluster in file.clusters:
        if cluster.platform != "parallelcluster":
            continue
        accounting = denied["accounting"] if _accounted(file, cluster) else []
        yield from _denied(cluster.slurm_settings, denied["cluster"], "ParallelCluster sets {} itself")
        yield from _denied(
            cluster.slurm_settings, accounting, "with an accounting database ParallelCluster sets {} itself"
        )
        reported: set[Span] = set()
        for queue in cluster.queues:
            # Every compute resource of a queue has the queue's settings; they are reported once.
            settings = {k: v for k, v in queue.slurm_settings.items() if v.span not in reported}
            reported.update(value.span for value in settings.values())
            yield from _denied(settings, denied["queue"], "ParallelCluster sets {} of a queue itself")
            yield from _denied(
                queue.resource_slurm_settings,
                denied["resource"],
                "ParallelCluster sets {} of a compute resource itself",
            )
        yield from _node_names(file)
        if cluster.slurm_settings and cluster.slurm_include is not None:
            yield problem(
                cluster.slurm_include,
                "CustomSlurmSettings and CustomSlurmSettingsIncludeFile exclude each other",
                "keep one of the two",
            )


def _node_names(file: File) -> Iterator[Problem]:
    """Nodes of the user's own: -st- and -dy- mark the nodes that ParallelCluster manages."""
    for root in file.nodes:
        settings = root.get("Scheduling", "SlurmSettings", "CustomSlurmSettings")
        for one in settings.elements() if settings is not None else ():
            for key, node in one.items():
                if key.lower() == "nodename" and ("-st-" in node.text or "-dy-" in node.text):
                    yield problem(
                        node, f"node name {node.text!r}: -st- and -dy- are ParallelCluster's own", "rename it"
                    )


def _accounted(file: File, cluster: Cluster) -> bool:
    stated = [root.get("accounting") for root in file.nodes]
    return cluster.database is not None or any(node is not None and bool(node.value) for node in stated)


_OWN_KEYS = {
    "suspendtime": "SlurmSettings / ScaledownIdletime",
    "oversubscribe": "JobExclusiveAllocation of the queue",
    "weight": "StaticNodePriority or DynamicNodePriority",
}


def _denied(settings: dict[str, Value[Any]], names: list[str], words: str) -> Iterator[Problem]:
    for name, value in settings.items():
        if name.lower() in names:
            instead = _OWN_KEYS.get(name.lower())
            fix = f"remove it; {instead} is ParallelCluster's own key for it" if instead else "remove it"
            yield problem(value.key or value.span, words.format(name), fix)


_HOST_PORT = re.compile(r"[A-Za-z0-9.-]+:\d{1,5}")
_PORT = re.compile(r":\d{1,5}(?=$|[/?#])")


@rule("SLU002", "error")
def accounting_database_is_whole(file: File) -> Iterator[Problem]:
    """An accounting database needs its address, its user and its password's secret.

    `Uri` is host:port without a scheme; `UserName` and `PasswordSecretArn` are required beside it. A head node with no
    additional security group is reported as a note: the database must admit it some other way, such as by its subnet. A
    database's subnet group needs two zones.

    Why: slurmdbd does not start, and no job does either; or the database stack is refused.

    Fix: write all three; give the head node the database's client security group; give the subnet group two subnets.

    Source: ParallelCluster, DatabaseUriValidator and schema; RDS, DB subnet groups.

    When to ignore: the database's own group admits the head node's subnet.
    """
    for cluster in file.clusters:
        if cluster.database is not None:
            yield from _database(cluster.database, file.format)
            yield from _reaches(cluster, cluster.database, file.format)
    yield from _subnet_groups(file)


_KEYS = {"parallelcluster": ("Uri", "UserName", "PasswordSecretArn"), "spec": ("uri", "user", "secret")}


def _database(database: Database, format: str) -> Iterator[Problem]:
    names = _KEYS.get(format, _KEYS["parallelcluster"])
    parts = (database.uri, database.user, database.secret)
    missing = [name for name, value in zip(names, parts, strict=True) if value is None]
    if missing:
        yield problem(
            database.span, f"the accounting database has no {' and no '.join(missing)}", "write all three keys"
        )
    uri = known(database.uri)
    if uri is None or database.uri is None:
        return
    if "://" in uri or uri.startswith("/"):
        yield problem(database.uri, f"{uri!r} is not host:port", "remove the scheme and slashes: host:3306")
    elif ":" not in uri:
        yield problem(
            database.uri,
            f"{uri!r} names no port",
            f"write {uri}:3306",
            level="info" if format == "parallelcluster" else None,
        )
    elif not _HOST_PORT.fullmatch(uri):
        wrong = _PORT.search(uri) is None or format != "parallelcluster"  # which reads a port before other parts
        what, fix = f"{uri!r} is not host:port", "write it like db.example.com:3306"
        yield problem(database.uri, what, fix, level=None if wrong else "info")


def _reaches(cluster: Cluster, database: Database, format: str) -> Iterator[Problem]:
    if format == "parallelcluster" and cluster.head is not None and not cluster.head.security_groups:
        yield problem(
            database.span,
            "the head node has no additional security group: the accounting database must admit it another way",
            "add the database's client group to HeadNode / Networking / AdditionalSecurityGroups",
            level="info",
            why=reasons.DATABASE_NOT_REACHED,
        )


def _subnet_groups(file: File) -> Iterator[Problem]:
    template = template_of(file)
    if template is None or not re.search(r"slurm|accounting", file.text, re.IGNORECASE):
        return
    for resource in template.of("RDS::DBSubnetGroup"):
        subnets = resource.get("SubnetIds")
        if subnets is None or not subnets.is_list or subnets.tag:
            continue
        listed = [template.resolve(one) for one in subnets.elements()]
        whole = any(one is not None and (one.tag == "If" or one.is_map or _is_list(template, one)) for one in listed)
        if (len(listed) < 2 and not whole) or _in_one_zone(template, list(subnets.elements())):
            yield problem(
                subnets,
                f"{resource.id}: a database's subnet group needs subnets in two zones",
                "add a subnet of another zone",
                why=reasons.ONE_ZONE_OF_A_DATABASE,
            )


def _in_one_zone(template: Template, subnets: list[Node]) -> bool:
    """Whether all subnets are of this template, and state one zone by its name."""
    made = [template.resources.get(target(one) or "") for one in subnets]
    zones = [template.text(one.get("AvailabilityZone")) if one is not None else None for one in made]
    return len({zone.value for zone in zones if zone is not None and zone.known}) == 1 and None not in zones


def _is_list(template: Template, node: Node) -> bool:
    """Whether a reference stands for several subnets."""
    parameter = template.parameters.get(target(node) or "")
    kind = parameter.get("Type") if parameter is not None else None
    return kind is not None and "List" in kind.text


_SOCKETED = ("p4d", "p4de", "p5", "p5e", "p5en")


_SETTINGS_SINCE = (3, 6)  # the first version whose compute resources take settings of Slurm


def _one_thread(file: File, type_at: Value[str]) -> bool:
    """Whether the compute resource of this instance type turns the second thread of each core off."""
    for root in file.nodes:
        for node in root.walk():
            off = bool_at(node, "DisableSimultaneousMultithreading") if node.is_map else None
            if off is not None and known(off) and any(one.span == type_at.span for one in node.walk()):
                return True
    return False


@rule("SLU003", "info")
def sockets_are_stated(file: File) -> Iterator[Problem]:
    """Slurm should know the sockets and cores of P4 and P5 nodes.

    ParallelCluster describes each vCPU as a socket of its own. On nodes with two sockets, binding by socket or core
    then spreads a rank over both, away from its GPU. `CustomSlurmSettings` of the compute resource can correct it.

    Why: Slurm sees 192 sockets of one CPU on p5.48xlarge instead of 2 of 48 cores, and ranks are bound to CPUs far
    from their GPU and network card.

    Fix: `CustomSlurmSettings: {Sockets: 2, CoresPerSocket: 48, ThreadsPerCore: 2}` for p5, 24 cores for p4d and p4de
    (ParallelCluster 3.6 and later); without the threads where multithreading is disabled. The product must be the
    node's CPUs, or Slurm takes the product: half of them. A product that is neither the CPUs nor the cores of the
    instance type is a warning.

    Source: ParallelCluster issue 5797.

    When to ignore: jobs bind their ranks themselves, by numactl or torchrun's NUMA binding.
    """
    if file.format != "parallelcluster":
        return
    reported: set[str] = set()
    for _, queue in file.queues:
        stated = {name.lower() for name in queue.resource_slurm_settings}
        yield from _contradicted(file, queue)
        for value, type_ in machines(queue):
            if type_.name in reported:
                continue  # one setting for each type
            if type_.family in _SOCKETED and type_.sockets > 1 and not {"sockets", "corespersocket"} <= stated:
                reported.add(type_.name)
                yield _sockets(file, queue.label, value, type_)
                break


_SIZES = ("sockets", "corespersocket", "threadspercore")


def _contradicted(file: File, queue: Queue) -> Iterator[Problem]:
    """Sizes whose product is not the CPUs that ParallelCluster writes beside them, those of the instance type."""
    settings = {name.lower(): value for name, value in queue.resource_slurm_settings.items()}
    types, given = machines(queue), [settings.get(name) for name in _SIZES]
    if len(types) != 1 or len(queue.instances) != 1 or given[0] is None or given[1] is None:
        return
    numbers = [to_int(value.value) if value.known else None for value in given if value is not None]
    if not all(numbers) or "boards" in settings:
        return
    (at, type_), sizes = types[0], [number for number in numbers if number]
    cpus = type_.vcpus // type_.threads_per_core if _one_thread(file, at) else type_.vcpus
    cores, product = sizes[0] * sizes[1], math.prod(sizes)
    if product <= type_.vcpus and (cpus in (sizes[0], cores, product) or product == cores == type_.cores):
        return  # or one CPU per core is meant
    few = f"jobs get {product} of the {cpus} CPUs of each node."
    many = f"a node that registers with {cpus} CPUs has fewer than Slurm was told, and is set to INVAL."
    yield problem(
        given[0].key or given[0].span,
        f"{queue.label}: {' × '.join(map(str, sizes))} is {product}, and {type_.name} has {cpus} CPUs",
        f"write Sockets: {type_.sockets}, CoresPerSocket: {type_.cores_per_socket}, "
        f"ThreadsPerCore: {cpus // type_.cores}"
        if type_.sockets
        else "write what `slurmd -C` prints on the node",
        level="warning",
        why=few if product < cpus else many,
    )


def _sockets(file: File, label: str, value: Value[str], type_: InstanceType) -> Problem:
    threads = 1 if _one_thread(file, value) else type_.threads_per_core
    cpus = type_.sockets * type_.cores_per_socket * threads
    sizes = f"Sockets: {type_.sockets}, CoresPerSocket: {type_.cores_per_socket}"
    sizes += f", ThreadsPerCore: {threads}" if threads > 1 else ""
    taken = all(version_of(file, root)[0] >= _SETTINGS_SINCE for root in file.nodes)
    return problem(
        value,
        f"{label}: Slurm sees each of the {cpus} CPUs of {type_.name} as a socket, and srun may bind ranks to CPUs far "
        "from their GPU",
        f"add CustomSlurmSettings: {{{sizes}}}"
        if taken
        else f"bind the ranks by numactl; from ParallelCluster 3.6 on, CustomSlurmSettings: {{{sizes}}}",
        why=f"Slurm sees {cpus} sockets of one CPU instead of {type_.sockets} of {type_.cores_per_socket} cores: a "
        "rank's CPUs may be on the socket away from its GPU and network card.",
    )
