"""Facts about this machine and its software that every result file carries, so that two results can be compared."""

from __future__ import annotations

import os
import platform
import socket
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

DMI = Path("/sys/devices/virtual/dmi/id")


def machine_facts(dmi: Path = DMI) -> dict[str, Any]:
    """Host, processor, memory, GPUs; `instance` where the machine says that it is an EC2 type."""
    facts: dict[str, Any] = {
        "host": socket.gethostname(),
        "instance": instance_type(dmi),
        "arch": platform.machine(),
        "processor": processor_name(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }
    facts |= torch_facts()
    return facts


def instance_type(dmi: Path = DMI) -> str:
    """What Nitro machines put into their DMI table, such as p5.48xlarge; empty on other machines."""
    try:
        vendor, product = ((dmi / name).read_text().strip() for name in ("sys_vendor", "product_name"))
    except OSError:
        return ""
    return product if vendor == "Amazon EC2" and "." in product else ""


def processor_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def torch_facts() -> dict[str, Any]:
    """Versions of torch and what it was built with; nothing where torch has not been imported."""
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    facts: dict[str, Any] = {"torch": torch.__version__}
    if torch.cuda.is_available():
        facts |= {
            "cuda": torch.version.cuda,
            "nccl": ".".join(map(str, torch.cuda.nccl.version())),
            "gpu": torch.cuda.get_device_name(0),
            "gpus": torch.cuda.device_count(),
        }
    return facts


def result_header(kind: str) -> dict[str, Any]:
    """How every result file starts."""
    from trainwright import __version__

    return {
        "kind": kind,
        "trainwright": __version__,
        "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "machine": machine_facts(),
    }
