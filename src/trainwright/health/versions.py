"""The versions of everything that must fit together, read without importing any of it, and the table of what fits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from trainwright.health import compatibility, smi
from trainwright.health.compatibility import numbers
from trainwright.health.node import Node

# In the order a table shows them; the kernel's side is the host's even inside a container.
TITLES = {
    "os": "operating system",
    "kernel": "Linux",
    "driver": "NVIDIA driver",
    "cuda_driver": "CUDA (driver)",
    "cuda_toolkit": "CUDA (toolkit)",
    "cuda_runtime": "CUDA (PyTorch)",
    "fabric_manager": "Fabric Manager",
    "efa_driver": "EFA driver",
    "efa_installer": "EFA installer",
    "libfabric": "libfabric",
    "ofi_nccl": "aws-ofi-nccl",
    "nccl": "NCCL",
    "gdrcopy": "GDRCopy driver",
    "dcgm": "DCGM",
    "neuron_driver": "Neuron driver",
    "slurm": "Slurm",
    "python": "Python",
    "torch": "PyTorch",
}
OF_THE_HOST = ("kernel", "driver", "cuda_driver", "fabric_manager", "efa_driver", "gdrcopy", "neuron_driver")
_NUMBER = r"(\d+(?:\.[0-9a-z]+)+)"
_LIBRARIES = (
    "/usr/lib/*-linux-gnu",
    "/usr/lib64",
    "/usr/local/cuda/lib64",
    "/opt/nccl/build/lib",
    "/usr/local/lib",
)
COMMANDS = {
    "libfabric": ("fi_info", "--version"),
    "fabric_manager": ("nv-fabricmanager", "--version"),
    "dcgm": ("dcgmi", "--version"),
    "slurm": ("sinfo", "--version"),
}


@lru_cache(maxsize=16)
def versions_of(node: Node) -> dict[str, str]:
    """What is installed; what is not there is left out."""
    present = {name: command for name, command in COMMANDS.items() if node.has(command[0])}
    node.prefetch(present.values())
    packages = node.read("/opt/amazon/efa_installed_packages") or ""
    versions = {
        "os": _find(r'PRETTY_NAME="([^"]+)"', node.read("/etc/os-release")),
        "kernel": node.read("/proc/sys/kernel/osrelease") or "",
        "driver": node.read("/sys/module/nvidia/version")
        or _find(rf"Module.*?\s{_NUMBER}\s", node.read("/proc/driver/nvidia/version")),
        "cuda_driver": _cuda_driver(node),
        "cuda_toolkit": _find(
            r'"cuda"\s*:\s*\{[^}]*"version"\s*:\s*"([^"]+)"', node.read("/usr/local/cuda/version.json")
        ),
        "cuda_runtime": _package(node, r"nvidia_cuda_runtime(?:_cu\d+)?"),
        "efa_driver": node.read("/sys/module/efa/version") or "",
        "efa_installer": _find(r"EFA installer version: (\S+)", packages),
        "ofi_nccl": _find(rf"(?:libnccl-ofi|aws-ofi-nccl)\S*?[-_]{_NUMBER}", packages),
        "nccl": _package(node, r"nvidia_nccl(?:_cu\d+)?") or _nccl_library(node),
        "gdrcopy": node.read("/sys/module/gdrdrv/version") or "",
        "neuron_driver": node.read("/sys/module/neuron/version") or "",
        "python": _python(node),
        "torch": _package(node, "torch"),
    }
    for name, command in present.items():
        versions[name] = _find(_NUMBER, node.run(*command).out)
    return {name: versions[name] for name in TITLES if versions.get(name)}


def _find(pattern: str, text: str | None) -> str:
    match = re.search(pattern, text or "")
    return match[1] if match else ""


def _cuda_driver(node: Node) -> str:
    """Asked only where the suite has called nvidia-smi anyway or a GPU is there."""
    if not node.has("nvidia-smi"):
        return ""
    try:
        return smi.query(node).cuda
    except smi.SmiError:
        return ""


def _package(node: Node, pattern: str) -> str:
    """A Python package's version by its metadata folder."""
    for place in node.packages:
        for path in node.paths(f"{place}/*.dist-info"):
            if match := re.fullmatch(rf"{pattern}-([^-]+)\.dist-info", path.rsplit("/", 1)[1]):
                return match[1]
    return ""


def _nccl_library(node: Node) -> str:
    names = [path for place in _LIBRARIES for path in node.paths(f"{place}/libnccl.so.2.*")]
    return max((_find(r"libnccl\.so\.(2[\d.]+)", name) for name in names), key=numbers, default="")


def _python(node: Node) -> str:
    return _find(r"python(\d\.\d+)", " ".join(node.packages))


def in_use(host: Mapping[str, str], inside: Mapping[str, str]) -> dict[str, str]:
    """What a job in a container runs with: the kernel's side from the host, the rest from the image."""
    return {**inside, **{name: host[name] for name in OF_THE_HOST if name in host}} if inside else dict(host)


def conflicts(versions: Mapping[str, str], accelerator: str = "") -> list[tuple[str, str]]:
    """(level, sentence) for each row of the compatibility table that these versions break. What is recommended is left
    out where what is needed is missing already."""
    rows = list(compatibility.broken(versions, accelerator))
    failing = {row.requires.name for row in rows if row.level == "fail"}
    sentences = []
    for row in rows:
        if row.level == "warn" and row.requires.name in failing:
            continue
        has = ", ".join(f"{TITLES[name]} {versions[name]}" for name in TITLES if name in row.names and name in versions)
        sentences.append((row.level, f"{row.why} (here: {has})"))
    return sentences
