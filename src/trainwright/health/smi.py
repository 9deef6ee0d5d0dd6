"""Readers of nvidia-smi: the XML of `-q -x`, the links of `nvlink -s` and `nvlink -e`, the matrix of `topo -m`."""

from __future__ import annotations

import dataclasses
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from trainwright.health.node import Node

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

QUERY = ("nvidia-smi", "-q", "-x")
LINK_STATUS = ("nvidia-smi", "nvlink", "-s")
LINK_ERRORS = ("nvidia-smi", "nvlink", "-e")
TOPOLOGY = ("nvidia-smi", "topo", "-m")
SECONDS = 20.0  # without persistence mode every call initialises every GPU


@dataclasses.dataclass(frozen=True)
class Gpu:
    """One GPU as nvidia-smi describes it. A number of None: the GPU does not count that."""

    index: int
    bus: str
    name: str
    uuid: str
    persistence: bool
    recovery_action: str
    link_width: int | None
    replays: int | None
    throttled: frozenset[str]
    memory_mib: int | None
    memory_used_mib: int | None
    ecc: str
    corrected: int | None
    uncorrected: int | None
    sram_threshold_exceeded: bool
    pages_pending: bool
    rows_remapped: int | None
    rows_pending: bool
    rows_failed: bool
    temperature: int | None
    fabric_state: str
    fabric_status: str
    processes: tuple[str, ...]

    def __str__(self) -> str:
        return f"GPU {self.index} ({self.bus})"


class SmiError(Exception):
    """nvidia-smi gave no usable answer."""


@dataclasses.dataclass(frozen=True)
class Smi:
    driver: str
    cuda: str
    gpus: tuple[Gpu, ...]


@lru_cache(maxsize=16)
def query(node: Node) -> Smi:
    """Every GPU that answers. nvidia-smi prints what it knows and then an error when one GPU is lost."""
    from xml.etree import ElementTree

    output = node.run(*QUERY, seconds=SECONDS)
    text = output.out[output.out.find("<nvidia_smi_log>") :]
    try:
        log = ElementTree.fromstring(text[: text.rindex("</nvidia_smi_log>") + len("</nvidia_smi_log>")])
    except (ElementTree.ParseError, ValueError):
        raise SmiError(output.complaint) from None
    gpus = tuple(_gpu(index, element) for index, element in enumerate(log.findall("gpu")))
    return Smi(log.findtext("driver_version", ""), log.findtext("cuda_version", ""), gpus)


def _gpu(index: int, gpu: Element) -> Gpu:
    volatile = gpu.find("ecc_errors/volatile")
    events = gpu.find("clocks_event_reasons")
    if events is None:  # drivers before 535
        events = gpu.find("clocks_throttle_reasons")
    remapped = [_number(gpu, f"remapped_rows/remapped_row_{kind}") for kind in ("corr", "unc")]
    return Gpu(
        index=index,
        bus=bus_id(gpu.get("id", "")),
        name=gpu.findtext("product_name", ""),
        uuid=gpu.findtext("uuid", ""),
        persistence=gpu.findtext("persistence_mode") == "Enabled",
        recovery_action=gpu.findtext("gpu_recovery_action", "None"),
        link_width=_number(gpu, "pci/pci_gpu_link_info/link_widths/current_link_width"),
        replays=_number(gpu, "pci/replay_counter"),
        throttled=_active(events),
        memory_mib=_number(gpu, "fb_memory_usage/total"),
        memory_used_mib=_number(gpu, "fb_memory_usage/used"),
        ecc=gpu.findtext("ecc_mode/current_ecc", "N/A"),
        corrected=_sum(volatile, "_correctable", "single_bit/total"),
        uncorrected=_sum(volatile, "uncorrectable", "double_bit/total"),
        sram_threshold_exceeded=gpu.findtext("ecc_errors/aggregate/sram_threshold_exceeded") == "Yes",
        pages_pending=gpu.findtext("retired_pages/pending_retirement") == "Yes",
        rows_remapped=remapped[1],
        rows_pending=gpu.findtext("remapped_rows/remapped_row_pending") == "Yes",
        rows_failed=gpu.findtext("remapped_rows/remapped_row_failure") == "Yes",
        temperature=_number(gpu, "temperature/gpu_temp"),
        fabric_state=gpu.findtext("fabric/state", "N/A"),
        fabric_status=gpu.findtext("fabric/status", "N/A"),
        processes=tuple(
            f"{one.findtext('pid')} {one.findtext('process_name')}" for one in gpu.findall("processes/process_info")
        ),
    )


