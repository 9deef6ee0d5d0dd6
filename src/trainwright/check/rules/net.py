"""NET: the network between nodes: EFA, placement, addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainwright.catalog.instances import InstanceType
from trainwright.check import reasons
from trainwright.check.model import Cluster, File, PortRule, Queue, SecurityGroup, Value, known
from trainwright.check.pcluster_schema import may_be_older_than
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.rules.eks import enabling_efa
from trainwright.check.shared_values import own_place
from trainwright.check.tables import machines

if TYPE_CHECKING:
    from trainwright.check.facts import AwsFacts, Group, GroupRule

_TRAINING_GBPS = 100
_ASKED_SINCE = (3, 3)  # before, ParallelCluster only advised to state a placement group


@rule("NET001", "error")
def placement_is_stated_with_efa(file: File) -> Iterator[Problem]:
    """A queue with EFA must state whether it uses a placement group.

    ParallelCluster requires an answer, `true` or `false`, wherever EFA is enabled, except for a Capacity Block or a
    queue over several subnets. `false` without a reservation is only a warning: nodes may then be anywhere in the zone.

    Why: without an answer the cluster is refused; with `false` and no reservation, latency between nodes is up to
    chance.

    Fix: `PlacementGroup: {Enabled: true}` for on-demand nodes, `{Enabled: false}` for reserved ones.

    Source: ParallelCluster, EfaPlacementGroupValidator.

    When to ignore: capacity cannot be had inside a placement group, and latency was measured.
    """
    for _, queue in file.queues:
        yield from _impossible_group(queue)
        if not known(queue.efa) or queue.efa is None or len(queue.subnets) > 1 or known(queue.capacity) == "block":
            continue
        if queue.capacity is not None and not queue.capacity.known:
            continue
        if queue.placement is None and file.format == "parallelcluster":
            if all(not type_.efa_cards for _, type_ in machines(queue)) and machines(queue):
                continue  # NET002: it cannot be enabled at all
            yield problem(
                queue.efa,
                f"{queue.label}: EFA is enabled but the placement group is not stated",
                "add `PlacementGroup: {Enabled: true}`, or false for reserved capacity, under Networking",
                level="info" if may_be_older_than(file, _ASKED_SINCE) else None,
                why=reasons.PLACEMENT_NOT_STATED,
            )
        elif (
            known(queue.placement) is False and queue.placement is not None and _written(queue) and not _reserved(queue)
        ):
            if known(queue.max_count) == 1:
                continue
            yield problem(
                queue.placement,
                f"{queue.label}: EFA without a placement group or a reservation: nodes may be far apart",
                "enable the placement group, unless capacity cannot be had that way",
                level="info",
                why=reasons.FAR_APART,
            )


def _impossible_group(queue: Queue) -> Iterator[Problem]:
    if known(queue.placement) is False and queue.placement_name is not None and queue.placement_name.text:
        what = f"{queue.label}: a placement group is named and disabled"
        yield problem(queue.placement_name, what, "keep one of the two", why=reasons.REFUSED_BY_PARALLELCLUSTER)
    for _, type_ in machines(queue):
        if (
            known(queue.placement)
            and queue.placement is not None
            and type_.placement[0]
            and "cluster" not in type_.placement
        ):
            yield problem(
                queue.placement,
                f"{queue.label}: {type_.name} cannot be in a cluster placement group",
                "disable the group, or use another type",
                why=reasons.REFUSED_BY_EC2,
            )


def _written(queue: Queue) -> bool:
    return queue.placement is not None and queue.placement.text != ""


def _reserved(queue: Queue) -> bool:
    return queue.reservation is not None or queue.reservation_group is not None


def _has_type_without_efa(queue: Queue) -> bool:
    return any(not type_.efa_cards for _, type_ in machines(queue))


@rule("NET002", "error")
def efa_fits_the_instance(file: File) -> Iterator[Problem]:
    """EFA must be enabled on instance types that have it, and used on those bought for it.

    EFA on a type without it is refused: g4dn, g5, g6, g6e, g7 and g7e below 8xlarge, gr6.4xlarge, trn1.2xlarge, all of
    g5g, g6f, inf2, p3 and m5. `trainwright catalog list --efa` lists the types that have it.

    The reverse is a queue of several accelerator nodes that could use EFA and does not. A type with several EFA cards
    (p4d, p5.48xlarge, g6e from 24xlarge) is a warning where the nodes are kept running or placed together, else a note,
    and also where EFA is disabled on purpose. A type with one card is a note from 100 Gbps on, and not reported below,
    nor where the file says `Enabled: false`.

    Why: the cluster is refused; or collectives run over TCP at a fraction of the bandwidth that is paid for: 3,200 Gbps
    on p5.48xlarge, 400 on p4d.24xlarge, and 100 on the first card of each.

    Fix: disable EFA, or choose a larger size; enable EFA for training nodes.

    Source: ParallelCluster, EfaValidator; EC2 DescribeInstanceTypes.

    When to ignore: the nodes never communicate with each other.
    """
    for cluster, queue in file.queues:
        unused = False  # one of several types is enough
        direct = queue.extra.get("gpu_direct")
        if direct is not None and known(direct) and not known(queue.efa) and (queue.efa is None or queue.efa.known):
            yield problem(
                direct,
                f"{queue.label}: GdrSupport needs EFA, which is disabled",
                "enable EFA",
                why=reasons.REFUSED_BY_PARALLELCLUSTER,
            )
        for value, type_ in machines(queue):
            if known(queue.efa) and not type_.efa_cards and queue.efa is not None and cluster.platform != "hyperpod":
                place = own_place(cluster, queue, lambda one: one.efa, _has_type_without_efa)
                place = place if file.format == "terraform" else None
                disable = "add enable_efa_support = false to this group" if place is not None else "disable EFA"
                yield problem(
                    place or (queue.efa if queue.efa.text else value),
                    f"{queue.label}: {type_.name} has no EFA",
                    f"{disable}, or use a type that has it (`trainwright catalog list --efa`)",
                    why=reasons.REFUSED_BY_EC2,
                )
            elif not unused and type_.efa_cards and type_.accelerator_count and _forgotten(file, cluster, queue, type_):
                unused = True
                cards = f"{type_.efa_cards} EFA cards that are" if type_.efa_cards > 1 else "EFA, which is"
                yield problem(
                    queue.efa or value,
                    f"{queue.label}: {type_.name} ({type_.network_gbps:g} Gbps) has {cards} unused",
                    # Alone, ParallelCluster would refuse it: NET001.
                    "enable EFA, and state a placement group"
                    if file.format == "parallelcluster" and queue.placement is None
                    else (enabling_efa(queue, type_) if file.format == "eksctl" else "enable EFA"),
                    level="warning" if type_.efa_cards > 1 and _work_together(file, queue) else "info",
                    why=reasons.without_efa(type_.name, type_.network_gbps, type_.network_cards),
                )
    for template in file.launch_templates:
        for _, type_ in machines(Queue(template.span, instances=[template.instance] if template.instance else [])):
            first = next((one for one in template.interfaces if _is_efa(one.kind)), None)
            if first is not None and first.kind is not None and not type_.efa_cards:
                yield problem(
                    first.kind,
                    f"{template.name}: {type_.name} has no EFA",
                    "use plain interfaces",
                    why=reasons.REFUSED_BY_EC2,
                )


_ALONE = re.compile(
    r"infer|serv|notebook|jupyter|desktop|visual|single|(?<![a-z])(dev|test|viz)(?![a-z])", re.IGNORECASE
)


def _work_together(file: File, queue: Queue) -> bool:
    """Whether the file shows that the nodes run one job; single nodes with eight GPUs are as common."""
    if file.format == "spec":
        return True
    if known(queue.efa) is False or _ALONE.search(queue.label):
        return False
    kept = known(queue.min_count) or known(queue.extra.get("desired")) or 0
    return bool(known(queue.placement)) or kept > 1


def _is_efa(kind: Value[str] | None) -> bool:
    return kind is not None and kind.value in ("efa", "efa-only")


def _forgotten(file: File, cluster: Cluster, queue: Queue, type_: InstanceType) -> bool:
    if file.format not in ("parallelcluster", "eksctl", "spec") or len(queue.subnets) > 1:
        return False
    if file.format == "eksctl" and (type_.family.startswith("p") or "launch_template" in queue.extra):
        return False  # EKS001 says it, as an error; a launch template may have the interfaces
    single = known(queue.max_count) == 1 or (file.format == "eksctl" and known(queue.extra.get("desired")) == 1)
    if single or (queue.max_count is not None and not queue.max_count.known):
        return False
    if queue.efa is None:
        # Below 100 Gbps single nodes for inference are as common: not reported.
        return type_.efa_cards > 1 or type_.network_gbps >= _TRAINING_GBPS
    return queue.efa.text != "" and known(queue.efa) is False and type_.efa_cards > 1


@rule("NET003", "error")
def efa_group_reaches_itself(file: File) -> Iterator[Problem]:
    """The security group of EFA nodes must allow all traffic from itself and to itself.

    EFA's own transport bypasses IP, and only rules that name the group itself admit it: an egress rule to 0.0.0.0/0
    does not replace the one to the group, nor does a rule for TCP. The group is found by the EFA interfaces of launch
    templates and of `aws_network_interface`, for Terraform in all files of the directory.

    Why: nodes start, EFA devices are present, and the first collective hangs or falls back to TCP, with 100 instead of
    3,200 Gbps on p5.48xlarge.

    Fix: add ingress -1 from the group and egress -1 to the group (as separate resources: a group cannot name itself
    while it is created).

    Source: EC2 user guide, EFA security groups; ParallelCluster, EfaSecurityGroupValidator and issue 3590.

    When to ignore: the nodes carry a second group that has both rules.
    """
    for group in file.security_groups:
        inward, outward = _all_from_itself(group.ingress), _all_from_itself(group.egress)
        if "efa" not in group.uses:
            continue
        if not inward and not outward:
            yield problem(
                group.span,
                f"{group.name}: EFA nodes use this group, but it does not allow all traffic between them",
                f"add ingress -1 from the group itself and egress -1 to the group itself{_how(file, group)}",
            )
        elif not inward or not outward:
            missing = "ingress -1 from" if not inward else "egress -1 to"
            part = next((one for one in (group.egress if inward else group.ingress) if one.itself), None)
            protocol = known(part.protocol) if part is not None else None
            what = (
                f"one for {protocol} alone does not carry it" if protocol else "one for 0.0.0.0/0 does not replace it"
            )
            yield problem(
                part.span if part is not None else group.span,
                f"{group.name}: EFA needs a rule {missing} the group itself; {what}",
                f"add {missing} the group itself{_how(file, group)}",
            )


def _how(file: File, group: SecurityGroup) -> str:
    """How a rule names the group that it is of: CloudFormation refuses a group that refers to itself."""
    if file.format == "terraform":
        keys = [rule.protocol.key for rule in [*group.ingress, *group.egress] if rule.protocol is not None]
        if any(key is not None and file.lines[key.line - 1][key.column - 1 :].startswith("ip_") for key in keys):
            return f' (referenced_security_group_id = aws_security_group.{group.name}.id, ip_protocol = "-1", no ports)'
        return " (self = true)"
    if file.format != "cloudformation":
        return ""
    return ", each as a resource of its own: AWS::EC2::SecurityGroupIngress, AWS::EC2::SecurityGroupEgress"


def _all_from_itself(rules: list[PortRule]) -> bool:
    return any(one.itself and known(one.protocol) == "-1" for one in rules)


@rule("NET003", "error", needs="aws")
def existing_efa_group_reaches_itself(file: File, aws: AwsFacts) -> Iterator[Problem]:
    """The existing security groups of EFA nodes must allow all traffic from and to themselves.

    One of the groups of EFA nodes has to name itself in an ingress and in an egress rule for all protocols. Groups that
    ParallelCluster only adds to its own are not reported: its own is right.

    Why: nodes start, and the first collective hangs or falls back to TCP, with 100 instead of 3,200 Gbps on
    p5.48xlarge.

    Fix: add both rules to the group.

    Source: ParallelCluster, EfaSecurityGroupValidator.

    When to ignore: the rules will be added before the cluster is created.
    """
    for _, queue in file.queues:
        replaced = file.format != "parallelcluster" or "replaced_groups" in queue.extra
        ids = [value for value in queue.security_groups if value.known]
        if not known(queue.efa) or not ids or not replaced or len(ids) != len(queue.security_groups):
            continue
        groups = [group for group in (aws.security_group(value.value) for value in ids) if group is not None]
        if groups and not any(_names_itself(g, g.ingress) and _names_itself(g, g.egress) for g in groups):
            yield problem(
                ids[0],
                f"{queue.label}: no security group of these EFA nodes allows all traffic from and to itself",
                f"add ingress -1 from {ids[0].value} and egress -1 to it",
            )


def _names_itself(group: Group, rules: tuple[GroupRule, ...]) -> bool:
    return any(one.protocol == "-1" and group.id in one.groups for one in rules)


_ONE_ZONE = "EFA traffic does not leave a subnet's zone: nodes in 2 zones cannot use it with each other."


@rule("NET004", "error")
def efa_stays_in_one_zone(file: File) -> Iterator[Problem]:
    """A queue with EFA must stay in one subnet.

    EFA traffic does not leave a subnet's zone. A queue over several subnets or zones cannot use it; nor, in
    ParallelCluster, a placement group, or a single `InstanceType` outside an `Instances` list.

    Why: the cluster is refused, or nodes of one job are placed in two zones and cannot communicate.

    Fix: keep the one subnet where the capacity is, or define one queue per zone.

    Source: ParallelCluster, EfaMultiAzValidator, MultiAzPlacementGroupValidator and SingleInstanceTypeSubnetValidator;
    EC2 user guide, EFA limitations.

    When to ignore: never; ParallelCluster refuses the queue.
    """
    for cluster, queue in file.queues:
        if file.format == "parallelcluster":
            yield from _several_subnets(queue)
        if not known(queue.efa) or cluster.platform in ("hyperpod", "eks-nodegroup"):
            continue
        for places, what in ((queue.subnets, "subnets"), (queue.zones, "zones")):
            if len(places) > 1:
                yield problem(
                    places[1],
                    f"{queue.label}: EFA cannot span {len(places)} {what}",
                    "keep one, or define one queue for each",
                    why=reasons.REFUSED_BY_PARALLELCLUSTER if file.format == "parallelcluster" else _ONE_ZONE,
                )


def _several_subnets(queue: Queue) -> Iterator[Problem]:
    # A single type, and a placement group, are refused by ParallelCluster as well.
    if len(queue.subnets) < 2 or known(queue.efa):
        return
    if queue.instances and queue.instances_listed is None:
        yield problem(
            queue.subnets[1],
            f"{queue.label}: a single InstanceType needs exactly one subnet",
            "keep one subnet" + ("" if known(queue.placement) else ", or write the type as an `Instances` list"),
            why=reasons.REFUSED_BY_PARALLELCLUSTER,
        )
    elif known(queue.placement):
        what, why = f"{queue.label}: a placement group cannot span zones", reasons.REFUSED_BY_PARALLELCLUSTER
        yield problem(queue.subnets[1], what, "keep one, or disable the group", why=why)


@rule("NET005", "error")
def many_cards_take_no_public_address(file: File) -> Iterator[Problem]:
    """Nodes with several network cards cannot have a public address.

    EC2 assigns an automatic public address only to instances started with one interface. Types with several cards are
    started with one interface per card.

    Why: EC2 gives a public address only to a node with one interface, and p5.48xlarge has 32: nodes fail to start, one
    after another, until the queue is disabled.

    Fix: put the nodes into a private subnet with a NAT gateway, and do not request public addresses.

    Source: ParallelCluster, MultiNetworkInterfacesInstancesValidator and issue 7457.

    When to ignore: never; EC2 refuses to start the node.
    """
    for cluster, queue in file.queues:
        if not known(queue.public_ip) or queue.public_ip is None:
            continue
        for _, type_ in machines(queue):
            if type_.network_cards > 1 and (cluster.platform != "eks" or known(queue.efa)):
                yield problem(
                    queue.public_ip,
                    f"{queue.label}: {type_.name} has {type_.network_cards} network cards and gets no public address",
                    _PRIVATE.get(file.format, "request none") + ", and use a private subnet with a NAT gateway",
                )


_PRIVATE = {"parallelcluster": "write AssignPublicIp: false", "eksctl": "write privateNetworking: true"}


@rule("NET005", "error", needs="aws")
def many_cards_in_a_private_subnet(file: File, aws: AwsFacts) -> Iterator[Problem]:
    """Nodes with several network cards must be in a subnet that assigns no public addresses.

    A subnet may assign a public address to every instance by itself; instances with several interfaces are refused
    there.

    Why: EC2 gives a public address only to a node with one interface, and p5.48xlarge has 32: nodes fail to start, one
    after another, until the queue is disabled.

    Fix: use a private subnet with a NAT gateway.

    Source: ParallelCluster, MultiNetworkInterfacesInstancesValidator and issue 7457.

    When to ignore: never; EC2 refuses to start the node.
    """
    for _, queue in file.queues:
        cards = max((type_.network_cards for _, type_ in machines(queue)), default=1)
        for subnet in queue.subnets if cards > 1 else []:
            details = aws.subnet(subnet.value) if subnet.known else None
            if details is not None and details.public_addresses:
                yield problem(
                    subnet,
                    f"{queue.label}: {details.id} assigns public addresses; nodes with {cards} cards get none",
                    "use a private subnet with a NAT gateway",
                )
