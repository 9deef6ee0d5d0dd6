"""The bus bandwidth that no collective can exceed on given wires, with the arithmetic that says so."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainwright.catalog.accelerators import find_accelerator
from trainwright.catalog.instances import InstanceType

# As nccl-tests counts: bus bandwidth = algorithm bandwidth x factor(ranks).
RING = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")


@dataclass(frozen=True, slots=True)
class Wires:
    """The ranks of one communicator and the links they share. GB/s (1e9 bytes per second), one way."""

    name: str
    nodes: int
    per_node: int  # ranks of the communicator on each node
    network: float  # what one node's cards carry for this communicator; 0: not known
    link: float  # one accelerator's link to the others of its node; 0: not known or none
    reducing_switch: bool = False  # the switch reduces (NVLS): an all-reduce sends its data once

    @property
    def ranks(self) -> int:
        return self.nodes * self.per_node


@dataclass(frozen=True, slots=True)
class Ceiling:
    """A bus bandwidth in GB/s and the lines that derive it."""

    busbw: float
    derivation: tuple[str, ...]


def wires_of(kind: InstanceType, nodes: int, per_node: int = 0, groups: int = 1) -> Wires:
    """The wires of EC2 nodes; with a split into `groups` communicators at once, each has its share of the cards."""
    chip = find_accelerator(kind.accelerator or "")
    whole = max(1, kind.accelerator_count)
    per_node = per_node or whole
    share = min(1.0, per_node / whole) if groups > 1 else 1.0
    link = chip.nvlink_gb_s if chip is not None and kind.accelerator_count > 1 else 0.0
    return Wires(
        kind.name, nodes, per_node, kind.network_gbps / 8 * share, link, bool(chip is not None and chip.nvls and link)
    )


def plain_wires(name: str, nodes: int, per_node: int, gbps: float) -> Wires:
    """Nodes of which only the network card's rate is known."""
    return Wires(name, nodes, per_node, gbps / 8, 0.0)


def bus_factor(op: str, ranks: int) -> float:
    """Bytes across a rank's slowest link, per byte of message."""
    if op == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if op in RING else 1.0


def ceiling(op: str, wires: Wires) -> Ceiling | None:
    """The lower of what the network and what the links inside a node allow; None where neither is known."""
    limits = [limit for limit in (_between(op, wires), _inside(op, wires)) if limit is not None]
    if wires.ranks < 2 or not limits:
        return None
    lowest = min(limits, key=lambda limit: limit.busbw)
    others = [limit for limit in limits if limit is not lowest]
    return replace(lowest, derivation=(*lowest.derivation, *(line for other in others for line in other.derivation)))


def _between(op: str, wires: Wires) -> Ceiling | None:
    """What must pass through one node's cards, in one direction."""
    n, ranks, rate = wires.nodes, wires.ranks, wires.network
    if n < 2 or not rate:
        return None
    if op == "all_reduce":
        traffic, formula = 2 * (n - 1) / n, f"2({n} - 1)/{n} of the message"
    elif op in ("all_gather", "reduce_scatter", "gather", "scatter"):
        traffic, formula = (n - 1) / n, f"({n} - 1)/{n} of the message"
    elif op == "all_to_all":
        traffic = wires.per_node * (n - 1) / n
        formula = f"{wires.per_node} ranks x ({n} - 1)/{n} of the message"
    else:
        traffic, formula = 1.0, "the message once"
    algbw, factor = rate / traffic, bus_factor(op, ranks)
    return Ceiling(
        algbw * factor,
        (
            f"network: a node's cards carry {rate:g} GB/s one way; {formula} passes them: at most {algbw:.1f} GB/s",
            f"times the bus factor of {op} over {ranks} ranks, {factor:.4g}: {algbw * factor:.1f} GB/s of bus rate",
        ),
    )


def _inside(op: str, wires: Wires) -> Ceiling | None:
    """What one accelerator's own links carry; across nodes its share of the cards adds to them."""
    local, link = wires.per_node, wires.link
    if local < 2 or not link:
        return None
    if op == "all_reduce" and wires.reducing_switch:
        rate = link * 2 * (local - 1) / local
        how = f"NVLink: {link:g} GB/s one way, and the switch reduces, so data is sent once: {rate:.1f} GB/s"
        return Ceiling(rate, (how,))
    if wires.nodes > 1:
        rate = link + wires.network / local
        return Ceiling(
            rate, (f"NVLink: {link:g} GB/s one way, plus {wires.network / local:g} GB/s of network per GPU",)
        )
    return Ceiling(link, (f"NVLink: {link:g} GB/s one way per GPU",))
