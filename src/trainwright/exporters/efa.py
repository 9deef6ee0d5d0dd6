"""EFA: every counter of every device and port, as the driver has it in sysfs, and devices that went away."""

from __future__ import annotations

import csv
import re
from functools import lru_cache
from pathlib import Path

from trainwright.exporters.files import Tree
from trainwright.exporters.metric import MetricSet

DEVICES = "/sys/class/infiniband"
PCI = "/sys/bus/pci/devices"
AMAZON, EFA = "0x1d0f", "0xefa"
_COUNTER = re.compile(r"[a-z][a-z0-9_]{0,47}")
_RATE = re.compile(r"([\d.]+) Gb/sec")


@lru_cache(maxsize=1)
def meanings() -> dict[str, str]:
    """Counter -> what it counts."""
    with (Path(__file__).parent / "data" / "efa_counters.csv").open(encoding="utf-8") as handle:
        rows = csv.DictReader(line for line in handle if not line.startswith("#"))
        return {row["counter"]: row["meaning"] for row in rows}


class EfaCollector:
    name = "efa"

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.seen: set[str] = set()
        self.last: dict[tuple[str, str, str], int] = {}
        self.resets: dict[str, int] = {}

    def available(self) -> bool:
        return bool(self.on_bus() or self.present())

    def on_bus(self) -> int:
        """The EFA devices on the PCI bus, whether or not the driver has them."""
        read = self.tree.read
        places = [f"{PCI}/{name}" for name in self.tree.names(PCI)]
        amazon = [place for place in places if read(f"{place}/vendor") == AMAZON]
        return sum((read(f"{place}/device") or "").startswith(EFA) for place in amazon)

    def present(self) -> list[str]:
        """The RDMA devices of the EFA driver; others (mlx5 on some hosts) are left out."""
        names = self.tree.names(DEVICES)
        return [name for name in names if (self.tree.read(f"{DEVICES}/{name}/device/device") or "").startswith(EFA)]

    def collect(self) -> MetricSet:
        metrics, present = MetricSet(), self.present()
        self.seen |= set(present)
        up = metrics.gauge("efa_device_up", "Whether an EFA device that was seen since the exporter started is there.")
        for device in sorted(self.seen):
            up.add(device in present, device=device)
        metrics.gauge("efa_pci_devices", "EFA devices on the PCI bus.").add(self.on_bus())
        for device in present:
            self._counters(metrics, f"{DEVICES}/{device}/hw_counters", {"device": device})
            for port in self.tree.names(f"{DEVICES}/{device}/ports"):
                place, labels = f"{DEVICES}/{device}/ports/{port}", {"device": device, "port": port}
                self._port(metrics, place, labels)
                self._counters(metrics, f"{place}/hw_counters", labels)
        resets = metrics.counter(
            "efa_counter_resets", "Times a counter fell: the driver or device restarted, or a wrap."
        )
        for device in sorted(self.seen):
            resets.add(self.resets.get(device, 0), device=device)
        return metrics

    def _port(self, metrics: MetricSet, place: str, labels: dict[str, str]) -> None:
        state = self.tree.read(f"{place}/state")
        if state is not None:
            metrics.gauge("efa_port_active", "Whether the port is active.").add("ACTIVE" in state, **labels)
        rate = _RATE.search(self.tree.read(f"{place}/rate") or "")
        if rate:
            text = "Rate of the port that the driver reports."
            metrics.gauge("efa_port_rate_bytes_per_second", text).add(float(rate[1]) * 1e9 / 8, **labels)

    def _counters(self, metrics: MetricSet, folder: str, labels: dict[str, str]) -> None:
        """Every counter that is there: drivers differ in theirs, and one may vanish while the exporter runs."""
        for name in self.tree.names(folder):
            if name == "lifespan" or not _COUNTER.fullmatch(name):
                continue
            value = self.tree.number(f"{folder}/{name}")
            if value is None:
                continue
            self._note_reset((labels["device"], labels.get("port", ""), name), value)
            text = meanings().get(name, "a counter of the EFA driver")
            metrics.counter(f"efa_{name}", f"EFA: {text}.").add(value, **labels)

    def _note_reset(self, key: tuple[str, str, str], value: int) -> None:
        if value < self.last.get(key, 0):
            self.resets[key[0]] = self.resets.get(key[0], 0) + 1
        self.last[key] = value
