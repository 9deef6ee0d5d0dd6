"""What `--act` does about a verdict: the only part of health that changes anything, and only through the scheduler and
nvidia-smi. Not for a prolog: Slurm drains the node there by the exit status, and its commands must not be called."""

from __future__ import annotations

from trainwright.health.node import Node
from trainwright.health.verdict import Report

OURS = "trainwright health"  # how a drain reason of ours begins; no other is ever lifted
SECONDS = 60.0


def act(report: Report, node: Node) -> list[str]:
    """Carry the verdict out; what was done, in sentences."""
    if report.verdict == "reset":
        return _reset(report, node)
    if not node.has("scontrol"):
        return [] if report.usable else ["no Slurm here: nothing was done about it"]
    if report.usable:
        return _resume(report, node)
    if report.verdict == "reboot":
        reboot = ("scontrol", "reboot", "ASAP", "nextstate=RESUME", f"reason={_reason(report)}", report.node)
        if node.execute(reboot, SECONDS).ok:
            return [f"asked Slurm to reboot {report.node} when its jobs have ended"]
    return [_drain(report, node)]


def _drain(report: Report, node: Node) -> str:
    command = ("scontrol", "update", f"NodeName={report.node}", "State=DRAIN", f"Reason={_reason(report)}")
    output = node.execute(command, SECONDS)
    return f"drained {report.node}" if output.ok else f"could not drain {report.node}: {output.complaint}"


def _resume(report: Report, node: Node) -> list[str]:
    """Lift a drain that an earlier run of ours asked for."""
    shown = node.execute(("scontrol", "--oneliner", "show", "node", report.node), SECONDS).out
    if f"Reason={OURS}" not in shown or "DRAIN" not in shown:
        return []
    output = node.execute(("scontrol", "update", f"NodeName={report.node}", "State=RESUME"), SECONDS)
    return [f"resumed {report.node}" if output.ok else f"could not resume {report.node}: {output.complaint}"]


def _reset(report: Report, node: Node) -> list[str]:
    """Reset idle GPUs; with work on one of them, or after a refusal, drain instead."""
    busy = any(result.id == "gpu.free" and result.status != "pass" for result in report.results)
    if not busy:
        output = node.execute(("nvidia-smi", "--gpu-reset"), SECONDS)
        if output.ok:
            return ["reset the GPUs; run the suite again"]
    why = "GPUs are in use" if busy else f"the reset was refused: {output.complaint}"
    return [why, _drain(report, node)] if node.has("scontrol") else [why]


def _reason(report: Report) -> str:
    return f"{OURS}: {report.verdict}: {report.reason}"[:200]
