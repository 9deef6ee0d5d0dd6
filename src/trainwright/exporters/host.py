"""The machine itself: pressure (PSI), memory, processors, network interfaces and NVMe disks, from /proc and /sys."""

from __future__ import annotations

import os
import re

from trainwright.exporters.files import Tree
from trainwright.exporters.metric import MetricSet

TICKS = os.sysconf("SC_CLK_TCK")
SECTOR = 512  # bytes, whatever the disk's own sectors are
_PRESSURE = re.compile(r"(some|full) .*total=(\d+)")
_INTERFACE = re.compile(r"\s*([\w.@-]+):\s*(.*)")


class HostCollector:
    name = "host"

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    def available(self) -> bool:
        return True

    def collect(self) -> MetricSet:
        metrics = MetricSet()
        self._pressure(metrics)
        self._memory(metrics)
        self._processors(metrics)
        self._interfaces(metrics)
        for disk in self.tree.names("/sys/block"):
            if disk.startswith("nvme"):
                self._disk(metrics, disk)
        for controller in self.tree.names("/sys/class/nvme"):
            self._controller(metrics, controller)
        text = "Files of the kernel that were there and held nothing usable."
        metrics.counter("exporter_unreadable_files", text).add(self.tree.unreadable)
        return metrics

    def _pressure(self, metrics: MetricSet) -> None:
        text = "Time in which some or all tasks waited for a resource (PSI)."
        stalled = metrics.counter("host_pressure_seconds", text)
        for resource in ("cpu", "memory", "io"):
            for kind, total in _PRESSURE.findall(self.tree.read(f"/proc/pressure/{resource}") or ""):
                stalled.add(int(total) / 1e6, resource=resource, kind=kind)

    def _memory(self, metrics: MetricSet) -> None:
        lines = dict(re.findall(r"(\w+):\s+(\d+)", self.tree.read("/proc/meminfo") or ""))
        for line, name in (("MemTotal", "size"), ("MemAvailable", "available"), ("Shmem", "shared")):
            if line in lines:
                text = f"Memory of the node: {name}."
                metrics.gauge(f"host_memory_{name}_bytes", text).add(int(lines[line]) * 1024)
        killed = re.search(r"^oom_kill (\d+)", self.tree.read("/proc/vmstat") or "", re.MULTILINE)
        text = "Processes that the kernel killed for want of memory."
        metrics.counter("host_out_of_memory_kills", text).add(int(killed[1]) if killed else None)

    def _processors(self, metrics: MetricSet) -> None:
        first = (self.tree.read("/proc/stat") or "").split("\n", 1)[0].split()
        spent = metrics.counter("host_cpu_seconds", "Time of all processors by what they did.")
        if first[:1] == ["cpu"]:
            for mode, ticks in zip(("user", "nice", "system", "idle", "iowait"), first[1:]):  # noqa: B905
                spent.add(int(ticks) / TICKS if ticks.isdecimal() else None, mode=mode)
        load = (self.tree.read("/proc/loadavg") or "").split()
        metrics.gauge("host_load1", "Load average over a minute.").add(_float(load[0]) if load else None)

    def _interfaces(self, metrics: MetricSet) -> None:
        """Bytes over plain network interfaces: what NCCL falls back to when EFA cannot be used."""
        for line in (self.tree.read("/proc/net/dev") or "").splitlines()[2:]:
            match = _INTERFACE.match(line)
            values = match[2].split() if match else []
            if match is None or len(values) < 16 or match[1] == "lo" or not all(v.isdecimal() for v in values):
                continue
            for name, column in (("receive", 0), ("transmit", 8)):
                text = f"Network interface: {name}, without EFA's traffic."
                metrics.counter(f"host_network_{name}_bytes", text).add(int(values[column]), interface=match[1])
                text = f"Network interface: packets dropped in {name}."
                metrics.counter(f"host_network_{name}_drops", text).add(int(values[column + 3]), interface=match[1])

    def _disk(self, metrics: MetricSet, disk: str) -> None:
        values = (self.tree.read(f"/sys/block/{disk}/stat") or "").split()
        if len(values) < 11 or not all(value.isdecimal() for value in values):
            return
        read, written, busy = int(values[2]) * SECTOR, int(values[6]) * SECTOR, int(values[9]) / 1000
        metrics.counter("nvme_read_bytes", "Bytes read from an NVMe disk.").add(read, disk=disk)
        metrics.counter("nvme_written_bytes", "Bytes written to an NVMe disk.").add(written, disk=disk)
        metrics.counter("nvme_busy_seconds", "Time in which an NVMe disk had work.").add(busy, disk=disk)

    def _controller(self, metrics: MetricSet, controller: str) -> None:
        place = f"/sys/class/nvme/{controller}"
        state = self.tree.read(f"{place}/state")
        if state is not None:
            text = "Whether an NVMe controller is in state live."
            metrics.gauge("nvme_live", text).add(state == "live", controller=controller)
        sensors = [name for name in self.tree.names(place) if name.startswith("hwmon")]
        for sensor in sensors[:1]:
            value = self.tree.number(f"{place}/{sensor}/temp1_input")
            text = "Temperature of an NVMe disk."
            celsius = None if value is None else value / 1000
            metrics.gauge("nvme_temperature_celsius", text).add(celsius, controller=controller)


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
