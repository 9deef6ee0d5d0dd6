"""NET: the interfaces of launch templates, and addresses in subnets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainwright.catalog.instances import InstanceType
from trainwright.check import reasons
from trainwright.check.finding import Level
from trainwright.check.model import File, Interface, LaunchTemplate, Queue, Value, known
from trainwright.check.readers.cfn_template import template_of
from trainwright.check.readers.hcl_source import Block, parse_hcl
from trainwright.check.readers.values import text_at, texts_at
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.tables import machine, machines
from trainwright.spec.source import Span

if TYPE_CHECKING:
    from trainwright.check.facts import AwsFacts

# Addresses that AWS reserves in every subnet.
_KEPT = 5


@rule("NET006", "error")
def interfaces_fit_the_cards(file: File) -> Iterator[Problem]:
    """A launch template's EFA interfaces must match the cards of its instance type.

    As many EFA interfaces as the type has EFA cards, one per card; card 0 starts at device index 0, the other cards at
    1 (at 0 only where a card takes a single interface); and no public address once there are several.

    Why: instances fail to start, or start with part of the bandwidth that is paid for: each of the 32 cards of a
    p5.48xlarge, and of the 4 of a p4d.24xlarge, has 100 Gbps.

    Fix: one interface per card: NetworkCardIndex 0 with DeviceIndex 0, each further card with DeviceIndex 1 and
    `efa-only`.

    Source: EC2 user guide, EFA on multi-card instances; ParallelCluster, queues_stack.add_network_interfaces.

    When to ignore: the job is known to need part of the bandwidth only.
    """
    for template in file.launch_templates:
        type_ = machine(template.instance)
        if len(template.interfaces) > 1:
            yield from _public(template)
        efa = [one for one in template.interfaces if one.kind is not None and one.kind.value.startswith("efa")]
        if type_ is None or not efa or not type_.efa_cards or any(_vague(one) for one in template.interfaces):
            continue
        if not template.conditional:
            yield from _count(template, type_, efa)
        yield from _indexes(template, type_)


def _vague(one: Interface) -> bool:
    return any(value is not None and not value.known for value in (one.card, one.device, one.kind))


def _public(template: LaunchTemplate) -> Iterator[Problem]:
    for one in template.interfaces:
        if known(one.public_ip) and one.public_ip is not None:
            yield problem(
                one.public_ip,
                f"{template.name}: an instance with {len(template.interfaces)} interfaces cannot have a public address",
                "set it to false; use a private subnet with a NAT gateway",
                why=reasons.ONE_INTERFACE,
            )


def _count(template: LaunchTemplate, type_: InstanceType, efa: list[Interface]) -> Iterator[Problem]:
    cards = {known(one.card) or 0 for one in efa}
    if len(cards) < type_.efa_cards and template.interfaces_span is not None:
        yield problem(
            template.interfaces_span,
            f"{template.name}: only {len(cards)} of the {type_.efa_cards} EFA cards of {type_.name} "
            f"{'is' if len(cards) == 1 else 'are'} used",
            f"list one EFA interface for each of the {type_.efa_cards} cards",
            level="warning" if type_.accelerator_count else "info",  # it starts, with part of the bandwidth
            why=f"each of the {type_.network_cards} cards carries its own part of the {type_.network_gbps:g} Gbps.",
        )


def _indexes(template: LaunchTemplate, type_: InstanceType) -> Iterator[Problem]:
    first = 0 if type_.max_enis // type_.network_cards == 1 else 1
    seen: set[tuple[int, int]] = set()
    low: list[Interface] = []
    high: list[Interface] = []
    for one in template.interfaces:
        card, device = known(one.card) or 0, known(one.device) or 0
        if card >= type_.network_cards:
            yield problem(
                _card_place(one),
                f"{template.name}: {type_.name} has cards 0 to {type_.network_cards - 1}, and no card {card}",
                "remove this interface",
                why=reasons.REFUSED_BY_EC2,
            )
        elif (card, device) in seen:
            what = f"{template.name}: card {card} has device index {device} twice"
            yield problem(_place(one), what, "give each its own card", why=reasons.REFUSED_BY_EC2)
        elif card and device < first:
            low.append(one)
        elif card and device > 1:
            high.append(one)
        seen.add((card, device))
    if (0, 0) not in seen and template.interfaces:
        message = f"{template.name}: no interface has card 0 and device index 0, which EC2 requires"
        fix = "write device index 0 for the interface of card 0"
        yield problem(_place(template.interfaces[0]), message, fix, why=reasons.REFUSED_BY_EC2)
    # A wrong pattern repeats over thirty cards: one mistake, reported at its first position.
    if low:
        message = f"{template.name}: device index 0 belongs to card 0, and not to {_cards(low)}"
        # Of the newest families AWS documents both.
        level: Level | None = "info" if type_.family.startswith("p6") else None
        fix = "write device index 1 for every card but the first"
        cards = [known(one.card) or 0 for one in template.interfaces]
        fix += ", and one interface per card" if any(cards.count(known(one.card) or 0) > 1 for one in low) else ""
        yield problem(_place(low[0]), message, fix, level=level, why=reasons.REFUSED_BY_EC2)
    if high:
        message = f"{template.name}: a device index above 1 on {_cards(high)}, where AWS documents 1"
        why = reasons.UNDOCUMENTED_INDEX  # EC2 starts it
        yield problem(_place(high[0]), message, "write device index 1", level="info", why=why)


def _cards(interfaces: list[Interface]) -> str:
    numbers = [str(known(one.card) or 0) for one in interfaces]
    if len(numbers) == 1:
        return f"card {numbers[0]}"
    return f"cards {numbers[0]} to {numbers[-1]}" if len(numbers) > 2 else f"cards {numbers[0]} and {numbers[1]}"


def _place(one: Interface) -> Span:
    at = one.device or one.card
    return at.span if at is not None else one.span


def _card_place(one: Interface) -> Span:
    return one.card.span if one.card is not None else one.span


def addresses(type_: InstanceType, queue: Queue, template: LaunchTemplate | None) -> int:
    """Private addresses per node. EFA-only interfaces need none."""
    if template is not None and template.interfaces:
        return sum(known(one.kind) != "efa-only" for one in template.interfaces)
    return 1


@rule("NET007", "warning")
def subnet_has_room(file: File) -> Iterator[Problem]:
    """A subnet must have addresses for every interface of every node.

    Every interface except the EFA-only kind takes an address: a p5.48xlarge started with 32 plain EFA interfaces takes
    32. AWS reserves five addresses of a subnet. Where the file names no interfaces, one address per node is counted;
    for HyperPod, which starts nodes with an interface on each of their cards, one per card (a note).

    Why: nodes start until the addresses are used up, and the rest of the cluster never starts: a /24 has 251
    addresses, enough for 7 nodes of 32 interfaces.

    Fix: use a larger subnet (a /17 has 32,763 addresses), or `efa-only` interfaces on every card but the first.

    Source: EC2 user guide, EFA-only interfaces; VPC user guide, subnet sizing; SageMaker developer guide, HyperPod with
    a custom VPC.

    When to ignore: the maximum is never used.
    """
    blocks = _cidr_blocks(file)
    rooms = {name: (block, _size(block.value)) for name, block in blocks.items() if block.known}
    sizes = {name: (block, size) for name, (block, size) in rooms.items() if size is not None}
    if not sizes:
        return
    in_terraform = _terraform_subnets(file)
    launch = {id(one.instance): one for one in file.launch_templates if one.instance is not None}
    for cluster, queue in file.queues:
        for value, type_ in machines(queue):
            nodes = _nodes(queue, type_)
            each = addresses(type_, queue, launch.get(id(value)))
            subnets = queue.subnets or in_terraform.get(queue.label, [])
            there = [sizes[subnet.value] for subnet in subnets if subnet.value in sizes]
            if nodes is None or len(there) != len(subnets) or not there:
                continue
            room = sum(size for _, size in there)
            if nodes * each > room:
                yield problem(
                    there[0][0],
                    f"{room} addresses for {nodes} nodes of {type_.name} that need {each} each ({nodes * each})",
                    "use a larger subnet, or efa-only interfaces on every card but the first",
                )
            elif cluster.platform == "hyperpod" and type_.efa_cards > 1 and nodes * type_.network_cards > room:
                need = nodes * type_.network_cards
                yield problem(
                    there[0][0],
                    f"{room} addresses for {nodes} nodes of {type_.name}, which HyperPod starts with an interface "
                    f"on each of {type_.network_cards} cards ({need})",
                    f"use a larger subnet, of {need + _KEPT} addresses or more",
                    level="info",  # with efa-only interfaces a node takes one
                )


def _cidr_blocks(file: File) -> dict[str, Value[str]]:
    """The address ranges of the subnets that a template or a Terraform file creates, by what others call them."""
    template = template_of(file)
    if template is not None:
        named = {one.id: template.text(one.get("CidrBlock")) for one in template.of("EC2::Subnet")}
        return {name: block for name, block in named.items() if block is not None}
    subnets = [one for one in _resources(file) if one.labels[0] == "aws_subnet"]
    written = {f"${{aws_subnet.{one.name}.id}}": text_at(one.body, "cidr_block") for one in subnets}
    return {name: block for name, block in written.items() if block is not None}


def _terraform_subnets(file: File) -> dict[str, list[Value[str]]]:
    groups = [one for one in _resources(file) if one.labels[0] == "aws_eks_node_group"]
    return {one.labels[1]: texts_at(one.body, "subnet_ids") for one in groups}


def _resources(file: File) -> list[Block]:
    if file.format != "terraform":
        return []
    return [one for one in parse_hcl(file.text, file.path) if one.kind == "resource" and len(one.labels) == 2]


def _size(block: str) -> int | None:
    import ipaddress

    try:
        return max(0, ipaddress.ip_network(block, strict=False).num_addresses - _KEPT)
    except ValueError:
        return None


def _nodes(queue: Queue, type_: InstanceType) -> int | None:
    vcpus = known(queue.extra.get("max_vcpus"))
    if vcpus is not None:
        # A maximum far above any subnet means "no limit".
        return vcpus // type_.vcpus if vcpus < 100_000 else None
    return known(queue.max_count)


@rule("NET007", "warning", needs="aws")
def existing_subnet_has_room(file: File, aws: AwsFacts) -> Iterator[Problem]:
    """An existing subnet must have free addresses for the nodes that go into it.

    With AWS access the free addresses of a subnet are compared with the nodes of every queue in it, at least one
    address per node.

    Why: nodes start until the addresses are used up, and the rest of the cluster never starts: a /24 has 251
    addresses.

    Fix: use a larger subnet.

    Source: EC2 DescribeSubnets; VPC user guide, subnet sizing.

    When to ignore: other users of the subnet will leave before.
    """
    wanted: dict[str, int] = {}
    for _, queue in file.queues:
        high = known(queue.max_count)
        if high is None or len(queue.subnets) != 1 or not queue.subnets[0].known:
            continue
        subnet = queue.subnets[0]
        before = wanted.get(subnet.value, 0)
        wanted[subnet.value] = before + high
        details = aws.subnet(subnet.value)
        if details is not None and before <= details.free_addresses < wanted[subnet.value]:
            yield problem(
                subnet,
                f"{queue.label}: {details.id} has {details.free_addresses} addresses for {wanted[subnet.value]} nodes",
                "use a larger subnet",
            )
