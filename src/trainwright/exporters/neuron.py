"""AWS Neuron devices: follows `neuron-monitor`, which prints a JSON report per period, and gives its last report."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
from typing import Any

from trainwright.exporters.metric import MetricSet

FOLDERS = "/opt/aws/neuron/bin:/usr/local/bin:/usr/bin:/bin"
OLD = 60.0  # seconds after which a report no longer says how things are
LONGEST_LINE = 1 << 20
ECC = ("mem_ecc_corrected", "mem_ecc_uncorrected", "sram_ecc_corrected", "sram_ecc_uncorrected")


class NeuronCollector:
    name = "neuron"

    def __init__(self, path: str = FOLDERS) -> None:
        self.program = shutil.which("neuron-monitor", path=path)
        self.report: dict[str, Any] = {}
        self.received = 0.0
        self.thread: threading.Thread | None = None
        self.process: subprocess.Popen[bytes] | None = None

    def available(self) -> bool:
        return self.program is not None

    def collect(self) -> MetricSet:
        if self.thread is None or not self.thread.is_alive():  # not started yet, or the program ended
            self.thread = threading.Thread(target=self._follow, daemon=True)
            self.thread.start()
        metrics = MetricSet()
        fresh = time.monotonic() - self.received < OLD if self.received else False
        metrics.gauge("neuron_monitor_up", "Whether neuron-monitor reported within a minute.").add(fresh)
        if fresh:
            _runtimes(metrics, _rows(self.report.get("neuron_runtime_data")))
            counters = _child(_child(self.report, "system_data"), "neuron_hw_counters")
            _devices(metrics, _rows(counters.get("neuron_devices")))
        return metrics

    def _follow(self) -> None:
        assert self.program is not None
        with subprocess.Popen([self.program], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
            self.process = process
            assert process.stdout is not None
            while line := process.stdout.readline(LONGEST_LINE):
                try:
                    report = json.loads(line)
                except ValueError:
                    continue
                if isinstance(report, dict):
                    self.report, self.received = report, time.monotonic()

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()


def _runtimes(metrics: MetricSet, runtimes: list[dict[str, Any]]) -> None:
    cores = metrics.gauge("neuron_core_utilization_ratio", "Share of the time in which a NeuronCore computed.")
    used = metrics.gauge("neuron_memory_used_bytes", "Memory that a Neuron runtime uses.")
    errors = metrics.counter("neuron_execution_errors", "Executions that failed, by kind.")
    for runtime in runtimes:
        pid, report = str(runtime.get("pid", "")), _child(runtime, "report")
        in_use = _child(_child(report, "neuroncore_counters"), "neuroncores_in_use")
        for core, facts in in_use.items():
            value = _number(facts.get("neuroncore_utilization")) if isinstance(facts, dict) else None
            cores.add(None if value is None else value / 100, core=core, pid=pid)
        memory = _child(_child(report, "memory_used"), "neuron_runtime_used_bytes")
        for where in ("host", "neuron_device"):
            used.add(_number(memory.get(where)), where=where, pid=pid)
        for kind, count in _child(_child(report, "execution_stats"), "error_summary").items():
            errors.add(_number(count), kind=kind, pid=pid)


def _devices(metrics: MetricSet, devices: list[dict[str, Any]]) -> None:
    for device in devices:
        for name in ECC:
            text = "ECC errors of a Neuron device."
            value = _number(device.get(name))
            metrics.counter(f"neuron_{name}", text).add(value, device=device.get("neuron_device_index", ""))


def _child(value: dict[str, Any], key: str) -> dict[str, Any]:
    child = value.get(key)
    return child if isinstance(child, dict) else {}


def _rows(value: Any) -> list[dict[str, Any]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _number(value: Any) -> float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
