"""What is in the node, from the PCI bus and the kernel's device classes: readable without any driver tool."""

from __future__ import annotations

from functools import lru_cache

from trainwright.health.node import Node
from trainwright.health.profile import Profile

NVIDIA, AMAZON = "0x10de", "0x1d0f"
GPU_CLASSES = ("0x0300", "0x0302")  # VGA and 3D controllers; an NVSwitch is a bridge (0x0680)
PCI = "/sys/bus/pci/devices"
INFINIBAND = "/sys/class/infiniband"


@lru_cache(maxsize=16)
def pci_devices(node: Node, vendor: str) -> dict[str, str]:
    """The vendor's devices on the bus: address -> device id."""
    places = [path.removesuffix("/vendor") for path in node.paths(f"{PCI}/*/vendor")]
    mine = [place for place in places if node.read(f"{place}/vendor") == vendor]
    return {place.rsplit("/", 1)[1]: node.read(f"{place}/device") or "" for place in mine}


@lru_cache(maxsize=16)
def gpu_addresses(node: Node) -> list[str]:
    devices = pci_devices(node, NVIDIA)
    return [address for address in devices if (node.read(f"{PCI}/{address}/class") or "").startswith(GPU_CLASSES)]


def efa_addresses(node: Node) -> list[str]:
    return [address for address, device in pci_devices(node, AMAZON).items() if device.startswith("0xefa")]


@lru_cache(maxsize=16)
def efa_devices(node: Node) -> list[str]:
    """The RDMA devices that the EFA driver made: `rdmap16s27`, `efa_0`."""
    names = [path.rsplit("/", 1)[1] for path in node.paths(f"{INFINIBAND}/*")]
    return [name for name in names if (node.read(f"{INFINIBAND}/{name}/device/device") or "").startswith("0xefa")]


def neuron_devices(node: Node) -> list[str]:
    """`neuron0`, `neuron1`, ... The device files are there even where sysfs is hidden."""
    return [path.rsplit("/", 1)[1] for path in node.paths("/dev/neuron[0-9]*")]


def has_gpus(node: Node, profile: Profile) -> bool:
    return bool(profile.gpus) or node.exists("/dev/nvidiactl") or bool(gpu_addresses(node))


def has_nvlink(node: Node, profile: Profile) -> bool:
    """Whether the GPUs are linked; a type that is not known is taken at its word."""
    if not has_gpus(node, profile):
        return False
    if profile.nvlinks is not None:
        return profile.nvlinks > 0
    from trainwright.health import smi

    return any(any(up.values()) for up in smi.links(node).values())


def has_efa(node: Node, profile: Profile) -> bool:
    """Types with several cards are made for EFA; on one with a single card it is a choice at launch."""
    wanted = (profile.efa or 0) > (0 if "efa" in profile.stated else 1)
    return wanted or bool(efa_addresses(node))


def has_neuron(node: Node, profile: Profile) -> bool:
    return bool(profile.neuron) or bool(neuron_devices(node))
