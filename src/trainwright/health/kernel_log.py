"""Reads the kernel log: Xid and SXid lines and what each asks for, Neuron and host hardware errors."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from functools import cache

from trainwright.health.node import Node
from trainwright.health.profile import rows
from trainwright.health.smi import bus_id

DMESG = ("dmesg",)
HISTORY = ("journalctl", "-k", "-o", "json", "--no-pager", "--since=-30d", "--grep=NVRM: Xid")
_XID = re.compile(r"NVRM: Xid \(([^)]+)\): (\d+)(?:, (.*))?")
_PROGRAM = re.compile(r"pid='?(\d+|<unknown>)'?(?:, name=([^,]+))?")
_SXID = re.compile(r"SXid \(PCI:([^)]+)\): (\d+), (Fatal|Non-fatal),? ?(.*)")
_ACTION = re.compile(r"to 0x[0-9a-f]+ \(([^)]+)\)")
# The action Xid 154 names, as drivers have spelled it.
NAMED_ACTIONS = {
    "None": "pass",
    "GPU Reset Required": "reset",
    "PF FLR": "reset",
    "Drain and Reset": "reset",
    "Drain P2P": "monitor",
    "Node Reboot Required": "reboot",
    "OS Reboot": "reboot",
}
# What fails for good, then what deserves a look.
_BROKEN = (
    r"\[Hardware Error\].*[Uu]ncorrect",
    r"Memory failure:",
    r"I/O error.*nvme",
    r"nvme.*controller is down",
)
_DOUBTFUL = (r"\[Hardware Error\]", r"soft lockup", r"blocked for more than \d+ seconds")


@dataclasses.dataclass(frozen=True)
class Xid:
    """One Xid line."""

    bus: str
    code: int
    text: str
    process: str

    @property
    def meaning(self) -> str:
        return table().get(self.code, ("", "not in the table"))[1]


@dataclasses.dataclass(frozen=True)
class SXid:
    """One error of an NVSwitch."""

    bus: str
    code: int
    fatal: bool
    text: str


@cache
def table() -> dict[int, tuple[str, str]]:
    """Xid -> (verdict, meaning)."""
    return {int(row["xid"]): (row["verdict"], row["meaning"]) for row in rows("xid.csv")}


def lines(node: Node) -> list[str] | None:
    """The kernel log since boot; None where this user may not read it."""
    output = node.run(*DMESG)
    if output.ok:
        return output.out.splitlines()
    for path in ("/var/log/kern.log", "/var/log/messages"):
        text = node.read(path)
        if text is not None:
            return text.splitlines()
    return None


def history(node: Node) -> list[tuple[str, str]]:
    """(boot, line) of the Xids in the journal."""
    entries = []
    for line in node.run(*HISTORY).out.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        entries.append((str(entry.get("_BOOT_ID", "")), str(entry.get("MESSAGE", ""))))
    return entries


def xids(log: Sequence[str]) -> list[Xid]:
    events = []
    for line in log:
        if match := _XID.search(line):
            text = match[3] or ""
            program = _PROGRAM.search(text)
            process = f"{program[2] or ''} {program[1]}".strip() if program and program[1] != "<unknown>" else ""
            events.append(Xid(bus_id(match[1]), int(match[2]), text, process))
    return events


def unresolved(events: Sequence[Xid]) -> list[Xid]:
    """The Xids of each GPU since the driver last took its recovery action back: those before were dealt with."""
    last_reset = {
        event.bus: index for index, event in enumerate(events) if event.code == 154 and _named(event) == "pass"
    }
    return [event for index, event in enumerate(events) if index > last_reset.get(event.bus, -1)]


def verdict_of(event: Xid) -> str:
    """isolate, reboot, reset, monitor, pass, or `application` for what a program may have caused."""
    verdict, _ = table().get(event.code, ("monitor", ""))
    if verdict == "named":
        return _named(event)
    if verdict == "decode":
        return "monitor" if "Nonfatal" in event.text else "reset"
    return verdict


def _named(event: Xid) -> str:
    action = _ACTION.search(event.text)
    return NAMED_ACTIONS.get(action[1], "reset") if action else "monitor"


def sxids(log: Sequence[str]) -> list[SXid]:
    matches = [match for line in log if (match := _SXID.search(line))]
    return [SXid(match[1], int(match[2]), match[3] == "Fatal", match[4]) for match in matches]


def neuron_errors(log: Sequence[str]) -> list[str]:
    errors = []
    for line in log:
        if match := re.search(r"NEURON_HW_ERR=(\w+)", line):
            device = re.search(r"nd-id=(\d+)", line)
            errors.append(f"{match[1]} on neuron{device[1]}" if device else match[1])
    return errors


def hardware_errors(log: Sequence[str]) -> list[tuple[str, str]]:
    """(verdict, line) of the host's own troubles, without the time in front."""
    errors = []
    for line in log:
        text = re.sub(r"^\[[^\]]*\]\s*|^<\d+>", "", line)
        if any(re.search(pattern, text) for pattern in _BROKEN):
            errors.append(("isolate", text))
        elif any(re.search(pattern, text) for pattern in _DOUBTFUL):
            errors.append(("monitor", text))
    return errors
