"""EKS: eksctl cluster files."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from trainwright.check.model import Cluster, File, Queue, known
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.tables import machines
from trainwright.spec.source import Node

_OF_A_CLUSTER = (("metadata", "version"), ("availabilityZones",), ("vpc",), ("iam",), ("addons",), ("cloudWatch",))


@rule("EKS001", "error")
def node_groups_can_start(file: File) -> Iterator[Problem]:
    """An eksctl file must give its GPU node groups what they need.

    A group on a reservation stays in the zone of the reservation; groups of P nodes have EFA enabled; system pods have
    a group without accelerators; the Kubernetes version is one that EKS still supports (extended support costs six
    times as much, which is a warning). Whether a reservation is a Capacity Block that lacks its market type is checked
    under `--aws` (CAP003).

    Why: nodes never join, collectives run over TCP (a p5.48xlarge has 3,200 Gbps over EFA and 100 over its first card),
    or CoreDNS has no node to run on while GPU nodes are scaled to zero. Extended support costs 0.60 instead of 0.10 USD
    per hour and cluster.

    Fix: `availabilityZones: [<zone of the reservation>]`, `efaEnabled: true`, a small CPU group, a newer version.

    Source: eksctl user guide, capacity reservations and EFA; EKS user guide, Kubernetes versions.

    When to ignore: the subnets are already in that one zone only.
    """
    if file.format != "eksctl":
        return
    for cluster, root in zip(file.clusters, file.nodes, strict=False):
        for queue in cluster.queues:
            yield from _one_zone(cluster, queue)
            yield from _efa(queue)
        yield from _system_nodes(cluster, root)
        yield from _version(cluster)


def _one_zone(cluster: Cluster, queue: Queue) -> Iterator[Problem]:
    at = queue.reservation or queue.reservation_group
    if at is None:
        return
    places = [*queue.zones, *queue.subnets]
    if not places and len(cluster.zones) == 1:
        return
    if not places:
        yield problem(
            at,
            f"{queue.label}: nothing restricts this group to the zone of its reservation",
            "add availabilityZones (or subnets) with that one zone to the group",
        )
    elif len(places) > 1 and queue.reservation is not None and not known(queue.efa):
        yield problem(
            places[1], f"{queue.label}: a reservation is in one zone, the group in {len(places)}", "keep that zone"
        )


def _efa(queue: Queue) -> Iterator[Problem]:
    single = 1 in (known(queue.max_count), known(queue.extra.get("desired")))
    for value, type_ in machines(queue):
        if (
            type_.family.startswith("p")
            and type_.efa_cards
            and not single
            and (queue.efa is None or known(queue.efa) is False)
        ):
            yield problem(
                queue.efa or value,
                f"{queue.label}: {type_.name} without EFA leaves {type_.efa_cards} network cards unused",
                "set efaEnabled: true",
                level="info" if known(queue.capacity) == "spot" else None,  # jobs of one node, as a rule
            )


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
        )


def _version(cluster: Cluster) -> Iterator[Problem]:
    from trainwright.catalog.versions import kubernetes_support

    version = known(cluster.version)
    if version is None or cluster.version is None or version.count(".") != 1 or not version.replace(".", "").isdigit():
        return
    support = kubernetes_support(version, date.today())
    if support == "ended":
        yield problem(cluster.version, f"EKS no longer supports Kubernetes {version}", "use a supported version")
    elif support == "extended":
        yield problem(
            cluster.version,
            f"Kubernetes {version} is in extended support, which costs six times as much",
            "use a newer version",
            level="warning",
        )
