"""CFG: the file itself: placeholders, names, zones."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.catalog.regions import region_of_zone, zone_kind
from trainwright.check.finding import Level
from trainwright.check.model import Cluster, File, Value, known
from trainwright.check.readers.cfn_template import Template, template_of
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.tables import table
from trainwright.spec.source import Node, Span

_ID = r"\b(?:acl|ami|cr|eni|fs|fsvol|rtb|sg|subnet|vpc|ws)-"
_LITERAL = re.compile(
    rf"PLACEHOLDER_?\w*|<[A-Za-z][\w .-]*>|^<[A-Za-z][^<>]*>$|{_ID}[xX]{{3,}}\b|{_ID}([A-Za-z])\1{{4,}}\b"
    rf"|{_ID}x{{2,}}(?:-x+)+|^{_ID}(?:id|ID)$|\bX{{4,}}\b|REMOVE_THIS_LINE\w*"
    r"|\bREPLACE[_-](?:ME|WITH|THIS)\w*|\bCHANGE_?ME\b"
)
_FILTER_NAME = re.compile(rf"{_ID}id")
_REAL_ID = re.compile(rf"{_ID}[0-9a-f]{{8,17}}\b")
_TEMPLATE_NAME = re.compile(r"template|sample|example|\.tpl\b|\.j2\b|\.tmpl\b|\.in$", re.IGNORECASE)
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}|^\$([A-Z][A-Z0-9_]+)$")
_IN_SHELL = re.compile(
    r"PLACEHOLDER_\w+|<(?:your|my|insert|enter|replace)[-_ ][\w -]*>|\b(?:cr|fs|sg|vpc|subnet|ami)-x{4,}\b"
)
# Where `${VAR}` is what envsubst fills in; below these keys a shell does.
_TEMPLATED = {"parallelcluster", "eksctl", "hyperpod", "kubernetes", "spec"}
_LISTED = 6  # names in one message
_SHELL_KEYS = {"args", "command", "env", "jobs", "overrideBootstrapCommand", "preBootstrapCommands"}


@rule("CFG001", "error")
def nothing_left_to_fill_in(file: File) -> Iterator[Problem]:
    """No value may still be a placeholder.

    `PLACEHOLDER_SUBNET`, `<your-key>`, `cr-xxxxxxxx`, `cr-id`, `XXXX`, `NA` and `REMOVE_THIS_LINE` are notes to the
    person who deploys. All placeholders of a file are one finding, at the first of them. `${VAR}` in a cluster file is
    a template that `envsubst` has to fill in first. What is visibly a template (its name says so, or most of its ids
    are placeholders or variables) is reported as information.

    Why: the tool that reads the file takes the placeholder for the value and reports a different error much later.

    Fix: write the value, or run the template through `envsubst` and check the result.

    Source: 25 files of the public reference architectures carry one of three placeholder styles.

    When to ignore: the file is documentation, not to be deployed.
    """
    if file.template:
        return
    variables: dict[str, Span] = {}
    if file.format in ("shell", "sbatch", "dockerfile"):
        placeholders = _in_text(file)
    else:
        placeholders, variables = _in_values(file)
    level: Level | None = "info" if _is_template(file, placeholders, variables) else None
    if placeholders:
        span, first = placeholders[0]
        message = f"{first!r} is still a placeholder"
        others = list(dict.fromkeys(text for _, text in placeholders if text != first)) + list(variables)
        if others:
            message += f", and so {'are' if len(others) > 1 else 'is'} {_listed(others)}"
        yield problem(span, message, "write the value", level=level)
    elif variables and (file.clusters or file.jobs or file.specs):
        count = f"{len(variables)} variables" if len(variables) > 1 else "one variable"
        yield problem(
            next(iter(variables.values())),
            f"this is a template with {count} to fill in: {', '.join(variables)}",
            "run it through envsubst and check the result; rules that need these values report nothing",
            level=level,
        )


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_LISTED]) + (f" and {len(names) - _LISTED} more" if len(names) > _LISTED else "")


def _is_template(file: File, placeholders: list[tuple[Span, str]], variables: dict[str, Span]) -> bool:
    """Whether the file is plainly meant to be filled in: by its name, by variables, or by placeholders for most ids."""
    path = file.path.replace("\\", "/")
    name = path.rpartition("/")[2]
    if (variables and not placeholders) or (file.format != "cloudformation" and _TEMPLATE_NAME.search(name)):
        return True
    if re.search(r"(^|/)examples?/", path):
        return True
    texts = {text for _, text in placeholders} | set(variables)
    return len(texts) > 1 and len(texts) > len(set(_REAL_ID.findall(file.text)))


def _in_values(file: File) -> tuple[list[tuple[Span, str]], dict[str, Span]]:
    placeholders: list[tuple[Span, str]] = []
    variables: dict[str, Span] = {}
    for node, shell in (pair for root in file.nodes for pair in _values(root, False)):
        literal = placeholder_in(node)
        if file.format == "terraform" and _FILTER_NAME.fullmatch(literal):
            literal = ""  # the name of a filter: `name = "vpc-id"`
        if literal:
            placeholders.append((node.span, literal))
        elif file.format in _TEMPLATED and not shell and "\n" not in node.text:
            for braced, bare in _VARIABLE.findall(node.text):
                variables.setdefault(braced or bare, node.span)
    return placeholders, variables


# Descriptions of a value and patterns for it are not values.
_PROSE = {
    "AllowedPattern", "ConstraintDescription", "Description", "GroupDescription", "Metadata", "Tags", "annotations",
    "labels", "tags",
}  # fmt: skip


def _values(node: Node, shell: bool) -> Iterator[tuple[Node, bool]]:
    """The texts of a file that a tool uses as they are, each with whether a shell will read it."""
    if node.is_scalar:
        if not node.tag and isinstance(node.value, str):
            yield node, shell
    elif node.is_map:
        for key, child in node.items():
            if key not in _PROSE and key.lower() != "description":
                yield from _values(child, shell or key in _SHELL_KEYS)
    else:
        for child in node.elements():
            yield from _values(child, shell)


def placeholder_in(node: Node) -> str:
    """The placeholder that a value holds, or an empty string."""
    if node.text == "NA":
        return "NA"
    # Long text is a script or a policy, where `<` and X mean other things.
    if len(node.text) > 200 or "\n" in node.text:
        return ""
    match = _LITERAL.search(node.text)
    return match[0] if match else ""


def _in_text(file: File) -> list[tuple[Span, str]]:
    placeholders = []
    for number, line in enumerate(file.text.splitlines(), start=1):
        code = line.split(" #", 1)[0]
        if code.lstrip().startswith("#") and not code.startswith("#SBATCH"):
            continue
        for match in _IN_SHELL.finditer(code):
            placeholders.append((Span(number, match.start() + 1, number, match.end() + 1), match[0]))
    return placeholders


_CLUSTER_NAMES = {
    "parallelcluster": (re.compile(r"[A-Za-z][A-Za-z0-9-]*"), 60),
    "eks": (re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*"), 100),
    "hyperpod": (re.compile(r"[A-Za-z0-9](-*[A-Za-z0-9])*"), 63),
    "batch": (re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*"), 128),
}


@rule("CFG002", "error")
def cluster_name_is_allowed(file: File) -> Iterator[Problem]:
    """A cluster's name must be valid on its platform.

    ParallelCluster: a letter, then letters, digits and hyphens, at most 60; at most 40 with an accounting database,
    because Slurm puts the name into table names. EKS: letters, digits, hyphens and underscores, at most 100. HyperPod:
    letters, digits and single hyphens inside, at most 63.

    Why: creation is refused, in the accounting case only after the head node is up.

    Fix: shorten the name, or replace the characters.

    Source: ParallelCluster, ClusterNameValidator; EKS CreateCluster; SageMaker CreateCluster.

    When to ignore: never; the service refuses the name.
    """
    for cluster in file.clusters:
        name = known(cluster.name)
        platform = {"hyperpod-eks": "hyperpod"}.get(cluster.platform, cluster.platform)
        if name is None or cluster.name is None or platform not in _CLUSTER_NAMES:
            continue
        pattern, limit = _CLUSTER_NAMES[platform]
        reason = ""
        if platform == "parallelcluster" and _accounted(file, cluster):
            limit, reason = table("parallelcluster")["names"]["cluster_with_accounting"], " with an accounting database"
        if not pattern.fullmatch(name):
            yield problem(
                cluster.name,
                f"the cluster name {name!r} has characters that {platform} does not allow",
                "use letters, digits and hyphens, and start with a letter",
            )
        elif len(name) > limit:
            yield problem(
                cluster.name, f"the cluster name has {len(name)} characters; {limit} are allowed{reason}", "shorten it"
            )


def _accounted(file: File, cluster: Cluster) -> bool:
    wanted = any(root.get("accounting") is not None and root.get("accounting").value for root in file.nodes)  # type: ignore[union-attr]
    return cluster.database is not None or wanted


_QUEUE_NAME = re.compile(r"[a-z][a-z0-9-]*")
_GROUP_NAME = re.compile(r"[A-Za-z0-9](-*[A-Za-z0-9])*")


@rule("CFG003", "error")
def queue_names_are_allowed(file: File) -> Iterator[Problem]:
    """Queue and compute resource names must be valid, unique, and within the limits.

    ParallelCluster builds host names from them: lower-case letters, digits and hyphens, a letter first, at most 25
    characters, not `default`; at most 50 queues and 50 compute resources per cluster. EKS node groups and HyperPod
    instance groups must have unique names too.

    Why: the cluster is refused.

    Fix: rename the queue.

    Source: ParallelCluster, NameValidator, DuplicateNameValidator, constants; eksctl schema; SageMaker CreateCluster.

    When to ignore: never; the platform refuses the name.
    """
    for cluster in file.clusters:
        strict = cluster.platform == "parallelcluster"
        queues = _first_of_each([q.name for q in cluster.queues]) if strict else [q.name for q in cluster.queues]
        for name in queues if file.format != "terraform" else ():  # there a label, or the key of a map
            yield from _name(name, strict, cluster.platform)
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
    pattern = _QUEUE_NAME if strict else _GROUP_NAME
    if platform not in ("parallelcluster", "hyperpod", "eks", "hyperpod-eks"):
        return
    if strict and name.value == "default":
        yield problem(name, "`default` is reserved by Slurm", "choose another name")
    elif not pattern.fullmatch(name.value):
        letters = "lower-case letters, digits and hyphens, a letter first" if strict else "letters, digits and hyphens"
        yield problem(name, f"the name {name.value!r} is not allowed", f"use {letters}")
    elif len(name.value) > limit:
        yield problem(name, f"the name has {len(name.value)} characters; {limit} are allowed", "shorten it")


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
    counts them by hand.

    Why: the stack fails half-way, or builds in the wrong zone: the same letter is another zone in another account.

    Fix: use the name or the id as the field requires; make the number equal the length of the list.

    Source: EC2 user guide, zone ids; the multi-zone network template and the HyperPod template of the reference
    architectures.

    When to ignore: never; the service refuses the file.
    """
    for cluster in file.clusters:
        yield from _in_region(cluster)
        if file.format == "eksctl":
            for zone in [*cluster.zones, *(z for queue in cluster.queues for z in queue.zones)]:
                if zone.known and zone_kind(zone.value) == "id":
                    yield problem(
                        zone, f"eksctl expects zone names here, and {zone.value} is a zone id", _name_hint(zone)
                    )
    template = template_of(file)
    if template is not None:
        yield from _template_zones(template)


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


_ZONE_FIELDS = {"AvailabilityZone": "name", "AvailabilityZoneId": "id"}


def _template_zones(template: Template) -> Iterator[Problem]:
    for resource in template.resources.values():
        for field, wanted in _ZONE_FIELDS.items():
            zone = template.text(resource.get(field))
            kind = zone_kind(zone.value) if zone is not None and zone.known else None
            if zone is not None and kind is not None and kind != wanted:
                other = "AvailabilityZoneId" if kind == "id" else "AvailabilityZone"
                yield problem(
                    zone, f"{field} expects a zone {wanted}, and {zone.value} is a zone {kind}", f"use {other}"
                )
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
        )


def _parameter(template: Template, pattern: str) -> Node | None:
    return next((node for name, node in template.parameters.items() if re.fullmatch(pattern, name)), None)
