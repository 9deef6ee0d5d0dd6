"""Ports that a security group opens to everybody, and what the author of a file says about it himself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainwright.check.finding import Level
from trainwright.check.model import File, PortRule, known
from trainwright.check.readers.cfn_template import Resource, targets, template_of
from trainwright.check.readers.terraform_variables import texts_beside
from trainwright.check.readers.values import bool_at
from trainwright.check.registry import Problem, problem
from trainwright.check.tables import table
from trainwright.spec.source import Span

EVERYBODY = ("0.0.0.0/0", "::/0")
_BASTION = re.compile(r"bastion|jump-?(host|box|server)", re.IGNORECASE)  # is there to be reached from everywhere
_BALANCER = re.compile(r"load.?balancer|(?<![a-z])[ean]lb(?![a-z])|ALB|ELB|NLB", re.IGNORECASE)
_FOR_ALL = ("80", "443", "6443")  # may serve the public, and ask who calls
_BETWEEN_NODES = ("111", "988", "2049", "3306", "6817", "6819")  # no person's
_OF_NODES = "name the security group of the nodes that use it, or their network's range"
_OF_ALL_PORTS = (
    "name who needs them: the group itself for what its members say to each other, a load balancer's group, your own "
    "address range for ssh"
)
_LAST_PORT = 65535
_WIDE = 100  # ports, above which a range is named as such
_NODES = re.compile(r"node|compute|worker|cluster|fsx|efa", re.IGNORECASE)  # others may serve the public
_PLANNED = re.compile(
    r"restrict|in production|not for production|demo|todo|fixme|tighten|lock (it |this )?down|insecure|narrow|"
    r"not recommended|(change|replace|limit|set|update)\b.*\b(ip|cidr|address|range|this)|"
    r"your (own )?(ip|cidr|address)",
    re.IGNORECASE,
)
_WRONG = re.compile(r"insecure|vulnerab|broken|goat\b", re.IGNORECASE)  # an exercise, or input of a scanner


def is_planned(file: File, at: Span, words: re.Pattern[str] = _PLANNED) -> bool:
    """Whether a remark in the block of a place, or right above it, says that it is to be changed or is meant: its
    author knows."""
    if _WRONG.search(file.path):
        return True
    lines = file.lines
    first = last = at.line - 1
    indent = _indent(lines[first])
    if not lines[first].lstrip().startswith("- "):
        while first > 0 and (not lines[first].strip() or _indent(lines[first]) >= indent):
            first -= 1
    while first > 0 and lines[first - 1].lstrip().startswith(("#", "//")):
        first -= 1
    while last + 1 < len(lines) and _indent(lines[last + 1]) >= indent and lines[last + 1].strip()[:1] not in "-":
        last += 1
    return any(words.search(_remark(line)) for line in lines[first : last + 1])


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _remark(line: str) -> str:
    """The comment of a line, or the text of a description."""
    match = re.search(r"(?:^|\s)(?:#|//)(.*)|\bdescription[\"']?\s*[:=](.*)", line, re.IGNORECASE)
    return (match[1] or match[2] or "") if match is not None else ""


@dataclass(frozen=True)
class Opening:
    """What a rule of a group opens to everybody, and where it says so."""

    at: Span
    what: str
    mild: bool = False
    fix: str = "name your own address range"


def open_groups(file: File) -> Iterator[Problem]:
    """Every opening once: one parameter may open several groups."""
    opened: dict[Opening, list[str]] = {}
    for group in file.security_groups:
        if _BASTION.search(f"{group.name} {Path(file.path).parent.name} {Path(file.path).name}"):
            continue
        for one in group.ingress:
            for opening in _openings(group.name, one):
                opened.setdefault(opening, []).append(group.name)
    for opening, names in opened.items():
        mild = opening.mild or not _is_written(file, opening.at) or is_planned(file, opening.at)
        mild = mild or all(_is_source_only(file, name) or _is_private(file, name) for name in dict.fromkeys(names))
        level: Level | None = "info" if mild else None
        message = f"{', '.join(dict.fromkeys(names))}: {opening.what} to the whole internet"
        yield problem(opening.at, message, opening.fix, level=level)


def _is_source_only(file: File, name: str) -> bool:
    """Whether Terraform gives a group to no machine, and only lets its members log in to the nodes of EKS."""
    uses = _uses(file, name)
    return "source" in uses and uses <= {"source", "rule"}


def _is_private(file: File, name: str) -> bool:
    """Whether all that is in a group has no public address, or answers on listeners of its own only."""
    if file.format == "cloudformation":
        return _is_private_in_template(file, name)
    uses = _uses(file, name)
    members = {use for use in uses if use not in ("source", "rule")}
    public = any(use.startswith(_DATABASES) for use in members) and any(map(_PUBLIC.search, _texts(file)))
    return bool(members) and not public and all(_PRIVATE.match(use) for use in members)


def _is_private_in_template(file: File, name: str) -> bool:
    template = template_of(file)
    resources = template.resources.values() if template is not None else ()
    members = [r for r in resources if r.type.split("::")[-1] not in _OF_GROUPS and name in targets(r.node)]
    return bool(members) and all(_PRIVATE_IN_TEMPLATE.match(one.type) or _is_private_database(one) for one in members)


def _is_private_database(resource: Resource) -> bool:
    public = bool_at(resource.properties, "PubliclyAccessible")
    return public is not None and known(public) is False


def _texts(file: File) -> tuple[str, ...]:
    return (file.text, *texts_beside(file.path))


def _uses(file: File, name: str) -> set[str]:
    if file.format != "terraform":
        return set()
    return {use for group, use in file.derived(_uses_of_groups) if group == name}


def _uses_of_groups(file: File) -> frozenset[tuple[str, str]]:
    """Each security group of the directory, with what it is named for: `source` or `rule` by the argument that holds
    its name, else the kind of the resource that is in it."""
    return frozenset(use for text in _texts(file) for use in _uses_in(text))


def _uses_in(text: str) -> Iterator[tuple[str, str]]:
    resource = argument = ""
    for match in _NAMED.finditer(text):
        if match["block"]:
            resource, argument = match["resource"] or match["block"], ""
        argument = match["argument"] or argument
        if match["group"]:
            attaches = resource == "aws_network_interface_sg_attachment"
            no_member = (_NO_MEMBER.fullmatch(argument) or _IS_RULE.match(resource)) is not None and not attaches
            yield match["group"], ("source" if argument == _SOURCE else "rule") if no_member else resource


_SOURCE = "source_security_group_ids"
_NO_MEMBER = re.compile("source_security_group_ids?|security_group_id|referenced_security_group_id|depends_on")
_IS_RULE = re.compile("aws_(vpc_)?security_group")
_NAMED = re.compile(
    r"^(?P<block>resource|module|data|output|locals|provider|variable)\b(?:\s+\"(?P<resource>aws_\w+)\")?"
    r"|\b(?P<argument>\w+)\s*=(?![=>])|\baws_security_group\.(?P<group>[\w-]+)",
    re.MULTILINE,
)
_PRIVATE = re.compile(
    r"aws_(a?lb|elb|efs_mount_target|fsx_\w+|eks_cluster|lambda_function|vpc_endpoint|elasticache_\w+|db_instance"
    r"|rds_cluster(_instance)?)$"
)
_DATABASES = ("aws_db_instance", "aws_rds_cluster")
_PUBLIC = re.compile(r"\bpublicly_accessible\s*=(?!\s*false\b)")
_PRIVATE_IN_TEMPLATE = re.compile(
    r"AWS::(ElasticLoadBalancing(V2)?::LoadBalancer|EFS::MountTarget|FSx::FileSystem|EKS::Cluster|Lambda::Function"
    r"|EC2::VPCEndpoint|ElastiCache::\w+)$"
)
_OF_GROUPS = ("SecurityGroup", "SecurityGroupIngress", "SecurityGroupEgress")


def _is_written(file: File, at: Span) -> bool:
    """Whether the address stands there itself, not as the default of a variable or parameter that a user replaces."""
    line = file.lines[at.line - 1]
    return any(address in line for address in EVERYBODY) and "default" not in line.lower()


def _openings(name: str, one: PortRule) -> Iterator[Opening]:
    protocol = (known(one.protocol) or "").lower()
    if one.peer is None or known(one.peer) not in EVERYBODY or protocol.startswith("icmp"):
        return
    low, high = known(one.from_port), known(one.to_port)
    at, udp = one.peer.span, protocol in ("udp", "17")
    every = low is not None and high is not None and low <= 1 and high >= _LAST_PORT
    if protocol in ("-1", "all") or every:
        if not _BALANCER.search(name):  # which answers on its listeners only
            yield Opening(at, "every UDP port is open" if udp else "every port is open", fix=_OF_ALL_PORTS)
        return
    if low is None or high is None:
        return
    ports = table("access")["open_ports"]
    open_ports = [port for port in ports if low <= int(port) <= high and not (udp and port not in ("111", "2049"))]
    open_ports = [port for port in open_ports if port not in _FOR_ALL or _NODES.search(name)]
    if open_ports and high - low > _WIDE:
        yield Opening(at, f"ports {low} to {high} are open", fix=_OF_ALL_PORTS)
    elif open_ports:
        what, mild = f"port {open_ports[0]} ({ports[open_ports[0]]}) is open", all(p in _FOR_ALL for p in open_ports)
        fix = _OF_NODES if open_ports[0] in _BETWEEN_NODES else Opening.fix
        yield Opening(at, what, mild, fix)
