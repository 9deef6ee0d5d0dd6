"""SEC: who may reach the nodes: key pairs, the metadata service, policies and open ports."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainwright.check.finding import Edit, Level
from trainwright.check.model import Cluster, File, LaunchTemplate, Queue, Value, known
from trainwright.check.readers.values import bool_at, text_at
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.rules.sec_ports import EVERYBODY, is_planned, open_groups
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
    every user of the head node read its role's credentials. A hop limit of 1, which keeps containers with their own
    network from the service altogether, is a note, and so is a setting that a comment explains.

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
                level="info" if is_planned(file, cluster.imds.span, _MEANT) else None,
                edit=edit_to(file, cluster.imds, "v2.0"),
            )
        secured = cluster.head.imds_secured if cluster.head is not None else None
        if secured is not None and known(secured) is False and not _on_awsbatch(file):
            yield problem(
                secured,
                "every user of the head node can read its role's credentials from the metadata service",
                "write true, or leave it out",
                level="info" if is_planned(file, secured.span, _MEANT) else None,
            )
        for queue in cluster.queues:
            disabled = queue.extra.get("imds_v1_disabled")
            if disabled is not None and known(disabled) is False:
                yield problem(disabled, f"{queue.label}: version 1 of the metadata service is allowed", "write true")
    yield from _launch_templates(file)


# A remark on the setting itself: who writes one has decided.
_MEANT = re.compile(r"imds|metadata|credential|\brole\b|\baws cli\b|allow|needs?\b|require", re.IGNORECASE)


def _on_awsbatch(file: File) -> bool:
    """ParallelCluster refuses `Secured: true`, its default, with this scheduler."""
    named = (root.get("Scheduling", "Scheduler") for root in file.nodes)
    return any(scheduler is not None and scheduler.text == "awsbatch" for scheduler in named)


def _launch_templates(file: File) -> Iterator[Problem]:
    for template in file.launch_templates:
        if template.tokens is None:
            yield problem(
                template.span,
                f"{template.name}: version 2 of the metadata service is not required",
                _REQUIRED.get(file.format, "add MetadataOptions: {HttpTokens: required, HttpPutResponseHopLimit: 2}"),
                level="info",  # images such as Amazon Linux 2023 and an account's default may require it
            )
        elif known(template.tokens) == "optional":
            edit = _requiring(file, template.tokens)
            chosen = edit is None or is_planned(file, template.tokens.span, _MEANT)
            yield problem(
                template.tokens,
                f"{template.name}: version 1 of the metadata service is allowed",
                "write required" + _hops(file, template),
                level="info" if chosen else None,
                edit=edit,
            )
        if known(template.hop_limit) == 1 and template.hop_limit is not None and template.users:
            yield problem(
                template.hop_limit,
                f"{template.name}: with a hop limit of 1, containers cannot reach the metadata service",
                "write 2",
                level="info",  # which may be the purpose
            )


_REQUIRED = {
    "terraform": 'add the block metadata_options with http_tokens = "required" and http_put_response_hop_limit = 2'
}


def _hops(file: File, template: LaunchTemplate) -> str:
    """Version 2 answers containers with a network of their own only behind two hops; the default is one."""
    if (known(template.hop_limit) or 1) > 1:
        return ""
    option = "http_put_response_hop_limit = 2" if file.format == "terraform" else "HttpPutResponseHopLimit: 2"
    return f", with {option} where containers use it"


def _requiring(file: File, tokens: Value[str]) -> Edit | None:
    """Only where the value is written beside its key: a parameter's default may be used elsewhere too."""
    line = file.text.splitlines()[tokens.span.line - 1]
    key = line[: tokens.span.column].lower().replace("_", "")
    return edit_to(file, tokens, "required") if "httptokens" in key else None


# Policies that give the account away; what else nodes need (all of S3, say) their owner knows.
_EVERYTHING = ("AdministratorAccess", "PowerUserAccess", "IAMFullAccess", "AmazonSSMFullAccess")


