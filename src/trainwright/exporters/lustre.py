"""The Lustre client: bytes and operations of each mount, and each target's space and connection, from where this
version of Lustre keeps them: /proc, /sys or debugfs."""

from __future__ import annotations

import re

from trainwright.exporters.files import Tree
from trainwright.exporters.metric import MetricSet

PLACES = ("/proc/fs/lustre", "/sys/fs/lustre", "/sys/kernel/debug/lustre")
_LINE = re.compile(r"(\w+)\s+(\d+) samples \[(\w+)\](?:\s+\d+\s+\d+\s+(\d+))?")
_STATE = re.compile(r"^\s*state:\s*(\w+)", re.MULTILINE)


class LustreCollector:
    name = "lustre"

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    def available(self) -> bool:
        return any(self.tree.names(f"{place}/llite") for place in PLACES)

    def collect(self) -> MetricSet:
        metrics = MetricSet()
        for mount in self._names("llite"):
            self._statistics(metrics, mount)
        for kind in ("osc", "mdc"):
            for target in self._names(kind):
                self._target(metrics, kind, target)
        return metrics

    def _statistics(self, metrics: MetricSet, mount: str) -> None:
        labels = {"filesystem": mount.split("-")[0], "mount": mount}
        for line in (self._read(f"llite/{mount}/stats") or "").splitlines():
            match = _LINE.match(line)
            if not match:
                continue
            name, samples, unit, total = match.groups()
            if unit == "bytes" and total and name in ("read_bytes", "write_bytes"):
                verb = name.split("_")[0]
                metrics.counter(f"lustre_{name}", f"Bytes that programs {verb} through Lustre.").add(
                    int(total), **labels
                )
                name = verb
            operations = metrics.counter("lustre_operations", "Operations of the Lustre client.")
            operations.add(int(samples), operation=name, **labels)

    def _target(self, metrics: MetricSet, kind: str, target: str) -> None:
        """One OST or MDT as this client sees it: `fs-OST0000-osc-ffff8881`."""
        name = "-".join(target.split("-")[:2])
        labels = {"filesystem": target.split("-")[0], "target": name}
        for file, metric in (("kbytestotal", "size"), ("kbytesavail", "available")):
            value = self._number(f"{kind}/{target}/{file}")
            text = f"Bytes of a Lustre target: {metric}."
            metrics.gauge(f"lustre_target_{metric}_bytes", text).add(None if value is None else value * 1024, **labels)
        state = _STATE.search(self._read(f"{kind}/{target}/import") or "")
        if state:
            text = "Whether the connection to a Lustre target is in state FULL, the normal one."
            metrics.gauge("lustre_target_connected", text).add(state[1] == "FULL", **labels)

    def _names(self, kind: str) -> list[str]:
        names = {name for place in PLACES for name in self.tree.names(f"{place}/{kind}") if "-" in name}
        return sorted(names)

    def _read(self, path: str) -> str | None:
        return next((text for place in PLACES if (text := self.tree.read(f"{place}/{path}"))), None)

    def _number(self, path: str) -> int | None:
        text = self._read(path)
        return int(text) if text and text.isdecimal() and len(text) < 20 else None
