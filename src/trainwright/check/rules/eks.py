"""EKS: eksctl cluster files, and the version of a cluster of Terraform."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from trainwright.catalog.instances import InstanceType
from trainwright.check import reasons
from trainwright.check.model import Cluster, File, Queue, known
from trainwright.check.readers.cfn_template import template_of
from trainwright.check.readers.values import value_of
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.rules.eks_changes import PINNED, SOON, changes_of_a_version, newer_versions, together_with
from trainwright.check.tables import machines
from trainwright.spec.source import Node

_OF_A_CLUSTER = (("metadata", "version"), ("availabilityZones",), ("vpc",), ("iam",), ("addons",), ("cloudWatch",))

_TRAINING_CARDS = 4  # below, one node is what most jobs use
_STANDARD_ONLY = re.compile(r"\bsupport_type\s*=\s*\"STANDARD\"")
_SERVES = re.compile(r"infer|serv|vllm", re.IGNORECASE)
# eksctl makes EFA interfaces on every card, and the first card of these has none.
_FIRST_CARD_WITHOUT = ("p6-b300", "p6e-gb200")


@rule("EKS001", "error")
def node_groups_can_start(file: File) -> Iterator[Problem]:
    """An eksctl file must give its GPU node groups what they need.

    A group on a reservation stays in the zone of the reservation; groups of P nodes have EFA enabled (a warning);
    system pods have a group without accelerators; the Kubernetes version, here and in Terraform, is one that EKS still
    supports (extended support costs six times as much, which is a warning); so is the version that a node group of
    Terraform states. A managed group with a launch template
    states its instance type, image, disk, ssh and boot commands there (`instanceTypes` may stay), and a node group of
    CloudFormation its disk. Whether a reservation is a Capacity Block that lacks its market type is checked under
    `--aws` (CAP003).

    Why: nodes never join, collectives run over TCP (a p5.48xlarge has 3,200 Gbps over EFA and 100 over its first card),
    or CoreDNS has no node to run on while GPU nodes are scaled to zero. Extended support costs 0.60 instead of 0.10 USD
    per hour and cluster.

    Fix: `availabilityZones: [<zone of the reservation>]`, `efaEnabled: true`, a small CPU group, a newer version.

    Source: eksctl user guide, capacity reservations, EFA and launch template support; EKS user guide, Kubernetes
    versions and launch templates.

    When to ignore: the subnets are already in that one zone only.
    """
    if file.format == "cloudformation":
        yield from _disk_in_template(file)
    if file.format == "terraform":
        for cluster in file.clusters:
            if cluster.platform == "eks":
                yield from _version(file, cluster, None)
                yield from _versions_of_groups(file, cluster)
    if file.format != "eksctl":
        return
    for cluster, root in zip(file.clusters, file.nodes, strict=False):
        for queue in cluster.queues:
            yield from _one_zone(cluster, root, queue)
            yield from _efa(queue)
        yield from _beside_template(root)
        yield from _system_nodes(cluster, root)
        yield from _version(file, cluster, root)


# What eksctl refuses beside the launch template of a managed group, which states it itself.
_IN_TEMPLATE = (
    ("instanceType",), ("ami",), ("volumeSize",), ("ssh", "allow"), ("ssh", "sourceSecurityGroupIds"),
    ("preBootstrapCommands",), ("overrideBootstrapCommand",), ("securityGroups", "attachIDs"),
)  # fmt: skip


# What it refuses too, wherever one of these is moved.
_ALSO_IN_TEMPLATE = (
    ("ssh", "enableSsm"), ("instanceName",), ("instancePrefix",), ("maxPodsPerNode",), ("disableIMDSv1",),
    ("disablePodIMDS",), ("placement",),
)  # fmt: skip


def _beside_template(root: Node) -> Iterator[Problem]:
    groups = root.get("managedNodeGroups")
    for group in groups.elements() if groups is not None else ():
        if group.get("launchTemplate", "id") is None:
            continue
        given = [path for path in _IN_TEMPLATE if (one := group.get(*path)) is not None and _is_set(one)]
        also = [path for path in _ALSO_IN_TEMPLATE if (one := group.get(*path)) is not None and _is_set(one)]
        if given:
            names = [".".join(path) for path in (*given, *also)]
            yield problem(
                group.key_span(given[0][0]),
                f"{', '.join(names)} beside a launchTemplate: eksctl refuses the group",
                "write instanceTypes: […] instead" if names == ["instanceType"] else _moved(names),
                why="eksctl ends with `cannot set … in managedNodeGroup when a launch template is supplied`.",
            )


def _moved(names: list[str]) -> str:
    """The fix for what only the launch template may state; several instance types stay in the group."""
    fix = f"state {'it' if len(names) == 1 else 'them'} in the launch template only"
    return f"{fix} (instanceTypes: […] may stay here)" if "instanceType" in names else fix


def _is_set(node: Node) -> bool:
    """Whether a key has an effect: `ssh: {allow: false}` and an empty list have none."""
    return bool(node.value) and not (node.is_scalar and not value_of(node).known)


def _disk_in_template(file: File) -> Iterator[Problem]:
    template = template_of(file)
    for resource in template.of("EKS::Nodegroup") if template is not None else ():
        disk, named = resource.get("DiskSize"), resource.get("LaunchTemplate")
        if (
            disk is not None
            and named is not None
            and disk.is_scalar
            and not disk.tag
            and named.is_map
            and not named.tag
        ):
            what = f"{resource.id}: DiskSize beside a LaunchTemplate: EKS refuses the group"
            yield problem(disk, what, "move it into the launch template", why=reasons.DISK_IN_TEMPLATE)


def _one_zone(cluster: Cluster, root: Node, queue: Queue) -> Iterator[Problem]:
    at = queue.reservation  # a group of reservations may span zones, and EC2 starts its other instances on demand
    if at is None:
        return
    places = [*queue.zones, *queue.subnets]
    if not places and (len(cluster.zones) == 1 or _subnets_in_one_zone(root, queue)):
        return
    if not places:
        yield problem(
            at,
            f"{queue.label}: nothing restricts this group to the zone of its reservation",
            "add availabilityZones (or subnets) with that one zone to the group",
            why="EC2 refuses to start an instance of a reservation in another zone.",
        )
    elif len(places) > 1 and not known(queue.efa):
        several = len(queue.zones) > 1
        yield problem(
            places[1],
            f"{queue.label}: a reservation is in one zone, and the group in {len(places)} "
            f"{'zones' if several else 'subnets'}",
            "keep that zone" if several else "keep the subnets of that zone",
            level=None if several else "info",  # two subnets may be in one zone
            why="EC2 refuses to start an instance of a reservation in another zone.",
        )


def _subnets_in_one_zone(root: Node, queue: Queue) -> bool:
    """Whether the cluster's own subnets, of which a group uses the private or the public ones, leave it one zone."""
    kind = "private" if known(queue.public_ip) is False else "public"
    subnets = root.get("vpc", "subnets", kind)
    return subnets is not None and len(list(subnets.items())) == 1


