"""AWS Trainium and Inferentia: devices there, linked, their memory sound."""

from __future__ import annotations

import json
from collections import Counter

from trainwright.health.inventory import neuron_devices
from trainwright.health.node import Node
from trainwright.health.profile import Profile
from trainwright.health.registry import check
from trainwright.health.verdict import Outcome, failed, passed, unknown, warned, worst_outcome

LIST = ("neuron-ls", "-j")
STATS = "/sys/devices/virtual/neuron_device"


@check("neuron.count", action="isolate", needs=("neuron",))
def count(node: Node, profile: Profile) -> Outcome:
    """Every Neuron device of the instance type is there."""
    devices = neuron_devices(node)
    if node.read("/sys/module/neuron/version") is None:
        return failed("the neuron driver is not loaded", "reboot")
    if profile.neuron and len(devices) != profile.neuron:
        return failed(f"{len(devices)} Neuron devices of {profile.neuron}")
    return passed(f"{len(devices)} devices")


@check("neuron.links", action="isolate", needs=("neuron",), seconds=1.0, commands=(LIST,))
def links(node: Node, profile: Profile) -> Outcome:
    """Every Neuron device has as many links to others as its neighbours."""
    output = node.run(*LIST)
    try:
        devices = json.loads(output.out)
    except ValueError:
        return unknown(f"neuron-ls gave no list: {output.complaint}")
    if isinstance(devices, dict):
        devices = devices.get("neuron_devices", [])
    linked = {device["neuron_device"]: len(device.get("connected_to") or []) for device in devices}
    if len(linked) < 2:
        return passed("a single device")
    usual = Counter(linked.values()).most_common(1)[0][0]
    odd = [f"neuron{number} has {links} of {usual}" for number, links in linked.items() if links < usual]
    return failed(", ".join(odd)) if odd else passed(f"{usual} links on each device")


@check("neuron.ecc", action="isolate", needs=("neuron",))
def ecc(node: Node, profile: Profile) -> Outcome:
    """Neuron memory has no uncorrected errors."""
    outcomes, seen = [], 0
    for device in neuron_devices(node):
        for kind in ("mem_ecc_uncorrected", "sram_ecc_uncorrected", "mem_ecc_repairable_uncorrected"):
            value = node.number(f"{STATS}/{device}/stats/hardware/{kind}/total")
            if value is None:
                value = node.number(f"{STATS}/{device}/stats/hardware/{kind}")
            seen += value is not None
            if value:
                message = f"{device}: {kind} {value}"
                outcomes.append(warned(message) if "repairable" in kind else failed(message))
    return worst_outcome(outcomes, "no uncorrected error") if seen else unknown("the driver shows no ECC counters")