def bus_id(text: str) -> str:
    """`00000000:59:00.0` and `PCI:0000:59:00` name one GPU: `0000:59:00`, as the kernel log has it."""
    match = re.search(r"([0-9a-fA-F]{4}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})", text)
    return f"{match[1]}:{match[2]}:{match[3]}".lower() if match else text


def _number(gpu: Element, path: str) -> int | None:
    match = re.match(r"-?\d+", gpu.findtext(path, "").strip())
    return int(match[0]) if match else None


def _active(events: Element | None) -> frozenset[str]:
    """The slowdowns in force, by their short names: `hw_thermal_slowdown`."""
    if events is None:
        return frozenset()
    return frozenset(re.sub(r"clocks_(event|throttle)_reason_", "", e.tag) for e in events if e.text == "Active")


def _sum(volatile: Element | None, kind: str, older: str) -> int | None:
    """The counters of a kind; GPUs before Ampere have one total instead."""
    if volatile is None:
        return None
    counters = [e for e in volatile if kind in e.tag and (kind != "_correctable" or "uncorrectable" not in e.tag)]
    total = volatile.findtext(older)
    texts = [total] if total is not None else [e.text or "" for e in counters]
    numbers = [int(text) for text in texts if text.strip().isdigit()]
    return sum(numbers) if numbers else None


def links(node: Node) -> dict[int, dict[int, bool]]:
    """For each GPU, its NVLinks and whether each is up."""
    made: dict[int, dict[int, bool]] = {}
    gpu = -1
    for line in node.run(*LINK_STATUS, seconds=SECONDS).out.splitlines():
        if match := re.match(r"GPU (\d+):", line):
            gpu = int(match[1])
            made[gpu] = {}
        elif match := re.match(r"\s+Link (\d+): (.+)", line):
            made.setdefault(gpu, {})[int(match[1])] = "inactive" not in match[2]
    return made


def link_errors(node: Node) -> list[tuple[int, int, str, int]]:
    """(GPU, link, counter, value) of every counter that is not zero. Corrected codewords (FEC) and bit error rates are
    no errors: a healthy link counts them in billions."""
    made = []
    gpu = -1
    for line in node.run(*LINK_ERRORS, seconds=SECONDS).out.splitlines():
        if match := re.match(r"GPU (\d+):", line):
            gpu = int(match[1])
        match = re.match(r"\s+Link (\d+): ((?!FEC).*(?:Errors|discards|failed events)): ([1-9]\d*)\s*$", line)
        if match:
            made.append((gpu, int(match[1]), match[2], int(match[3])))
    return made


def topology(node: Node) -> dict[tuple[str, str], str]:
    """How each pair of GPUs is connected: {("GPU0", "GPU1"): "NV18"}."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", node.run(*TOPOLOGY, seconds=SECONDS).out)
    lines = [line.split() for line in plain.splitlines() if re.match(r"\s*GPU\d+\s", line)]
    if not lines:
        return {}
    header, *body = lines
    columns = [word for word in header if re.fullmatch(r"GPU\d+", word)]
    return {
        (row[0], column): cell
        for row in body
        for column, cell in zip(columns, row[1:], strict=False)
        if row[0] != column
    }
