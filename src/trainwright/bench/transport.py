"""Says which transport carried NCCL's traffic, from NCCL's own log, and whether it fell back in silence."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

PROVIDER = re.compile(r"NET/OFI Selected [Pp]rovider is (\S+?),?\s.*?\(found (\d{1,9}) nics?\)")
NETWORK = re.compile(r"Using network (.+?)\s*$")
CHANNEL = re.compile(r"Channel \d+(?:/\d+)? ?: (\d+)\[.*?\] -> (\d+)\[.*?\].* via (\S.*?)\s*$")
NET_DEVICE = re.compile(r"^NET/(.+?)/(\d+)(?:/(\S+))?$")
SOCKET_DEVICE = re.compile(r"NET/Socket : Using ((?:\[\d+\]\S+\s*)+)")
IB_DEVICE = re.compile(r"NET/IB : Using ((?:\[\d+\]\S+\s*)+)")
NVLS = re.compile(r"NVLS comm|Connected NVLS|NVLS multicast support is available")
RANKS = re.compile(r"\brank (\d{1,9}) nranks (\d{1,9})\b")
HOST = re.compile(r"^(?:.*?[\s:>\]])?([A-Za-z0-9][\w.-]*):\d+:\d+ \[\d+\] NCCL")
REASONS = (
    ("the OFI plugin was not found", r"NET/Plugin\s*:\s*(?:Could not find|No plugin found|Failed to load)[^\n]*"),
    (
        "the OFI plugin could not start",
        r"aws-ofi-nccl initialization failed[^\n]*|NET/OFI [^\n]*(?:failed|No eligible)[^\n]*",
    ),
    ("an environment variable chose the network", r"NCCL_NET(?:_PLUGIN)? set by environment to \S+"),
)


@dataclass(frozen=True, slots=True)
class Traffic:
    """What NCCL connected: channels by transport, and the cards it found."""

    between: dict[str, int] = field(default_factory=dict)  # channels between nodes: EFA, sockets, InfiniBand
    inside: dict[str, int] = field(default_factory=dict)  # inside a node: NVLink or PCIe peer to peer, shared memory
    cards: int = 0  # network devices NCCL found on a node (the fewest of all nodes)
    used: int = 0  # different devices its channels use
    network: str = ""  # as NCCL names it
    direct: bool = False  # GPUs and cards exchange data without the host's memory
    nvls: bool = False
    ranks: int = 0
    reasons: tuple[str, ...] = ()

    @property
    def main(self) -> str:
        """The transport of most channels between nodes, or of those inside one."""
        for channels in (self.between, self.inside):
            if channels:
                return max(channels, key=lambda name: channels[name])
        return kind_of_network(self.network) if self.network else ""


def kind_of_network(name: str, provider: str = "") -> str:
    """NCCL's names: `AWS Libfabric` and `Libfabric` are EFA only if that is the provider libfabric chose."""
    low = name.lower()
    if "libfabric" in low or "ofi" in low:
        return "EFA" if provider.startswith("efa") or not provider else f"libfabric over {provider}"
    if low.startswith("socket"):
        return "sockets"
    return "InfiniBand" if low.startswith("ib") else name


def start_capture(folder: Path) -> None:
    """Have NCCL write its log into `folder`, a file per process, unless the user already directs it elsewhere."""
    if "NCCL_DEBUG_FILE" not in os.environ:
        os.environ.update(NCCL_DEBUG="INFO", NCCL_DEBUG_FILE=str(folder / "nccl-%h-%p.log"))


def captured(folder: Path) -> str:
    """What NCCL wrote for the processes of this machine that share the folder."""
    return "\n".join(path.read_text(errors="replace") for path in sorted(folder.glob("nccl-*.log")))