def _efa(queue: Queue) -> Iterator[Problem]:
    single = 1 in (known(queue.max_count), known(queue.extra.get("desired")))
    if single or "launch_template" in queue.extra or not (queue.efa is None or known(queue.efa) is False):
        return
    for value, type_ in machines(queue):
        if type_.family.startswith("p") and type_.efa_cards:
            own_template = type_.family in _FIRST_CARD_WITHOUT
            trains = type_.efa_cards >= _TRAINING_CARDS and not _SERVES.search(queue.label) and not own_template
            cards = "network card" if type_.efa_cards == 1 else "network cards"
            yield problem(
                queue.efa or value,
                f"{queue.label}: {type_.name} without EFA leaves {type_.efa_cards} {cards} unused",
                "name a launchTemplate with EFA interfaces" if own_template else enabling_efa(queue, type_),
                # Jobs of one node, as a rule, run on spot, on small types and behind an address.
                level="warning" if trains and known(queue.capacity) != "spot" else "info",
                why=f"NCCL between nodes uses TCP over the first card, 1 of {type_.network_cards}.",
            )


def enabling_efa(queue: Queue, type_: InstanceType) -> str:
    """What enables EFA: a node with several network cards has no public address to reach its cluster by."""
    private = known(queue.public_ip) is False or queue.subnets or type_.network_cards == 1
    return "set efaEnabled: true" + ("" if private else " and privateNetworking: true")


