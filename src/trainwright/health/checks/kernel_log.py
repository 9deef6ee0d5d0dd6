"""What the kernel wrote down: Xid and SXid errors by the action table, Neuron errors, failing disks and memory."""

from __future__ import annotations

from trainwright.health import kernel_log, smi
from trainwright.health.kernel_log import DMESG, HISTORY, Xid
from trainwright.health.node import Node
from trainwright.health.profile import Profile
from trainwright.health.registry import check
from trainwright.health.verdict import Outcome, failed, passed, skipped, unknown, warned, worst, worst_outcome

REBOOTS = 3  # the same error in so many boots: neither a reset nor a restart has helped
UNREADABLE = "the kernel log may not be read: run as root"


@check("gpu.xid", action="reset", needs=("gpu",), commands=(DMESG,))
def xid(node: Node, profile: Profile) -> Outcome:
    """The kernel log has no Xid that asks for action."""
    lines = kernel_log.lines(node)
    if lines is None:
        return unknown(UNREADABLE)
    events = kernel_log.xids(lines)
    if profile.gpus is None:  # perhaps a part of a larger machine, whose other GPUs are not our concern
        ours = gpu_buses(node)
        events = [event for event in events if event.bus in ours]
    open_events = kernel_log.unresolved(events)
    outcomes = [outcome for event in open_events if (outcome := _judge(event))]
    outcomes += _repeated_by_programs(open_events)
    resolved = len(events) - len(open_events)
    good = f"{len(open_events)} Xids, none asks for action" if open_events else "no Xid"
    return worst_outcome(outcomes, good + (f"; {resolved} before the last reset" if resolved else ""))


def gpu_buses(node: Node) -> set[str]:
    try:
        return {gpu.bus for gpu in smi.query(node).gpus}
    except smi.SmiError:
        return set()


def _judge(event: Xid) -> Outcome | None:
    verdict = kernel_log.verdict_of(event)
    message = f"Xid {event.code} on {event.bus}: {event.meaning}"
    if verdict == "monitor":
        return warned(message)
    return failed(message, verdict) if verdict in ("reset", "reboot", "isolate") else None


def _repeated_by_programs(events: list[Xid]) -> list[Outcome]:
    """One program may be wrong; two different ones with the same fault point at the GPU."""
    programs: dict[str, set[str]] = {}
    for event in events:
        if kernel_log.verdict_of(event) == "application" and event.process:
            programs.setdefault(event.bus, set()).add(event.process)
    return [
        warned(f"{bus}: {len(names)} different programs had application Xids; suspect the GPU")
        for bus, names in programs.items()
        if len(names) > 1
    ]


@check("gpu.xid_history", action="isolate", needs=("gpu",), suite="deep", seconds=2.0, commands=(HISTORY,))
def xid_history(node: Node, profile: Profile) -> Outcome:
    """The same Xid does not come back after restarts."""
    if not node.has("journalctl"):
        return skipped("no journal of earlier boots")
    boots: dict[tuple[str, int], set[str]] = {}
    for boot, line in kernel_log.history(node):
        for event in kernel_log.xids([line]):
            if kernel_log.verdict_of(event) in ("reset", "reboot"):
                boots.setdefault((event.bus, event.code), set()).add(boot)
    again = [f"Xid {code} on {bus} in {len(seen)} boots" for (bus, code), seen in boots.items() if len(seen) >= REBOOTS]
    return failed(f"{'; '.join(again)}: restarts do not help") if again else passed("none in three boots")


@check("nvlink.sxid", action="reboot", needs=("nvlink",), commands=(DMESG,))
def sxid(node: Node, profile: Profile) -> Outcome:
    """The NVSwitches reported no error."""
    lines = kernel_log.lines(node)
    if lines is None:
        return unknown(UNREADABLE)
    outcomes = []
    for event in kernel_log.sxids(lines):
        message = f"SXid {event.code} on NVSwitch {event.bus}: {event.text}"
        outcomes.append(failed(message) if event.fatal else warned(message))
    return worst_outcome(outcomes, "none")


@check("neuron.log", action="isolate", needs=("neuron",), commands=(DMESG,))
def neuron_log(node: Node, profile: Profile) -> Outcome:
    """The Neuron driver reported no hardware error."""
    lines = kernel_log.lines(node)
    if lines is None:
        return unknown(UNREADABLE)
    errors = kernel_log.neuron_errors(lines)
    return failed("; ".join(sorted(set(errors)))) if errors else passed("none")


@check("host.hardware", action="isolate", commands=(DMESG,))
def hardware(node: Node, profile: Profile) -> Outcome:
    """The kernel reported no failing memory, disk or processor."""
    lines = kernel_log.lines(node)
    if lines is None:
        return unknown(UNREADABLE)
    errors = kernel_log.hardware_errors(lines)
    if not errors:
        return passed("none")
    verdict = worst([one for one, _ in errors])
    messages = "; ".join(dict.fromkeys(line for _, line in errors))[:300]
    return warned(messages) if verdict == "monitor" else failed(messages, verdict)
