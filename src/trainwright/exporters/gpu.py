"""NVIDIA GPUs by NVML, the library that comes with the driver, where DCGM's exporter does not run. Called through
ctypes: nothing needs to be installed. A value that a GPU does not have is left out."""

from __future__ import annotations

import ctypes
import socket
from collections.abc import Callable
from typing import Any

from trainwright.exporters.metric import MetricSet

LIBRARY = "libnvidia-ml.so.1"
DCGM_PORT = 9400
# Reasons for a lower clock that deserve attention; idle and clocks set by a user are none.
THROTTLED = {
    0x4: "power_cap",
    0x8: "hardware",
    0x20: "software_thermal",
    0x40: "hardware_thermal",
    0x80: "power_brake",
}
UNSIGNED, LONG = ctypes.c_uint, ctypes.c_ulonglong


class Memory(ctypes.Structure):
    """nvmlMemory_v2_t: `used` without what the driver keeps for itself, as nvidia-smi shows it."""

    _fields_ = (("version", UNSIGNED), ("total", LONG), ("reserved", LONG), ("free", LONG), ("used", LONG))


class Utilization(ctypes.Structure):
    _fields_ = (("gpu", UNSIGNED), ("memory", UNSIGNED))


class PciInfo(ctypes.Structure):
    _fields_ = (
        ("bus_id_legacy", ctypes.c_char * 16), ("domain", UNSIGNED), ("bus", UNSIGNED), ("device", UNSIGNED),
        ("device_id", UNSIGNED), ("subsystem_id", UNSIGNED), ("bus_id", ctypes.c_char * 32),
    )  # fmt: skip


class FieldValue(ctypes.Structure):
    """nvmlFieldValue_t; its last part is a union of numbers."""

    _fields_ = (
        ("field", UNSIGNED), ("scope", UNSIGNED), ("timestamp", ctypes.c_longlong), ("latency", ctypes.c_longlong),
        ("value_type", ctypes.c_int), ("status", ctypes.c_int), ("value", LONG),
    )  # fmt: skip


# (metric, kind, text, NVML's function, arguments before the answer, factor)
NUMBERS = (
    ("temperature_celsius", "gauge", "Temperature.", "nvmlDeviceGetTemperature", (0,), UNSIGNED, 1),
    ("power_watts", "gauge", "Power drawn.", "nvmlDeviceGetPowerUsage", (), UNSIGNED, 1e-3),
    ("power_limit_watts", "gauge", "Power limit in force.", "nvmlDeviceGetEnforcedPowerLimit", (), UNSIGNED, 1e-3),
    ("energy_joules", "counter", "Energy drawn.", "nvmlDeviceGetTotalEnergyConsumption", (), LONG, 1e-3),
    ("sm_clock_hertz", "gauge", "Clock of the multiprocessors.", "nvmlDeviceGetClockInfo", (1,), UNSIGNED, 1e6),
    ("sm_clock_max_hertz", "gauge", "Highest clock.", "nvmlDeviceGetMaxClockInfo", (1,), UNSIGNED, 1e6),
    ("pcie_replays", "counter", "PCIe packets sent again.", "nvmlDeviceGetPcieReplayCounter", (), UNSIGNED, 1),
    ("ecc_corrected", "counter", "Corrected memory errors.", "nvmlDeviceGetTotalEccErrors", (0, 0), LONG, 1),
    ("ecc_uncorrected", "counter", "Uncorrected memory errors.", "nvmlDeviceGetTotalEccErrors", (1, 0), LONG, 1),
)
NVLINK = (("nvlink_transmit_bytes", 138), ("nvlink_receive_bytes", 139))  # NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_*
ALL_LINKS = 0xFFFFFFFF


def dcgm_runs() -> bool:
    """Whether DCGM's exporter answers on this node: then its metrics are the better ones."""
    with socket.socket() as probe:
        probe.settimeout(0.2)
        return probe.connect_ex(("127.0.0.1", DCGM_PORT)) == 0


