"""Errors in the kernel log: Xids of each GPU, counted since the exporter started and what was in the log then."""

from __future__ import annotations

import os
from collections import Counter

from trainwright.exporters.metric import MetricSet
from trainwright.health.kernel_log import hardware_errors, verdict_of, xids

LOG = "/dev/kmsg"
RECORD = 8192  # the kernel's largest record
MOST_RECORDS = 20_000  # per scrape: a driver that logs in a loop must not hold the scrape up


class KernelLogCollector:
    name = "kernel_log"

    def __init__(self, path: str = LOG) -> None:
        self.path, self.handle = path, -1
        self.errors: Counter[tuple[str, int, str]] = Counter()
        self.hardware: Counter[str] = Counter()

    def available(self) -> bool:
        try:
            self.handle = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:  # needs CAP_SYSLOG where dmesg is restricted
            return False
        return True

    def collect(self) -> MetricSet:
        lines = self._new_lines()
        self.errors.update((event.bus, event.code, verdict_of(event)) for event in xids(lines))
        self.hardware.update(verdict for verdict, _ in hardware_errors(lines))
        metrics = MetricSet()
        events = metrics.counter("gpu_xid", "Xid errors in the kernel log, with what each asks for.")
        for (bus, code, action), count in self.errors.items():
            events.add(count, bus=bus, xid=code, action=action)
        hardware = metrics.counter("host_hardware_errors", "Hardware errors of the host in the kernel log.")
        for verdict in ("isolate", "monitor"):
            hardware.add(self.hardware[verdict], action=verdict)
        return metrics

    def _new_lines(self) -> list[str]:
        lines: list[str] = []
        for _ in range(MOST_RECORDS):
            try:
                record = os.read(self.handle, RECORD)
            except BlockingIOError:
                break
            except BrokenPipeError:  # records were overwritten before they were read; the next read goes on
                continue
            except OSError:
                break
            if not record:
                break
            lines += record.decode(errors="replace").partition(";")[2].splitlines()[:1]
        return lines