def read_log(text: str) -> Traffic:
    """Everything the log says about transports; needs NCCL_DEBUG=INFO."""
    between: Counter[str] = Counter()
    inside: Counter[str] = Counter()
    devices: set[tuple[str, str]] = set()
    counts: dict[str, list[int]] = {"cards": []}
    provider, network, direct, nvls, ranks = "", "", False, False, 0
    for line in text.splitlines():
        if fields := PROVIDER.search(line):
            provider = fields[1]
            counts["cards"].append(int(fields[2]))
        elif fields := SOCKET_DEVICE.search(line) or IB_DEVICE.search(line):
            counts["cards"].append(len(re.findall(r"\[\d+\]", fields[1])))
        elif fields := NETWORK.search(line):
            network = fields[1]
        elif fields := RANKS.search(line):
            ranks = max(ranks, int(fields[2]))
        elif fields := CHANNEL.search(line):
            name = _channel(fields[3], provider)
            device = NET_DEVICE.match(fields[3])
            (between if device else inside)[name] += 1
            if device:
                devices.add((_host(line), device[2]))
                direct = direct or "GDR" in (device[3] or "")
        nvls = nvls or bool(NVLS.search(line))
    used = max(Counter(host for host, _ in devices).values(), default=0)
    reasons = tuple(f"{words}: {match[0].strip()}" for words, pattern in REASONS if (match := re.search(pattern, text)))
    return Traffic(
        dict(between), dict(inside), min(counts["cards"], default=0), used, network, direct, nvls, ranks, reasons
    )


def _channel(via: str, provider: str) -> str:
    if device := NET_DEVICE.match(via):
        return kind_of_network(device[1], provider)
    if via.startswith("P2P"):
        return "peer to peer"
    return "shared memory" if via.startswith("SHM") else via


def _host(line: str) -> str:
    match = HOST.match(line)
    return match[1] if match else ""


@dataclass(frozen=True, slots=True)
class TransportVerdict:
    status: str  # pass | warn | fail | skip
    reason: str
    notes: tuple[str, ...] = ()


def judge_transport(traffic: Traffic, nodes: int, efa_cards: int, nvlink: bool) -> TransportVerdict:
    """Fails when an EFA instance used anything else between nodes, or fewer cards than it has."""
    if not traffic.main:
        return TransportVerdict("skip", "the log names no transport", ("set NCCL_DEBUG=INFO and run again",))
    problems: list[str] = []
    if nodes > 1:
        problems += _network_problems(traffic, efa_cards)
    if nvlink and (shared := traffic.inside.get("shared memory")):
        problems.append(f"{shared} channels inside a node go through shared memory, not NVLink")
    said = describe(traffic, nvlink)
    if problems:
        return TransportVerdict("fail", "; ".join(problems), (said, *traffic.reasons))
    if nodes > 1 and efa_cards and traffic.between and not traffic.direct:
        return TransportVerdict("warn", "EFA without GPUDirect RDMA: data passes through host memory", (said,))
    return TransportVerdict("pass", said, traffic.reasons if traffic.main == "sockets" else ())


def _network_problems(traffic: Traffic, efa_cards: int) -> Sequence[str]:
    if not efa_cards:
        return []
    others = sorted({*traffic.between} - {"EFA"}) or ([] if traffic.main == "EFA" else [traffic.main])
    if others:
        return [f"the nodes have {efa_cards} EFA cards, but traffic between them went over {', '.join(others)}"]
    if traffic.cards and traffic.cards < efa_cards:
        return [f"NCCL found {traffic.cards} of {efa_cards} EFA cards"]
    return []


def describe(traffic: Traffic, nvlink: bool = False) -> str:
    """One line: what carried the traffic. NCCL's log says only that GPUs are peers; the wire is the machine's."""
    parts = []
    if traffic.between or traffic.network:
        name = traffic.main if traffic.between else kind_of_network(traffic.network)
        cards = f", {traffic.cards} cards" if traffic.cards else ""
        parts.append(f"between nodes: {name}{cards}{', GPUDirect RDMA' if traffic.direct else ''}")
    if traffic.inside:
        name = max(traffic.inside, key=lambda kind: traffic.inside[kind])
        name = "NVLink" if nvlink and name == "peer to peer" else name
        parts.append(f"inside a node: {name}{' with in-switch reduction (NVLS)' if traffic.nvls else ''}")
    return "; ".join(parts)
