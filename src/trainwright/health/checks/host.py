"""The host: its memory and processors, kernel modules, clock, name, shared memory."""

from __future__ import annotations

import re

from trainwright.health.node import Node
from trainwright.health.profile import Profile
from trainwright.health.registry import check
from trainwright.health.verdict import Outcome, failed, passed, skipped, unknown, warned

CHRONY = ("chronyc", "-n", "tracking")
TIMEDATE = ("timedatectl", "show", "-p", "NTPSynchronized", "--value")
SKEW_WARN, SKEW_FAIL = 0.05, 60.0  # seconds; munge refuses credentials that are five minutes off
SHM_LEAST = 2**30  # bytes; loader workers hand batches over through it (Docker's default is 64 MiB)
MEMORY_SHARE = 0.94  # the kernel and firmware keep a few per cent for themselves


@check("host.memory", action="isolate", needs=("type",))
def memory(node: Node, profile: Profile) -> Outcome:
    """The node has the memory of its type."""
    match = re.search(r"MemTotal:\s+(\d+) kB", node.read("/proc/meminfo") or "")
    if not match or not profile.memory_mib:
        return unknown("/proc/meminfo cannot be read")
    have = int(match[1]) // 1024
    if have < MEMORY_SHARE * profile.memory_mib:
        return failed(f"{have >> 10} GiB of {profile.memory_mib >> 10}")
    return passed(f"{have >> 10} GiB of {profile.memory_mib >> 10}")


@check("host.cpus", action="isolate", needs=("type",))
def cpus(node: Node, profile: Profile) -> Outcome:
    """The node has the processors of its type; half of them where hyperthreading is off."""
    text = node.read("/sys/devices/system/cpu/online")
    if text is None or not profile.vcpus:
        return unknown("/sys/devices/system/cpu/online cannot be read")
    ranges = [part.split("-") for part in text.split(",")]
    online = sum(int(part[-1]) - int(part[0]) + 1 for part in ranges)
    if online not in (profile.vcpus, profile.vcpus // 2):
        return failed(f"{online} processors online of {profile.vcpus}")
    return passed(f"{online} of {profile.vcpus}")


@check("host.modules", action="reboot")
def modules(node: Node, profile: Profile) -> Outcome:
    """The kernel modules that the node's devices need are loaded."""
    needed = []
    if profile.gpus:
        needed += ["nvidia", "nvidia_uvm"]
    if node.paths("/sys/class/infiniband/*"):
        needed += ["ib_uverbs", "ib_core"]
    if profile.neuron:
        needed += ["neuron"]
    if not needed:
        return skipped("no device needs one")
    loaded = {line.split()[0] for line in (node.read("/proc/modules") or "").splitlines() if line.strip()}
    missing = [name for name in needed if name not in loaded and not node.exists(f"/sys/module/{name}")]
    return failed(f"not loaded: {', '.join(missing)}") if missing else passed(", ".join(needed))


@check("host.clock", action="isolate", commands=(CHRONY, TIMEDATE))
def clock(node: Node, profile: Profile) -> Outcome:
    """The clock is synchronised."""
    if node.has("chronyc") and (tracking := node.run(*CHRONY)).ok:
        match = re.search(r"System time\s*:\s*([\d.]+) seconds (slow|fast)", tracking.out)
        offset = float(match[1]) if match else 0.0
        if "Not synchronised" in tracking.out:
            return warned("chrony is not synchronised")
        message = f"{offset:.6f} s off"
        if offset > SKEW_FAIL:
            return failed(message)
        return warned(message) if offset > SKEW_WARN else passed(message)
    status = node.run(*TIMEDATE)
    if not status.ok:
        return skipped("neither chrony nor systemd keeps the clock here")
    return passed("synchronised") if status.out.strip() == "yes" else warned("systemd says: not synchronised")


@check("host.name", action="isolate")
def name(node: Node, profile: Profile) -> Outcome:
    """The node's name resolves to an address that other nodes can reach."""
    if not profile.instance and not node.has("scontrol"):
        return skipped("this machine belongs to no cluster")
    host = node.read("/proc/sys/kernel/hostname") or node.name
    output = node.run("getent", "ahosts", host)
    addresses = [line.split()[0] for line in output.out.splitlines() if line.strip()]
    if not addresses:
        return failed(f"{host} does not resolve: ranks that meet by name will not find it")
    local = ("127.0.0.1", "127.0.1.1", "::1")
    if all(address in local for address in addresses):
        return warned(f"{host} resolves to {addresses[0]}: ranks would offer their own loopback to others")
    return passed(f"{host} is {addresses[0]}")


@check("host.shm", action="monitor")
def shm(node: Node, profile: Profile) -> Outcome:
    """/dev/shm has room for the loaders."""
    output = node.run("df", "-P", "-k", "/dev/shm")
    fields = output.out.splitlines()[-1].split() if output.ok else []
    if len(fields) < 6:
        return unknown(f"df says nothing of /dev/shm: {output.complaint}")
    if fields[5] != "/dev/shm":
        return warned("/dev/shm is not mounted: loaders with workers fail")
    size, left = int(fields[1]) * 1024, int(fields[3]) * 1024
    if left < SHM_LEAST:
        return warned(f"{left >> 20} MiB of {size >> 20} left: remove what earlier jobs left, or use --shm-size")
    return passed(f"{left >> 30} GiB of {size >> 30} left")
