"""SEC: who may reach the nodes: key pairs, the metadata service, policies and open ports."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.check.finding import Edit
from trainwright.check.model import Cluster, File, PortRule, Value, known
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.tables import edit_to, table
from trainwright.spec.source import Span

if TYPE_CHECKING:
    from trainwright.check.facts import AwsFacts


@rule("SEC001", "error", needs="aws")
def key_is_accepted_by_the_system(file: File, aws: AwsFacts) -> Iterator[Problem]:
    """Ubuntu 22.04 and later need an ed25519 key pair.

    Their ssh server does not accept the ssh-rsa signatures that clients make with EC2's RSA key pairs.

    Why: the cluster comes up after 15 to 20 minutes and nobody can log in: OpenSSH of Ubuntu 22.04 (8.9) accepts no
    ssh-rsa signatures.

    Fix: `aws ec2 create-key-pair --key-type ed25519`, and name that key.

    Source: ParallelCluster, KeyPairValidator; OpenSSH 8.8 release notes; README of awsome-distributed-ai (15 to 20
    minutes).

    When to ignore: users log in through Session Manager only.
    """
    for cluster in file.clusters:
        key = cluster.head.key if cluster.head is not None else None
        if key is None or not key.known:
            continue
        pair = aws.key_pair(key.value)
        if pair is None:
            yield problem(key, f"key pair {key.value!r} does not exist in {aws.region}", "name one that exists")
        elif pair.kind == "rsa" and (known(cluster.os) or "").startswith("ubuntu"):
            yield problem(
                key, f"key pair {key.value!r} is RSA, which {known(cluster.os)} rejects", "use an ed25519 key"
            )


@rule("SEC002", "warning")
def metadata_service_is_version_two(file: File) -> Iterator[Problem]:
    """Nodes should only answer version 2 of the instance metadata service.

    Version 1 gives a node's credentials to any process that can make it fetch an address. ParallelCluster requires
    version 2 by default since 3.7, so a file without `ImdsSupport` is not reported. `HeadNode.Imds.Secured: false` lets
    every user of the head node read its role's credentials. A hop limit of 1 keeps containers with their own network
    from the service altogether.

    Why: one request forged inside a job is enough to leak the node's role. The data of 106 million customers of
    Capital One were lost so in 2019.

    Fix: `Imds: {ImdsSupport: v2.0}`; in a launch template `HttpTokens: required`, with a hop limit of 2 for containers.

    Source: EC2 user guide, IMDSv2; ParallelCluster 3.7 change log (pull request 5465); Capital One, statement of
    July 2019.

    When to ignore: old software on the node supports version 1 only.
    """
    for cluster in file.clusters:
        if known(cluster.imds) == "v1.0" and cluster.imds is not None:
            yield problem(
                cluster.imds,
                "version 1 of the metadata service is allowed",
                "write v2.0",
                edit=edit_to(file, cluster.imds, "v2.0"),
            )
        secured = cluster.head.imds_secured if cluster.head is not None else None
        if secured is not None and known(secured) is False:
            yield problem(
                secured,
                "every user of the head node can read its role's credentials from the metadata service",
                "write true, or leave it out",
            )
        for queue in cluster.queues:
            disabled = queue.extra.get("imds_v1_disabled")
            if disabled is not None and known(disabled) is False:
                yield problem(disabled, f"{queue.label}: version 1 of the metadata service is allowed", "write true")
    yield from _launch_templates(file)


def _launch_templates(file: File) -> Iterator[Problem]:
    for template in file.launch_templates:
        if template.tokens is None:
            yield problem(
                template.span,
                f"{template.name}: version 2 of the metadata service is not required",
                "add MetadataOptions: {HttpTokens: required, HttpPutResponseHopLimit: 2}",
                level="info",  # images such as Amazon Linux 2023 and an account's default may require it
            )
        elif known(template.tokens) == "optional":
            yield problem(
                template.tokens,
                f"{template.name}: version 1 of the metadata service is allowed",
                "write required",
                edit=_requiring(file, template.tokens),
            )
        if known(template.hop_limit) == 1 and template.hop_limit is not None and template.users:
            yield problem(
                template.hop_limit,
                f"{template.name}: with a hop limit of 1, containers cannot reach the metadata service",
                "write 2",
            )


def _requiring(file: File, tokens: Value[str]) -> Edit | None:
    """Only where the value is written beside its key: a parameter's default may be used elsewhere too."""
    line = file.text.splitlines()[tokens.span.line - 1]
    return edit_to(file, tokens, "required") if "HttpTokens" in line[: tokens.span.column] else None


# Policies that give the account away; what else nodes need (all of S3, say) their owner knows.
_EVERYTHING = ("AdministratorAccess", "PowerUserAccess", "IAMFullAccess", "AmazonSSMFullAccess")


