"""CFG: names that a platform takes, and zones that agree with each other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from trainwright.catalog.regions import region_of_zone, zone_kind
from trainwright.check import reasons
from trainwright.check.model import Cluster, File, Value, known
from trainwright.check.readers.cfn_template import Template, template_of
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.rules.cfg_created import created_names
from trainwright.check.rules.cfg_terraform import zones_of_other_regions
from trainwright.check.tables import table
from trainwright.spec.source import Node, Span

_CLUSTER_NAMES = {
    "parallelcluster": (re.compile(r"[A-Za-z][A-Za-z0-9-]*"), 60),
    "eks": (re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*"), 100),
    "eksctl": (re.compile(r"[A-Za-z][A-Za-z0-9-]*"), 100),
    "hyperpod": (re.compile(r"[A-Za-z0-9](-*[A-Za-z0-9])*"), 63),
    "batch": (re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*"), 128),
    "Kubernetes": (re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"), 63),
}
_KUBERNETES = ("eks", "hyperpod-eks")  # a plan names objects of Kubernetes after the cluster and its queues


@rule("CFG002", "error")
def cluster_name_is_allowed(file: File) -> Iterator[Problem]:
    """A cluster's name must be valid on its platform.

    ParallelCluster: a letter, then letters, digits and hyphens, at most 60; at most 40 with an accounting database,
    because Slurm puts the name into table names. EKS: letters, digits, hyphens and underscores, at most 100; in eksctl
    a letter first and no underscores, because its stacks have the name. HyperPod: letters, digits and hyphens inside,
    at most 63. A spec for EKS or HyperPod on EKS: lower-case letters, digits
    and hyphens, at most 63, because the plan names volumes, queues and labels of Kubernetes after the cluster. The name
    is read in cluster files and in scripts that create the cluster (`pcluster create-cluster`, `eksctl create cluster`,
    `aws eks` and `aws sagemaker create-cluster`); a default that the caller may replace is a note.

    Why: creation is refused, in the accounting case only after the head node is up.

    Fix: shorten the name, or replace the characters.

    Source: ParallelCluster, ClusterNameValidator; EKS CreateCluster; SageMaker CreateCluster; RFC 1123, names of
    Kubernetes objects.

    When to ignore: never; the service refuses the name.
    """
    for cluster in file.clusters:
        platform = {"hyperpod-eks": "hyperpod"}.get(cluster.platform, cluster.platform)
        if file.specs and cluster.platform in _KUBERNETES:
            platform = "Kubernetes"
        platform = "eksctl" if file.format == "eksctl" else platform
        if known(cluster.name) is None or cluster.name is None or platform not in _CLUSTER_NAMES:
            continue
        accounted = platform == "parallelcluster" and _accounted(file, cluster)
        for one in _cluster_name(cluster.name, platform, accounted):
            yield replace(one, fix=one.fix + _named_again(file, cluster.name))
    for name, platform, accounted in dict.fromkeys(created_names(file)):  # a variable may be used twice
        for one in _cluster_name(name, platform, accounted):
            yield replace(one, level="info") if name.default else one  # the caller may give another


def _cluster_name(name: Value[str], platform: str, accounted: bool = False) -> Iterator[Problem]:
    pattern, limit = _CLUSTER_NAMES[platform]
    limit = table("parallelcluster")["names"]["cluster_with_accounting"] if accounted else limit
    reason = " with an accounting database" if accounted else ""
    if not pattern.fullmatch(name.value):
        yield problem(name, f"the cluster name {name.value!r} is not allowed by {platform}", _allowed(platform))
    elif len(name.value) > limit:
        what = f"the cluster name has {len(name.value)} characters; {limit} are allowed{reason}"
        yield problem(name, what, "shorten it")


def _named_again(file: File, name: Value[str]) -> str:
    """The other lines with a name, such as those of commands by which nodes join their cluster."""
    again = re.compile(rf"(?<![\w-]){re.escape(name.value)}(?![\w-])")
    lines = [
        str(number) for number, line in enumerate(file.lines, 1) if again.search(line) and number != name.span.line
    ]
    return f"; also on line{'s' if len(lines) > 1 else ''} {', '.join(lines)}" if lines else ""


def _allowed(platform: str) -> str:
    """The characters of a name, in words."""
    letters = "lower-case letters" if platform == "Kubernetes" else "letters"
    marks = "hyphens and underscores" if platform in ("eks", "batch") else "hyphens"
    first = "a letter" if platform in ("parallelcluster", "eksctl") else "a letter or digit"
    return f"use {letters}, digits and {marks}, and start with {first}"


def _accounted(file: File, cluster: Cluster) -> bool:
    wanted = any(root.get("accounting") is not None and root.get("accounting").value for root in file.nodes)  # type: ignore[union-attr]
    return cluster.database is not None or wanted


_QUEUE_NAME = re.compile(r"[a-z][a-z0-9-]*")
_GROUP_NAMES = {
    "hyperpod": re.compile(r"[A-Za-z0-9](-*[A-Za-z0-9])*"),
    "eks": re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*"),  # eksctl's, whose stacks have the name
}


@rule("CFG003", "error")
def queue_names_are_allowed(file: File) -> Iterator[Problem]:
    """Queue and compute resource names must be valid, unique, and within the limits.

    ParallelCluster builds host names from them: lower-case letters, digits and hyphens, a letter first, at most 25
    characters, not `default`; at most 50 queues and 50 compute resources per cluster. EKS node groups and HyperPod
    instance groups must have unique names too. A spec for EKS or HyperPod on EKS names queues in lower case, with
    digits and hyphens: the plan makes a queue of Kueue with the same name.

    Why: the cluster is refused.

    Fix: rename the queue.

    Source: ParallelCluster, NameValidator, DuplicateNameValidator, constants; eksctl schema; SageMaker CreateCluster;
    RFC 1123, names of Kubernetes objects.

    When to ignore: never; the platform refuses the name.
    """
    for cluster in file.clusters:
        strict = cluster.platform == "parallelcluster"
        queues = _first_of_each([q.name for q in cluster.queues]) if strict else [q.name for q in cluster.queues]
        for name in queues if file.format != "terraform" else ():  # there a label, or the key of a map
            lower = bool(file.specs) and cluster.platform in _KUBERNETES
            yield from _kubernetes_name(name) if lower else _name(name, strict, cluster.platform)
        yield from _repeated([name for name in queues if name is not None], "queue" if strict else "group")
        if strict:
            yield from _resources(cluster, len(queues))


def _first_of_each(names: list[Value[str] | None]) -> list[Value[str] | None]:
    """One name per queue: every compute resource of a queue has the queue's name, at the same position."""
    return list({name.span: name for name in names if name is not None}.values())


