"""Storage: room on local disks, instance NVMe and its RAID, shared mounts that answer."""

from __future__ import annotations

import re

from trainwright.health.node import Node
from trainwright.health.profile import Profile
from trainwright.health.registry import check
from trainwright.health.verdict import Outcome, failed, passed, skipped, unknown, warned, worst_outcome

SPACE = ("df", "-P", "-k", "-l")
INODES = ("df", "-P", "-i", "-l")
FULL, NEARLY = 99, 90  # per cent
SHARED = ("lustre", "nfs", "nfs4", "efs", "fuse.mountpoint-s3", "beegfs", "gpfs", "ceph")
NOT_DISKS = ("overlay", "squashfs", "tmpfs", "devtmpfs", "efivarfs", "none", "shm", "udev")
ANSWER_SECONDS = 2.0
SAMPLE_MIB = 256


@check("storage.space", action="isolate", commands=(SPACE, INODES))
def space(node: Node, profile: Profile) -> Outcome:
    """Local disks have room, for files and for their names."""
    outcomes = []
    for command, what in ((SPACE, "full"), (INODES, "out of inodes")):
        for line in node.run(*command).out.splitlines()[1:]:
            fields = line.split()
            if len(fields) < 6 or fields[0] in NOT_DISKS or not fields[4].rstrip("%").isdigit():
                continue
            if fields[5].startswith("/etc/"):  # single files of the host in a container
                continue
            used = int(fields[4].rstrip("%"))
            if used >= FULL:
                outcomes.append(failed(f"{fields[5]} is {used} % {what}"))
            elif used >= NEARLY:
                outcomes.append(warned(f"{fields[5]} is {used} % {what}"))
    return worst_outcome(outcomes, "room on every disk") if node.run(*SPACE).out else unknown("df gave no answer")


@check("storage.nvme", action="isolate", needs=("nvme",))
def nvme(node: Node, profile: Profile) -> Outcome:
    """Every instance-storage disk of the type is there."""
    models = [node.read(path) or "" for path in node.paths("/sys/block/nvme*/device/model")]
    disks = sum("Instance Storage" in model for model in models)
    if disks != profile.nvme_disks:
        return failed(f"{disks} NVMe disks of {profile.nvme_disks}")
    return passed(f"{disks} of {profile.nvme_disks}")


@check("storage.raid", action="isolate")
def raid(node: Node, profile: Profile) -> Outcome:
    """No disk is missing from a RAID."""
    text = node.read("/proc/mdstat")
    arrays = re.findall(r"^(md\d+) : (\S+) ([^\n]*)\n([^\n]*)", text or "", re.MULTILINE)
    broken = [
        name
        for name, state, members, status in arrays
        if state != "active" or "(F)" in members or re.search(r"\[[U_]*_[U_]*\]", status)
    ]
    if broken:
        return failed(f"{', '.join(broken)} has lost a disk")
    return passed(f"{', '.join(name for name, *_ in arrays)} whole" if arrays else "no RAID")


@check("storage.mounts", action="isolate", seconds=0.1)
def mounts(node: Node, profile: Profile) -> Outcome:
    """Every shared file system of fstab is mounted, answers and can be written."""
    mounted = dict(_mounts(node, "/proc/mounts"))
    wanted = [place for place, options in _mounts(node, "/etc/fstab") if "noauto" not in options.split(",")]
    outcomes = [failed(f"{place} is in /etc/fstab and not mounted") for place in wanted if place not in mounted]
    for place, options in mounted.items():
        answer = node.run("stat", "-f", "-c", "%T", place, seconds=ANSWER_SECONDS)
        if not answer.ok:
            outcomes.append(failed(f"{place} does not answer: {answer.complaint}"))
        elif "ro" in options.split(",") and place in wanted:
            outcomes.append(failed(f"{place} is mounted read-only"))
    return worst_outcome(outcomes, f"{', '.join(mounted)} answer" if mounted else "no shared file system")


def _mounts(node: Node, table: str) -> list[tuple[str, str]]:
    """(mount point, options) of the shared file systems in fstab or /proc/mounts."""
    lines = [line.split() for line in (node.read(table) or "").splitlines() if line and not line.startswith("#")]
    return [(fields[1], fields[3]) for fields in lines if len(fields) > 3 and fields[2] in SHARED]


@check("storage.lustre", action="monitor", suite="deep", seconds=1.0)
def lustre(node: Node, profile: Profile) -> Outcome:
    """Every Lustre target is connected."""
    if not node.has("lctl"):
        return skipped("no Lustre client")
    text = node.run("lctl", "get_param", "osc.*.import", "mdc.*.import").out
    states = re.findall(r"target: (\S+).*?state: (\w+)", text, re.DOTALL)
    away = [f"{target} {state}" for target, state in states if state not in ("FULL", "IDLE")]
    return warned(", ".join(away)) if away else passed(f"{len(states)} targets connected")


@check("storage.rate", action="monitor", suite="deep", seconds=5.0)
def rate(node: Node, profile: Profile) -> Outcome:
    """How fast the shared file systems are read; `health --cluster` names the node that is slower than the others."""
    rates = []
    for place, _ in _mounts(node, "/proc/mounts"):
        find = ("find", place, "-maxdepth", "3", "-type", "f", "-size", f"+{SAMPLE_MIB}M", "-print", "-quit")
        sample = node.run(*find, seconds=5.0).out.strip()
        if not sample:
            continue
        read = ("dd", f"if={sample}", "of=/dev/null", "bs=4M", f"count={SAMPLE_MIB // 4}", "iflag=direct")
        match = re.search(r"([\d.]+) s, ", node.run(*read, seconds=60.0).err)
        if match:
            rates.append(f"{place} {SAMPLE_MIB / max(float(match[1]), 1e-6):.0f} MiB/s")
    return passed(", ".join(rates)) if rates else skipped(f"no file over {SAMPLE_MIB} MiB on a shared file system")
