"""What a node's links can carry, and how its network cards are addressed. Benchmark thresholds come from these
ceilings, so that none exceeds what the hardware can do."""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.catalog.accelerators import find_accelerator
from trainwright.catalog.instances import InstanceType


@dataclass(frozen=True, slots=True)
class Interface:
    """One entry of a launch template's network interfaces."""

    card: int
    device: int
    kind: str  # efa | efa-only | interface


def network_gb_s(type_: InstanceType) -> float:
    """GB per second, one way, over all cards of one node (GB is 1e9)."""
    return type_.network_gbps / 8


def allreduce_ceiling_gb_s(type_: InstanceType, nodes: int) -> float | None:
    """The bus bandwidth (as nccl-tests counts it) that no all-reduce over whole nodes can exceed: the slower of the
    links inside a node and, from two nodes on, the network. None: one chip, or nodes whose chips have no link."""
    ranks = nodes * type_.accelerator_count
    inside = _inside_ceiling(type_)
    if ranks < 2 or (nodes == 1 and inside is None):
        return None
    if nodes == 1:
        return inside
    # All but the node's own part leaves and enters through its cards: 2(N-1)/N of the data.
    algorithm = network_gb_s(type_) * nodes / (2 * (nodes - 1))
    between = algorithm * 2 * (ranks - 1) / ranks
    return min(between, inside) if inside else between


def _inside_ceiling(type_: InstanceType) -> float | None:
    """A ring moves at the link's rate; a switch that reduces lets each chip send its data once, not twice."""
    chip = find_accelerator(type_.accelerator or "")
    if chip is None or not chip.nvlink_gb_s or type_.accelerator_count < 2:
        return None
    chips = type_.accelerator_count
    return chip.nvlink_gb_s * (2 * (chips - 1) / chips if chip.nvls else 1.0)


def efa_interfaces(type_: InstanceType) -> tuple[Interface, ...]:
    """The launch template entries that use every EFA card: the first card carries IP too, the others only EFA and so
    take no address. Empty where there is no EFA, or where it is not known which cards have it."""
    cards, efa = type_.network_cards, type_.efa_cards
    if efa == 0 or efa not in (1, cards - 1, cards):
        return ()
    first = "interface" if efa == cards - 1 and efa > 1 else "efa"
    # A card that allows one interface has it at device 0.
    device = 0 if type_.max_enis == cards else 1
    others = range(1, efa if first == "efa" else cards)
    return (Interface(0, 0, first), *(Interface(card, device, "efa-only") for card in others))