@rule("SEC004", "warning")
def access_is_narrow(file: File) -> Iterator[Problem]:
    """Access should not be wider than a cluster needs.

    Managed policies of nodes that grant everything (AdministratorAccess, AmazonSSMFullAccess ...), ssh, NFS, Lustre or
    database ports (or every port) open to the whole internet, ParallelCluster's `AllowedIps: 0.0.0.0/0`,
    `ssh: {allow: true}` of eksctl for nodes in public subnets, and policies of a node's role that allow every action on
    every resource. In Terraform a policy is a note where nothing shows that the instances of its role are nodes of a
    cluster. Web ports, endpoint policies, defaults of parameters, groups in which only things without a public
    address are (load balancers, mount targets, private databases), and what a comment says will be narrowed, are notes.

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
        no_node = any(policy.name is first and policy.kind == "instance" for policy in file.policies)
        loud = name in _EVERYTHING and not no_node and not is_planned(file, first.span)
        what = f"{name} grants what runs on these nodes {broad[name]['grants']}{_also(others)}"
        yield problem(first, what, broad[name]["instead"], level=None if loud else "info", why=_ROLE)
    yield from _open_policies(file)
    for cluster in file.clusters:
        for address in cluster.head.allowed_ips if cluster.head is not None else ():
            if known(address) in EVERYBODY:
                level: Level | None = "info" if is_planned(file, address.span) else None
                yield problem(address, "AllowedIps admits the whole internet", "name your own range", level=level)
        yield from _open_ssh(file, cluster)
    yield from open_groups(file)


def _open_policies(file: File) -> Iterator[Problem]:
    for kind, whose in (("endpoint", "the endpoint's policy"), ("inline", "this policy"), _OF_AN_INSTANCE):
        open_ones = [policy.name for policy in file.policies if policy.kind == kind]
        if open_ones and (kind == "endpoint" or _concerns_nodes(file)):
            planned = file.format == "terraform" and is_planned(file, open_ones[0].span)
            yield problem(
                open_ones[0],
                f"{whose} allows every action on every resource{_also(open_ones[1:])}",
                "name the buckets and actions that nodes need",
                level=None if kind == "inline" and not planned else "info",  # an endpoint without a policy does so too
                why="" if kind == "endpoint" else _ROLE,
            )


_OF_AN_INSTANCE = ("inline-instance", "this policy of an instance's role")
_ROLE = "every process on these nodes can use their role, and so can whoever gets into one of them."


def _open_ssh(file: File, cluster: Cluster) -> Iterator[Problem]:
    """Node groups of eksctl that take ssh from everywhere; in a network without public subnets nobody reaches them."""
    places = [
        (queue.extra["open_ssh"], all(subnet.value in _subnets(file, "public") for subnet in queue.subnets))
        for queue in cluster.queues
        if "open_ssh" in queue.extra and known(queue.public_ip) is not False and not _is_in_private(file, queue)
    ]
    if places:
        certain = any(public for _, public in places)
        first, *others = [value for value, public in places if public is certain]
        yield problem(
            first,
            f"eksctl opens port 22 of these nodes to the whole internet{_also(others)}",
            "write allow: false and use SSM (enableSsm: true), or name who may in sourceSecurityGroupIds",
            level=None if certain else "info",  # which kind of subnets a group names is not written here
        )


def _is_in_private(file: File, queue: Queue) -> bool:
    """Whether a group has private subnets only: its own, or as the network has no others."""
    private, public = _subnets(file, "private"), _subnets(file, "public")
    closed = any(known(bool_at(root, "privateCluster", "enabled")) for root in file.nodes)
    return (
        closed
        or (bool(private) and not public)
        or (bool(queue.subnets) and all(subnet.value in private for subnet in queue.subnets))
    )


def _subnets(file: File, kind: str) -> set[str]:
    """The names and ids of a network's subnets of one kind."""
    listed = [one for root in file.nodes if (one := root.get("vpc", "subnets", kind)) is not None]
    named = [(name, text_at(node, "id")) for one in listed for name, node in one.items()]
    return {name for name, _ in named} | {value.value for _, value in named if value is not None}


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
        yield from (policy.name for policy in file.policies if policy.kind in ("managed", "instance"))


_FOR_NODES = re.compile(r"AWS::(EC2|Batch|EKS|SageMaker|FSx|AutoScaling)::|InstanceProfile|ec2\.amazonaws\.com")
