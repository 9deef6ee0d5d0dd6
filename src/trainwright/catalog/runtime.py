"""The Python environment that a plan ships for jobs without a container: which Python, which packages, and the name of
the folder that holds exactly these. The pins are data; tools/pin_runtime.sh writes them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from trainwright.catalog.accelerators import accelerator
from trainwright.catalog.instances import InstanceType
from trainwright.catalog.tables import SHIPPED, cached, shipped_toml

FOLDER = SHIPPED / "runtime"


@dataclass(frozen=True, slots=True)
class RuntimePins:
    """What a runtime is made of."""

    python: str
    uv: str
    torch: str
    cuda: str
    least_arch: str
    requirements: str  # a requirements file with the hash of every package
    uv_requirements: str

    @property
    def digest(self) -> str:
        """Names the folder: another Python or package is another runtime, beside the one that jobs still use."""
        return hashlib.sha256(f"{self.python}\n{self.requirements}".encode()).hexdigest()[:12]


@cached
def runtime_pins() -> RuntimePins:
    row = shipped_toml("runtime/runtime.toml")
    return RuntimePins(
        python=row["python"],
        uv=row["uv"],
        torch=row["torch"],
        cuda=row["cuda"],
        least_arch=row["least_arch"],
        requirements=(FOLDER / "requirements.txt").read_text(encoding="utf-8"),
        uv_requirements=(FOLDER / "uv.txt").read_text(encoding="utf-8"),
    )


def runs_on(machine: InstanceType) -> bool:
    """Whether the runtime's torch has kernels for the type: NVIDIA GPUs from its oldest architecture on, and CPUs."""
    if machine.is_neuron:
        return False
    if not machine.is_gpu or machine.accelerator is None:
        return not machine.is_gpu
    arch = accelerator(machine.accelerator).arch
    return arch.startswith("sm_") and _number(arch) >= _number(runtime_pins().least_arch)


def _number(arch: str) -> int:
    return int("".join(letter for letter in arch.removeprefix("sm_") if letter.isdigit()))
