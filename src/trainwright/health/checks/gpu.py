"""GPUs: all there, their memory sound, their clocks free, their bus wide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from trainwright.health import smi
from trainwright.health.inventory import gpu_addresses
from trainwright.health.node import Node
from trainwright.health.profile import Profile
from trainwright.health.registry import check
from trainwright.health.smi import Gpu
from trainwright.health.verdict import Outcome, failed, passed, unknown, warned, worst_outcome

HOT = 85  # degrees C; data-centre GPUs slow down a little above
CORRECTED = 60  # corrected errors since the driver was loaded; the reference health check's limit
REPLAYS = 1000  # PCIe packets sent again since the driver was loaded
HARDWARE_SLOWDOWNS = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")
RECOVERY = {"None": "", "Reset": "reset", "Reboot": "reboot", "Drain P2P": "reset", "Drain and Reset": "reset"}


@check("gpu.driver", action="reboot", needs=("gpu",), seconds=1.0, commands=(smi.QUERY,))
def driver(node: Node, profile: Profile) -> Outcome:
    """The NVIDIA driver answers."""
    if not node.has("nvidia-smi"):
        return failed("nvidia-smi is not installed; no driver on this image", "isolate")
    try:
        answer = smi.query(node)
    except smi.SmiError as error:
        return failed(str(error))
    return passed(f"driver {answer.driver}, CUDA {answer.cuda}")


@check("gpu.count", action="isolate", needs=("gpu",), commands=(smi.QUERY,))
def count(node: Node, profile: Profile) -> Outcome:
    """Every GPU of the instance type is there."""
    gpus = _gpus(node)
    if gpus is None:
        return unknown("the driver does not answer")
    seen = {gpu.bus for gpu in gpus}
    lost = [address for address in gpu_addresses(node) if smi.bus_id(address) not in seen]
    if profile.gpus is None:
        return passed(f"{len(gpus)} GPUs; how many there should be is not known") if gpus else failed("no GPU answers")
    if len(gpus) != profile.gpus:
        where = f"; on the bus and not answering: {', '.join(lost)}" if lost and gpus else ""
        return failed(f"{len(gpus)} GPUs of {profile.gpus}{where}")
    twice = [uuid for uuid, times in Counter(gpu.uuid for gpu in gpus).items() if times > 1]
    return failed(f"two GPUs claim to be {twice[0]}") if twice else passed(f"{len(gpus)} of {profile.gpus}")


@check("gpu.recovery", action="reset", needs=("gpu",), commands=(smi.QUERY,))
def recovery(node: Node, profile: Profile) -> Outcome:
    """The driver asks for no recovery action."""
    gpus = _gpus(node)
    if gpus is None:
        return unknown("the driver does not answer")
    wanted = [
        failed(f"{gpu}: the driver asks for {gpu.recovery_action!r}", RECOVERY.get(gpu.recovery_action, "reset"))
        for gpu in gpus
        if gpu.recovery_action not in ("None", "N/A", "")
    ]
    return worst_outcome(wanted, "none asked for")


@check("gpu.ecc", action="reset", needs=("gpu",), commands=(smi.QUERY,))
def ecc(node: Node, profile: Profile) -> Outcome:
    """GPU memory has no uncorrected errors."""
    gpus = _gpus(node)
    if gpus is None:
        return unknown("the driver does not answer")
    outcomes = [outcome for gpu in gpus for outcome in _ecc(gpu)]
    if not outcomes and all(gpu.ecc == "N/A" for gpu in gpus):
        return passed("these GPUs count no ECC errors")
    return worst_outcome(outcomes, "no uncorrected error since the driver was loaded")


def _ecc(gpu: Gpu) -> list[Outcome]:
    outcomes = []
    if gpu.sram_threshold_exceeded:
        outcomes.append(failed(f"{gpu}: too many SRAM errors over its life", "isolate"))
    if gpu.uncorrected:
        outcomes.append(failed(f"{gpu}: {gpu.uncorrected} uncorrected errors", "reset"))
    if gpu.pages_pending:
        outcomes.append(failed(f"{gpu}: memory pages wait for a restart to be retired", "reboot"))
    if gpu.ecc == "Disabled":
        outcomes.append(warned(f"{gpu}: ECC is switched off"))
    if (gpu.corrected or 0) > CORRECTED:
        outcomes.append(warned(f"{gpu}: {gpu.corrected} corrected errors"))
    return outcomes


@check("gpu.row_remap", action="reset", needs=("gpu",), commands=(smi.QUERY,))
def row_remap(node: Node, profile: Profile) -> Outcome:
    """No row of GPU memory waits to be remapped or could not be."""
    gpus = _gpus(node)
    if gpus is None:
        return unknown("the driver does not answer")
    outcomes = [failed(f"{gpu}: a row could not be remapped", "isolate") for gpu in gpus if gpu.rows_failed]
    outcomes += [failed(f"{gpu}: a remapped row waits for a reset") for gpu in gpus if gpu.rows_pending]
    outcomes += [
        warned(f"{gpu}: {gpu.rows_remapped} rows remapped after uncorrected errors")
        for gpu in gpus
        if gpu.rows_remapped
    ]
    return worst_outcome(outcomes, "none pending, none failed")


@check("gpu.persistence", action="monitor", needs=("gpu",), commands=(smi.QUERY,))
def persistence(node: Node, profile: Profile) -> Outcome:
    """Persistence mode is on; without it each job waits for the GPUs to be initialised."""
    gpus = _gpus(node)
    if gpus is None:
        return unknown("the driver does not answer")
    off = [str(gpu.index) for gpu in gpus if not gpu.persistence]
    return warned(f"off on GPU {', '.join(off)}: `nvidia-smi -pm 1`") if off else passed("on")


@check("gpu.clocks", action="monitor", needs=("gpu",), commands=(smi.QUERY,))
def clocks(node: Node, profile: Profile) -> Outcome:
    """No GPU is slowed down by heat or power."""
    gpus = _gpus(node)
    if gpus is None:
        return unknown("the driver does not answer")
    outcomes = []
    for gpu in gpus:
        slowed = [name for name in HARDWARE_SLOWDOWNS if name in gpu.throttled]
        if slowed:
            outcomes.append(warned(f"{gpu}: {', '.join(slowed)} active"))
        elif (gpu.temperature or 0) > HOT:
            outcomes.append(warned(f"{gpu}: {gpu.temperature} C"))
    return worst_outcome(outcomes, f"none slowed; hottest {max((gpu.temperature or 0 for gpu in gpus), default=0)} C")


@check("gpu.pcie", action="isolate", needs=("gpu",), commands=(smi.QUERY,))
def pcie(node: Node, profile: Profile) -> Outcome:
    """Every GPU has its whole PCIe width. Idle links run at a low speed but never narrower."""
    gpus = _gpus(node)
    if gpus is None:
        return unknown("the driver does not answer")
    widths = [gpu.link_width for gpu in gpus if gpu.link_width]
    if not widths:
        return passed("the width is not reported here")
    usual = Counter(widths).most_common(1)[0][0]
    outcomes = [
        failed(f"{gpu}: PCIe x{gpu.link_width} where the others have x{usual}")
        for gpu in gpus
        if gpu.link_width and gpu.link_width < usual
    ]
    outcomes += [warned(f"{gpu}: {gpu.replays} PCIe replays") for gpu in gpus if (gpu.replays or 0) > REPLAYS]
    return worst_outcome(outcomes, f"x{usual} on all")


@check("gpu.free", action="monitor", needs=("gpu",), commands=(smi.QUERY,))
def free(node: Node, profile: Profile) -> Outcome:
    """No process of an earlier job holds GPU memory."""
    gpus = _gpus(node)
    if gpus is None:
        return unknown("the driver does not answer")
    held = [f"{gpu}: {process}" for gpu in gpus for process in gpu.processes]
    return warned(f"in use by {'; '.join(held[:4])}") if held else passed("no process on any GPU")


def _gpus(node: Node) -> Sequence[Gpu] | None:
    try:
        return smi.query(node).gpus
    except smi.SmiError:
        return None
