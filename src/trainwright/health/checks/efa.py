"""EFA: every card there and usable by a job, and its counters clean."""

from __future__ import annotations

from trainwright.health.inventory import INFINIBAND, efa_addresses, efa_devices, pci_devices
from trainwright.health.node import Node
from trainwright.health.profile import Profile, rows
from trainwright.health.registry import check
from trainwright.health.verdict import Outcome, failed, passed, skipped, unknown, warned, worst_outcome

PROVIDER = ("fi_info", "-p", "efa", "-t", "FI_EP_RDM")
MEMLOCK = 16 * 2**30  # bytes; less and memory registration fails under load
BOOTING, TRIES, TRY_SECONDS = 180.0, 3, 5.0  # seconds of uptime; p5en needs that long
HUGE_PAGES = 5128  # of 2 MiB: what the EFA installer reserves


@check("efa.count", action="isolate", needs=("efa",))
def count(node: Node, profile: Profile) -> Outcome:
    """Every EFA card of the instance type is on the bus."""
    on_bus = len(efa_addresses(node))
    for _ in range(TRIES):
        # Many cards take a while to appear after boot.
        if on_bus >= (profile.efa or 0) or float((node.read("/proc/uptime") or "inf").split()[0]) > BOOTING:
            break
        node.pause(TRY_SECONDS)
        pci_devices.cache_clear()
        on_bus = len(efa_addresses(node))
    if profile.efa and on_bus < profile.efa:
        hint = "launched without EFA interfaces?" if not on_bus else "or launched with fewer: then state --expect"
        return failed(f"{on_bus} EFA cards of {profile.efa} ({hint})")
    return passed(f"{on_bus} of {profile.efa}" if profile.efa else f"{on_bus}")


@check("efa.driver", action="reboot", needs=("efa",))
def driver(node: Node, profile: Profile) -> Outcome:
    """The EFA driver made an RDMA device of every card, and jobs can open it."""
    on_bus, devices = len(efa_addresses(node)), efa_devices(node)
    if len(devices) < on_bus:
        return failed(f"{len(devices)} RDMA devices for {on_bus} cards: the efa driver left some out")
    files = len(node.paths("/dev/infiniband/uverbs*"))
    if files < len(devices):
        return failed(f"{files} device files (/dev/infiniband/uverbs*) for {len(devices)} RDMA devices")
    return passed(f"{len(devices)} devices, driver {node.read('/sys/module/efa/version') or 'of the kernel'}")


@check("efa.port", action="isolate", needs=("efa",))
def port(node: Node, profile: Profile) -> Outcome:
    """The port of every EFA device is active."""
    states = {name: node.read(f"{INFINIBAND}/{name}/ports/1/state") or "" for name in efa_devices(node)}
    down = [f"{name} {state or 'has no state'}" for name, state in states.items() if "ACTIVE" not in state]
    return failed(", ".join(down)) if down else passed("all active")


@check("efa.provider", action="isolate", needs=("efa",), seconds=1.0, commands=(PROVIDER,))
def provider(node: Node, profile: Profile) -> Outcome:
    """libfabric offers the efa provider on every device."""
    if not node.has("fi_info"):
        return skipped("fi_info is not installed here")
    output = node.run(*PROVIDER)
    domains = {line.split()[1] for line in output.out.splitlines() if line.strip().startswith("domain:")}
    devices = efa_devices(node)
    if not output.ok or not domains:
        return failed(f"fi_info finds no efa provider ({output.complaint}): NCCL would use TCP")
    if len(domains) < len(devices):
        return failed(f"fi_info offers {len(domains)} of {len(devices)} devices")
    return passed(f"{len(domains)} domains")


@check("efa.device_counters", action="monitor", needs=("efa",))
def device_counters(node: Node, profile: Profile) -> Outcome:
    """No EFA device counts failed commands."""
    return _counters(node, "device", "{device}/hw_counters")


@check("efa.port_counters", action="monitor", needs=("efa",))
def port_counters(node: Node, profile: Profile) -> Outcome:
    """No EFA port drops, repeats or loses more than a healthy fabric does."""
    return _counters(node, "port", "{device}/ports/1/hw_counters")


def _counters(node: Node, level: str, place: str) -> Outcome:
    outcomes, seen = [], 0
    limits = [row for row in rows("efa_counters.csv") if row["level"] == level]
    for device in efa_devices(node):
        folder = f"{INFINIBAND}/{place.format(device=device)}"
        for row in limits:
            value = node.number(f"{folder}/{row['counter']}")
            if value is None:  # a counter this driver does not have
                continue
            seen += 1
            whole = node.number(f"{folder}/{row['per']}") if row["per"] else None
            if value > float(row["limit"]) * (whole if whole is not None else 1):
                share = f" of {whole} {row['per']}" if whole is not None else ""
                message = f"{device}: {row['counter']} {value}{share} ({row['meaning']})"
                outcomes.append(warned(message) if row["verdict"] == "monitor" else failed(message, row["verdict"]))
    return worst_outcome(outcomes, f"{seen} counters within limits") if seen else unknown("no counter can be read")


@check("efa.memlock", action="monitor", needs=("efa",))
def memlock(node: Node, profile: Profile) -> Outcome:
    """A job may lock the memory that EFA registers."""
    line = next((line for line in (node.read("/proc/self/limits") or "").splitlines() if "locked memory" in line), "")
    if not line:
        return unknown("/proc/self/limits cannot be read")
    soft = line.split()[3]
    if soft != "unlimited" and int(soft) < MEMLOCK:
        return warned(f"memlock is {int(soft) // 2**10} KiB: set it to unlimited for slurmd and in limits.d")
    return passed(soft if soft == "unlimited" else f"{int(soft) // 2**30} GiB")


@check("efa.huge_pages", action="monitor", needs=("efa",))
def huge_pages(node: Node, profile: Profile) -> Outcome:
    """The huge pages that the EFA installer reserves are there."""
    pages = node.number("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
    if pages is None:
        return skipped("the kernel shows no huge pages")
    if pages < HUGE_PAGES:
        return warned(f"{pages} of {HUGE_PAGES} pages of 2 MiB: reserve them or set FI_EFA_USE_HUGE_PAGE=0")
    return passed(f"{pages} pages of 2 MiB")


@check("efa.gdrcopy", action="monitor", needs=("efa", "gpu"))
def gdrcopy(node: Node, profile: Profile) -> Outcome:
    """GDRCopy's driver is loaded, for low latency of small messages."""
    version = node.read("/sys/module/gdrdrv/version")
    if version is None and not node.exists("/dev/gdrdrv"):
        return warned("gdrdrv is not loaded")
    return passed(version or "loaded")
