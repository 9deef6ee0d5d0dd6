"""The links between the GPUs of a node: NVLinks, the switches' Fabric Manager, the topology; and DCGM's own tests."""

from __future__ import annotations

import json
from collections import Counter

from trainwright.health import smi
from trainwright.health.node import Node
from trainwright.health.profile import Profile
from trainwright.health.registry import check
from trainwright.health.verdict import Outcome, failed, passed, unknown, warned, worst_outcome

FABRIC_SERVICE = ("systemctl", "is-active", "nvidia-fabricmanager")
RECOVERY_FAILED = "Link recovery failed events"
DCGM_SECONDS = {"2": 900.0, "3": 2400.0}


@check("nvlink.links", action="reset", needs=("nvlink",), seconds=0.5, commands=(smi.LINK_STATUS,))
def links(node: Node, profile: Profile) -> Outcome:
    """Every NVLink is up."""
    by_gpu = smi.links(node)
    if not by_gpu:
        return failed("nvidia-smi lists no NVLink")
    usual = Counter(len(up) for up in by_gpu.values()).most_common(1)[0][0]
    wanted = profile.nvlinks or usual
    outcomes = []
    for gpu, up in by_gpu.items():
        down = [str(link) for link, is_up in up.items() if not is_up]
        if down or len(up) < wanted:
            which = f": link {', '.join(down)} down" if down else ""
            outcomes.append(failed(f"GPU {gpu} has {sum(up.values())} NVLinks of {wanted}{which}"))
    return worst_outcome(outcomes, f"{wanted} on each GPU")


@check("nvlink.errors", action="reset", needs=("nvlink",), seconds=0.5, commands=(smi.LINK_ERRORS,))
def errors(node: Node, profile: Profile) -> Outcome:
    """No NVLink counts errors."""
    outcomes = []
    for gpu, link, counter, value in smi.link_errors(node):
        message = f"GPU {gpu} link {link}: {counter} {value}"
        outcomes.append(failed(message) if counter == RECOVERY_FAILED else warned(message))
    return worst_outcome(outcomes, "all counters are 0")


@check("nvlink.fabric", action="reset", needs=("nvlink",), commands=(smi.QUERY, FABRIC_SERVICE))
def fabric(node: Node, profile: Profile) -> Outcome:
    """Fabric Manager runs and every GPU has joined the NVLink fabric."""
    service = node.run(*FABRIC_SERVICE)
    running = service.out.strip()
    if running in ("inactive", "failed", "activating"):
        return failed(f"nvidia-fabricmanager is {running}: restart it, then reset the GPUs")
    try:
        gpus = smi.query(node).gpus
    except smi.SmiError:
        return unknown("the driver does not answer")
    apart = [
        failed(f"{gpu}: fabric {gpu.fabric_state}, {gpu.fabric_status}")
        for gpu in gpus
        if gpu.fabric_state not in ("Completed", "N/A") or gpu.fabric_status not in ("Success", "N/A")
    ]
    joined = any(gpu.fabric_state == "Completed" for gpu in gpus)
    return worst_outcome(apart, "all GPUs have joined" if joined else f"the service is {running or 'not there'}")


@check("nvlink.topology", action="isolate", needs=("nvlink",), suite="deep", seconds=3.0, commands=(smi.TOPOLOGY,))
def topology(node: Node, profile: Profile) -> Outcome:
    """Every pair of GPUs is connected by the same number of NVLinks."""
    pairs = smi.topology(node)
    if not pairs:
        return unknown(node.run(*smi.TOPOLOGY).complaint)
    usual = f"NV{profile.nvlinks}" if profile.nvlinks else Counter(pairs.values()).most_common(1)[0][0]
    odd = sorted({f"{min(pair)}-{max(pair)} {kind}" for pair, kind in pairs.items() if kind != usual})
    return failed(f"{', '.join(odd[:6])} where the others are {usual}") if odd else passed(f"{usual} between all")


@check("gpu.dcgm", action="isolate", needs=("gpu", "dcgmi"), suite="deep", seconds=150.0)
def dcgm(node: Node, profile: Profile) -> Outcome:
    """DCGM's diagnostic of level 2: software, PCIe, memory."""
    return diagnose(node, "2")


@check("gpu.dcgm_stress", action="isolate", needs=("gpu", "dcgmi"), suite="burn", seconds=1200.0)
def dcgm_stress(node: Node, profile: Profile) -> Outcome:
    """DCGM's diagnostic of level 3: memory bandwidth, targeted stress and power."""
    return diagnose(node, "3")


def diagnose(node: Node, level: str) -> Outcome:
    """Run `dcgmi diag` and read its JSON. A failed software test is a matter of set-up, not of hardware."""
    output = node.run("dcgmi", "diag", "-r", level, "-j", seconds=DCGM_SECONDS[level])
    try:
        report = json.loads(output.out[output.out.index("{") :])
    except ValueError:
        return unknown(f"dcgmi gave no result: {output.complaint}")
    outcomes = []
    body = next((value for key, value in report.items() if "Diagnostic" in key), report)
    for category in body.get("test_categories", []):
        for test in category.get("tests", []):
            for result in test.get("results", []):
                words = _warning(result)
                gpu = result.get("gpu_id", result.get("gpu_ids", result.get("entity_id", "all")))
                message = f"{test.get('name')} on GPU {gpu}: {words}"
                if str(result.get("status", "")).lower() == "fail":
                    outcomes.append(warned(message) if category.get("category") == "Deployment" else failed(message))
                elif str(result.get("status", "")).lower() == "warn":
                    outcomes.append(warned(message))
    return worst_outcome(outcomes, f"level {level} passed")


def _warning(result: dict[str, object]) -> str:
    """DCGM 3 gives warnings as text or a list of texts, DCGM 4 as a list of objects."""
    given = result.get("warnings", "no reason given")
    if isinstance(given, list):
        return "; ".join(str(one.get("warning", one)) if isinstance(one, dict) else str(one) for one in given)
    return str(given)