class GpuCollector:
    name = "gpu"

    def __init__(self) -> None:
        self.nvml: Any = None
        self.devices: list[tuple[ctypes.c_void_p, dict[str, str]]] = []

    def available(self) -> bool:
        if dcgm_runs():
            return False
        try:
            self.nvml = ctypes.CDLL(LIBRARY)
        except OSError:
            return False
        return self.nvml.nvmlInit_v2() == 0

    def collect(self) -> MetricSet:
        metrics = MetricSet()
        count = self._number("nvmlDeviceGetCount_v2", UNSIGNED)
        metrics.gauge("gpu_devices", "GPUs that the driver lists.").add(count)
        if len(self.devices) != count:  # a GPU that fell off the bus keeps its handle, and answers nothing
            self.devices = [self._device(index) for index in range(int(count or 0))]
        for handle, labels in self.devices:
            self._collect_one(metrics, handle, labels)
        return metrics

    def _device(self, index: int) -> tuple[ctypes.c_void_p, dict[str, str]]:
        handle = ctypes.c_void_p()
        self.nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))
        pci = PciInfo()
        known = self.nvml.nvmlDeviceGetPciInfo_v3(handle, ctypes.byref(pci)) == 0
        bus = pci.bus_id.decode(errors="replace").lower() if known else ""
        return handle, {"gpu": str(index), "uuid": self._text("nvmlDeviceGetUUID", handle), "bus": bus}

    def _collect_one(self, metrics: MetricSet, handle: ctypes.c_void_p, labels: dict[str, str]) -> None:
        gpu = {"gpu": labels["gpu"]}
        model = self._text("nvmlDeviceGetName", handle)
        metrics.gauge("gpu_info", "A GPU: model, identity, place on the bus.").add(1, **labels, model=model)
        for name, kind, text, function, arguments, answer, factor in NUMBERS:
            add: Callable[[str, str], Any] = metrics.gauge if kind == "gauge" else metrics.counter
            value = self._number(function, answer, handle, *arguments)
            add(f"gpu_{name}", text).add(None if value is None else value * factor, **gpu)
        used = self._structure("nvmlDeviceGetUtilizationRates", Utilization(), handle)
        if used:
            text = "Share of the time in which a kernel ran."
            metrics.gauge("gpu_utilization_ratio", text).add(used.gpu / 100, **gpu)
        memory = self._structure("nvmlDeviceGetMemoryInfo_v2", Memory(ctypes.sizeof(Memory) | 2 << 24), handle)
        if memory:
            metrics.gauge("gpu_memory_size_bytes", "Memory of a GPU.").add(memory.total, **gpu)
            metrics.gauge("gpu_memory_used_bytes", "Memory of a GPU in use.").add(memory.used, **gpu)
        self._throttled(metrics, handle, gpu)
        self._remapped(metrics, handle, gpu)
        self._links(metrics, handle, gpu)

    def _throttled(self, metrics: MetricSet, handle: ctypes.c_void_p, gpu: dict[str, str]) -> None:
        mask = self._number("nvmlDeviceGetCurrentClocksThrottleReasons", LONG, handle)
        if mask is not None:
            slowed = metrics.gauge("gpu_throttled", "Whether the clock is held back for a reason.")
            for bit, reason in THROTTLED.items():
                slowed.add(bool(int(mask) & bit), reason=reason, **gpu)

    def _remapped(self, metrics: MetricSet, handle: ctypes.c_void_p, gpu: dict[str, str]) -> None:
        counts = [UNSIGNED() for _ in range(4)]
        if self.nvml.nvmlDeviceGetRemappedRows(handle, *map(ctypes.byref, counts)) == 0:
            rows = metrics.gauge("gpu_remapped_rows", "Memory rows replaced by spare ones, or about to be.")
            for kind, count in zip(("corrected", "uncorrected", "pending", "failed"), counts):  # noqa: B905
                rows.add(count.value, kind=kind, **gpu)

    def _links(self, metrics: MetricSet, handle: ctypes.c_void_p, gpu: dict[str, str]) -> None:
        fields = (FieldValue * len(NVLINK))()
        for field, (_, number) in zip(fields, NVLINK):  # noqa: B905
            field.field, field.scope = number, ALL_LINKS
        if self.nvml.nvmlDeviceGetFieldValues(handle, len(NVLINK), fields) != 0:
            return
        for field, (name, _) in zip(fields, NVLINK):  # noqa: B905
            value = field.value * 1024 if field.status == 0 else None  # NVML counts KiB
            metrics.counter(f"gpu_{name}", "Data over all NVLinks of a GPU.").add(value, **gpu)

    def _number(self, function: str, answer: Any, *arguments: Any) -> float | None:
        value = answer()
        return value.value if getattr(self.nvml, function)(*arguments, ctypes.byref(value)) == 0 else None

    def _structure(self, function: str, answer: Any, handle: ctypes.c_void_p) -> Any:
        return answer if getattr(self.nvml, function)(handle, ctypes.byref(answer)) == 0 else None

    def _text(self, function: str, handle: ctypes.c_void_p) -> str:
        buffer = ctypes.create_string_buffer(96)
        done = getattr(self.nvml, function)(handle, buffer, len(buffer))
        return buffer.value.decode(errors="replace") if done == 0 else ""