def _resources(cluster: Cluster, queues: int) -> Iterator[Problem]:
    limits = table("parallelcluster")["counts"]
    by_queue: dict[Span, list[Value[str]]] = {}
    for queue in cluster.queues:
        if queue.resource is not None and queue.name is not None:
            by_queue.setdefault(queue.name.span, []).append(queue.resource)
    for names in by_queue.values():
        for name in names:
            yield from _name(name, True, cluster.platform)
        yield from _repeated(names, "compute resource")
    for count, limit, what in (
        (queues, limits["queues"], "queues"),
        (len(cluster.queues), limits["resources"], "compute resources"),
    ):
        if count > limit:
            yield problem(
                cluster.queues[limit].span, f"{count} {what}; ParallelCluster allows {limit}", f"keep {limit} or fewer"
            )


def _name(name: Value[str] | None, strict: bool, platform: str) -> Iterator[Problem]:
    if name is None or not name.known:
        return
    limit = table("parallelcluster")["names"]["queue"] if strict else 63
    pattern = _QUEUE_NAME if strict else _GROUP_NAMES.get(platform.removesuffix("-eks"))
    if pattern is None:
        return
    if strict and name.value == "default":
        yield problem(name, "`default` is reserved by Slurm", "choose another name")
    elif not pattern.fullmatch(name.value):
        letters = "lower-case letters, digits and hyphens, a letter first" if strict else "letters, digits and hyphens"
        yield problem(name, f"the name {name.value!r} is not allowed", f"use {letters}")
    elif len(name.value) > limit:
        yield problem(name, f"the name has {len(name.value)} characters; {limit} are allowed", "shorten it")


def _kubernetes_name(name: Value[str] | None) -> Iterator[Problem]:
    pattern, limit = _CLUSTER_NAMES["Kubernetes"]
    if name is not None and name.known and not (pattern.fullmatch(name.value) and len(name.value) <= limit):
        what = f"the name {name.value!r} is not one of Kubernetes, whose queue gets it"
        yield problem(
            name, what, f"use lower-case letters, digits and hyphens, at most {limit}", why=reasons.NAME_OF_A_QUEUE
        )


def _repeated(names: list[Value[str]], what: str) -> Iterator[Problem]:
    seen: dict[str, int] = {}
    for name in names:
        if name.known and name.value in seen:
            yield problem(
                name, f"two of the {what}s are named {name.value!r} (first on line {seen[name.value]})", "rename one"
            )
        elif name.known:
            seen[name.value] = name.span.line