def _system_nodes(cluster: Cluster, root: Node) -> Iterator[Problem]:
    others = any(root.get(name) is not None for name in ("fargateProfiles", "autoModeConfig", "karpenter"))
    # Without any of these the file adds groups to a cluster that exists: `eksctl create nodegroup -f`.
    others = others or not any(root.get(*path) is not None for path in _OF_A_CLUSTER)
    known_types = [machines(queue) for queue in cluster.queues]
    if others or not cluster.queues or not all(known_types):
        return
    if all(type_.accelerator_count for types in known_types for _, type_ in types):
        yield problem(
            cluster.queues[0].name or cluster.queues[0].span,
            "every node group has accelerators: system pods (CoreDNS, operators) have no node of their own",
            "add a small group, such as two m5.xlarge",
            level="info",  # the file may add groups to a cluster that has others
            why=reasons.NO_SYSTEM_NODE,
        )


def _version(file: File, cluster: Cluster, root: Node | None) -> Iterator[Problem]:
    from trainwright.catalog.versions import kubernetes_support, today

    version = known(cluster.version)
    if version is None or cluster.version is None or not _is_release(version):
        return
    support = kubernetes_support(version, today())
    if support == "ended":
        refused = "EKS refuses to create a cluster of this version."
        what = f"EKS no longer supports Kubernetes {version}"
        yield problem(cluster.version, what, _newer_versions(file, cluster, root), why=refused)
    elif support == "extended":
        policy = root.get("upgradePolicy", "supportType") if root is not None else None
        # By EKS, before anything is charged.
        upgraded = policy is not None and policy.text == "STANDARD"
        upgraded |= root is None and _STANDARD_ONLY.search(file.text) is not None
        yield problem(
            cluster.version,
            f"Kubernetes {version} is in extended support, which costs six times as much{_end_of(version)}",
            _newer_versions(file, cluster, root),
            why="the cluster costs 0.60 instead of 0.10 USD per hour.",
            level="info" if upgraded or _is_to_fill_in(root) else "warning",
        )


def _end_of(version: str) -> str:
    """When EKS upgrades the cluster, where that is soon."""
    from trainwright.catalog.version_numbers import parse_version
    from trainwright.catalog.versions import kubernetes_versions, today

    row = next((row for row in kubernetes_versions() if row.version == parse_version(version)), None)
    soon = row is not None and row.extended_until <= today() + SOON
    return f"; that ends on {row.extended_until:%d %B %Y}" if row is not None and soon else ""


def _versions_of_groups(file: File, cluster: Cluster) -> Iterator[Problem]:
    """Node groups that state a version no cluster has any more, where the cluster's own is another or in another
    file; where its own has ended too, the fix for the cluster names them."""
    from trainwright.catalog.versions import kubernetes_support, today

    stated = [queue.extra["version"] for queue in cluster.queues if "version" in queue.extra]
    releases = [one for one in stated if one.known and _is_release(one.value)]
    ended = [one for one in releases if kubernetes_support(one.value, today()) == "ended"]
    own = known(cluster.version)
    if ended and (own is None or kubernetes_support(own, today()) != "ended"):
        others = f" ({len(ended) - 1} more of this file)" if len(ended) > 1 else ""
        bound = changes_of_a_version(file, replace(cluster, version=None), None)
        way = f"state {own}" if own is not None else "remove version"
        yield problem(
            ended[0],
            f"EKS no longer supports Kubernetes {ended[0].value}, which this node group states{others}",
            f"{way}, so that the group has its cluster's{together_with(bound, PINNED.format(ended[0].value))}",
            why="EKS creates a node group in the version of its cluster only, and no cluster has this one any more.",
        )


def _is_release(version: str) -> bool:
    return version.count(".") == 1 and version.replace(".", "").isdigit()


def _newer_versions(file: File, cluster: Cluster, root: Node | None) -> str:
    """The fix: versions whose standard support does not end soon, and what in the file is made for the old one."""
    newer = newer_versions()
    fix = f"use {newer}" if newer else "use a newer version"
    version = root.get("metadata", "version") if root is not None else None
    if version is not None and not isinstance(version.value, str):
        fix += " in quotes (to eksctl, a version is text)"
    fix += together_with(changes_of_a_version(file, cluster, root), PINNED.format(known(cluster.version)))
    return f"{fix}; a cluster that runs already is upgraded one minor version at a time"


def _is_to_fill_in(root: Node | None) -> bool:
    """Whether a file names its cluster `YourCluster`: it is a template for others."""
    name = root.get("metadata", "name") if root is not None else None
    return name is not None and name.text.lower().startswith("your")