@rule("SEC004", "warning")
def access_is_narrow(file: File) -> Iterator[Problem]:
    """Access should not be wider than a cluster needs.

    Managed policies that grant everything (AdministratorAccess, AmazonSSMFullAccess ...), ssh, web, NFS or Lustre
    ports (or every port) open to the whole internet, ParallelCluster's `AllowedIps: 0.0.0.0/0`, `ssh: {allow: true}`
    of eksctl for nodes in public subnets, and endpoint policies that allow every action on every resource.

    Why: whoever gets into one node, or only finds its address, gets much more; 0.0.0.0/0 admits 4.3 billion
    addresses.

    Fix: the narrower policy that the message names; your own CIDR in place of 0.0.0.0/0; name bucket and actions.

    Source: IAM user guide, least privilege; configurations of public training repositories.

    When to ignore: the port serves the public on purpose, such as a load balancer. A bastion is not
    reported.
    """
    broad = table("access")["broad_policies"]
    places: dict[str, list[Value[str]]] = {}
    for value in _policies(file):
        places.setdefault(value.value.rsplit("/", 1)[-1], []).append(value)
    for name in broad.keys() & places.keys():
        first, *others = places[name]
        what = f"{name} grants these nodes far more than they need{_also(others)}"
        yield problem(first, what, broad[name], level=None if name in _EVERYTHING else "info")
    for kind, whose in (("endpoint", "the endpoint's policy"), ("inline", "this policy")):
        open_ones = [policy.name for policy in file.policies if policy.kind == kind]
        if kind == "inline" and not _concerns_nodes(file):
            continue
        if open_ones:
            yield problem(
                open_ones[0],
                f"{whose} allows every action on every resource{_also(open_ones[1:])}",
                "name the buckets and actions that nodes need",
            )
    for cluster in file.clusters:
        for address in cluster.head.allowed_ips if cluster.head is not None else ():
            if known(address) in ("0.0.0.0/0", "::/0"):
                yield problem(address, "ssh is open to the whole internet", "name your own address range")
        yield from _open_ssh(cluster)
    opened: dict[tuple[Span, str, str], list[str]] = {}
    for group in file.security_groups:
        if _BASTION.search(f"{group.name} {Path(file.path).parent.name} {Path(file.path).name}"):
            continue
        for one in group.ingress:
            for at, what in _open_port(group.name, one):
                opened.setdefault((at, what, "name your own address range"), []).append(group.name)
    for (at, what, fix), names in opened.items():  # one parameter may open several groups
        message = f"{', '.join(dict.fromkeys(names))}: {what} to the whole internet"
        yield problem(at, message, fix, level=None if _is_written(file, at) else "info")


def _is_written(file: File, at: Span) -> bool:
    """Whether the address stands there itself, not as the default of a variable or parameter that a user replaces."""
    line = file.text.split("\n")[at.line - 1]
    return ("0.0.0.0/0" in line or "::/0" in line) and "default" not in line.lower()


def _open_ssh(cluster: Cluster) -> Iterator[Problem]:
    """Node groups of eksctl that take ssh from everywhere."""
    places = [q.extra["open_ssh"] for q in cluster.queues if "open_ssh" in q.extra and known(q.public_ip) is not False]
    if places:
        yield problem(
            places[0],
            f"eksctl opens port 22 of these nodes to the whole internet{_also(places[1:])}",
            "add sourceSecurityGroupIds, or use SSM (enableSsm)",
        )


def _also(others: list[Value[str]]) -> str:
    return f" (and on lines {', '.join(str(one.span.line) for one in others)})" if others else ""


def _concerns_nodes(file: File) -> bool:
    """Whether a template's roles are those of nodes: others may need everything."""
    return file.format != "cloudformation" or _FOR_NODES.search(file.text) is not None


def _policies(file: File) -> Iterator[Value[str]]:
    reported: set[Span] = set()
    for cluster in file.clusters:
        heads = [cluster.head.policies] if cluster.head is not None else []
        for policies in [*heads, *(queue.policies for queue in cluster.queues)]:
            for value in policies:
                if value.span not in reported:
                    reported.add(value.span)
                    yield value
    if _concerns_nodes(file):
        yield from (policy.name for policy in file.policies if policy.kind == "managed")


_FOR_NODES = re.compile(r"AWS::(EC2|Batch|EKS|SageMaker|FSx|AutoScaling)::|InstanceProfile|ec2\.amazonaws\.com")
_BASTION = re.compile(r"bastion|jump-?(host|box|server)", re.IGNORECASE)  # is there to be reached from everywhere
_BALANCER = re.compile(r"load.?balancer|(?<![a-z])[ean]lb(?![a-z])|ALB|ELB|NLB", re.IGNORECASE)
_WEB = ("80", "443")
_LAST_PORT = 65535
_NODES = re.compile(r"node|compute|worker|cluster|fsx|efa", re.IGNORECASE)  # others may serve the public


def _open_port(name: str, one: PortRule) -> Iterator[tuple[Span, str]]:
    """Where and what a rule opens to everybody."""
    if one.peer is None or known(one.peer) not in ("0.0.0.0/0", "::/0"):
        return
    if known(one.protocol) == "-1" and _BALANCER.search(name):
        return  # it answers on its listeners only
    if known(one.protocol) == "-1":
        yield one.peer.span, "every port is open"
        return
    low, high = known(one.from_port), known(one.to_port)
    if low is not None and high is not None and low <= 1 and high >= _LAST_PORT and not _BALANCER.search(name):
        yield one.peer.span, "every port is open" if known(one.protocol) != "udp" else "every UDP port is open"
        return
    for port, what in table("access")["open_ports"].items():
        if port in _WEB and not _NODES.search(name):
            continue
        if low is not None and high is not None and low <= int(port) <= high:
            yield one.peer.span, f"port {port} ({what}) is open"
            return