@rule("CFG004", "error")
def zones_agree(file: File) -> Iterator[Problem]:
    """Zones must be of the right kind, lie in the region, and match the stated number.

    A zone *name* (us-east-2c) and a zone *id* (use2-az3) are two things: CloudFormation's `AvailabilityZone` and eksctl
    take the name, `AvailabilityZoneId` takes the id. A template with a `NumberOfAZs` parameter beside a list of zones
    counts them by hand. A node group of eksctl is in one of the cluster's `availabilityZones`, and a resource of
    Terraform in a zone of its provider's region, where the directory has one provider.

    Why: the stack fails half-way of the 15 to 20 minutes that a cluster takes, or builds in the wrong zone: the
    same letter is another zone in another account.

    Fix: use the name or the id as the field requires; make the number equal the length of the list.

    Source: EC2 user guide, zone ids; the multi-zone network template and the HyperPod template of the reference
    architectures; README of awsome-distributed-ai (15 to 20 minutes).

    When to ignore: never; the service refuses the file.
    """
    for cluster in file.clusters:
        yield from _in_region(cluster)
        if file.format == "eksctl":
            yield from _without_subnets(cluster)
            for zone in [*cluster.zones, *(z for queue in cluster.queues for z in queue.zones)]:
                if zone.known and zone_kind(zone.value) == "id":
                    yield problem(
                        zone, f"eksctl expects zone names here, and {zone.value} is a zone id", _name_hint(zone)
                    )
    template = template_of(file)
    if template is not None:
        yield from _template_zones(template)
    if file.format == "terraform":
        yield from zones_of_other_regions(file)


def _name_hint(zone: Value[str]) -> str:
    region = region_of_zone(zone.value)
    name = f"{region.name if region is not None else 'us-east-2'}a"
    return f"write the name, such as {name} (`aws ec2 describe-availability-zones` maps them)"


def _in_region(cluster: Cluster) -> Iterator[Problem]:
    region = known(cluster.region)
    if region is None:
        return
    reported: set[Span] = set()
    for zone in [*cluster.zones, *(z for queue in cluster.queues for z in queue.zones)]:
        there = region_of_zone(zone.value) if zone.known else None
        if there is not None and there.name != region and zone.span not in reported:
            reported.add(zone.span)
            yield problem(
                zone, f"zone {zone.value} is in {there.name}, the cluster in {region}", f"name a zone of {region}"
            )


def _without_subnets(cluster: Cluster) -> Iterator[Problem]:
    """A zone of a node group in which eksctl makes no subnet: it makes them in the zones of the cluster."""
    zones = [zone.value for zone in cluster.zones]
    certain = bool(zones) and all(zone.known for zone in cluster.zones)
    stated = [(queue, zone) for queue in cluster.queues if not queue.subnets for zone in queue.zones]
    usable = [one for one in zones if zone_kind(one) == "name" and _lies_in(one, known(cluster.region))]
    for queue, zone in stated if certain else ():
        if zone.known and zone.value not in zones and _lies_in(zone.value, known(cluster.region)):
            yield problem(
                zone,
                f"{queue.label}: zone {zone.value} is none of the cluster's ({', '.join(zones)})",
                f"name {' or '.join(usable) or 'one of its region'}, or add {zone.value} to the availabilityZones of "
                "the cluster",
                why="eksctl makes subnets in the zones of the cluster alone, and finds none for the group.",
            )


def _lies_in(zone: str, region: str | None) -> bool:
    there = region_of_zone(zone)
    return region is None or there is None or there.name == region


_ZONE_FIELDS = {"AvailabilityZone": "name", "AvailabilityZoneId": "id"}


def _template_zones(template: Template) -> Iterator[Problem]:
    for resource in template.resources.values():
        for field, wanted in _ZONE_FIELDS.items():
            zone = template.text(resource.get(field))
            kind = zone_kind(zone.value) if zone is not None and zone.known else None
            if zone is not None and kind is not None and kind != wanted:
                fix = "use AvailabilityZone" if kind == "name" else "use AvailabilityZoneId"
                if kind == "id" and resource.type != "AWS::EC2::Subnet":  # others take the name alone
                    fix = _name_hint(zone)
                yield problem(zone, f"{field} expects a zone {wanted}, and {zone.value} is a zone {kind}", fix)
    count = _parameter(template, r"NumberOf(AZs|AvailabilityZones|Zones)")
    zones = _parameter(template, r"(AvailabilityZones|AZs|Zones)")
    number = template.number(count.get("Default")) if count is not None else None
    listed = zones.get("Default") if zones is not None else None
    if number is None or not number.known or listed is None or not listed.text:
        return
    names = [name for name in listed.text.split(",") if name.strip()]
    if len(names) != number.value:
        yield problem(
            number,
            f"{number.value} zones are stated but {len(names)} are listed ({listed.text})",
            f"write {len(names)}",
            level=None if number.value > len(names) else "info",  # a template may take the first of more zones
            why=reasons.COUNT_OF_ZONES if number.value > len(names) else reasons.ZONES_LEFT_OUT,
        )


def _parameter(template: Template, pattern: str) -> Node | None:
    return next((node for name, node in template.parameters.items() if re.fullmatch(pattern, name)), None)
