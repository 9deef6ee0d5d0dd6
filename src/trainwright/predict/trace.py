"""Where the time of profiled steps went, from a trace of torch's profiler (Chrome format): compute by kind,
communication exposed and hidden, waiting for data, gaps. On a GPU its kernels count; on a CPU the operators."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainwright.errors import UserError
from trainwright.predict.intervals import Intervals, Span

WORKING = ("kernel", "gpu_memcpy", "gpu_memset", "cpu_op", "user_annotation")
LARGEST = 4 << 30  # bytes, unpacked
STEP = re.compile(r"ProfilerStep#(\d+)")
DATA = re.compile(r"data wait$|enumerate\(DataLoader\)|.*DataLoader.*__next__|.*prepare_data")
OPTIMIZER = re.compile(r"optimizer$|Optimizer\.step")
COMMUNICATION = re.compile(r"nccl|rccl|gloo:|mpi:|ncclDevKernel|oneccl|all_?reduce_kernel|all_?gather_kernel", re.I)
# The first kind whose pattern matches; what matches none is elementwise.
KINDS = (
    ("attention", re.compile(r"flash|fmha|attention|sdpa", re.I)),
    ("products", re.compile(r"(?i)gemm|cutlass|nvjet|cublas|xmma|wgmma|matmul|::(add|b|badd|_scaled_)?mm\b|::linear$")),
    ("optimizer", re.compile(r"adam|multi_tensor|fused_?lamb|foreach", re.I)),
    ("copies", re.compile(r"memcpy|memset|::copy_", re.I)),
)  # fmt: skip
ORDER = ("products", "attention", "elementwise", "optimizer", "copies")
# Operators that only call others, or wait: their own time is no work.
_WRAPPERS = re.compile(r"autograd::|c10d::|record_param_comms|.*Backward\d*$|torch::")


@dataclass(frozen=True, slots=True)
class Kernel:
    name: str
    kind: str
    seconds: float  # per step
    calls: int  # in all profiled steps


@dataclass(frozen=True)
class Profile:
    """One rank's profiled steps. Seconds are per step; the parts add up to the step."""

    rank: int
    ranks: int
    device: str  # cuda | cpu
    steps: int
    step_s: float
    compute: dict[str, float]  # by kind, without what runs behind other compute
    exposed_s: float  # communication with no compute beside it
    hidden_s: float  # communication behind compute
    data_wait_s: float  # neither compute nor communication, while the step waits for its data
    idle_s: float  # the rest: the host is busy, or waits
    largest_gap_s: float
    kernels: tuple[Kernel, ...] = field(repr=False, default=())

    @property
    def overlap(self) -> float | None:
        """The share of communication that is hidden."""
        total = self.exposed_s + self.hidden_s
        return self.hidden_s / total if total else None


def read_trace(path: Path) -> dict[str, Any]:
    """The JSON of a trace, packed or not."""
    try:
        with path.open("rb") as handle:
            packed = handle.read(2) == b"\x1f\x8b"
        with gzip.open(path, "rb") if packed else path.open("rb") as handle:
            data = handle.read(LARGEST + 1)
        trace = json.loads(data) if len(data) <= LARGEST else None
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"not a trace: {error}", where=str(path), fix="a Chrome trace of torch's profiler") from None
    if isinstance(trace, list):
        trace = {"traceEvents": trace}
    if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
        raise UserError("not a trace: it has no traceEvents", where=str(path), fix="a Chrome trace of torch's profiler")
    return trace


def profile_of(trace: dict[str, Any], where: str = "") -> Profile:
    """Measure a trace."""
    events = [event for event in trace["traceEvents"] if event.get("ph") == "X" and "dur" in event]
    on_gpu = any(event.get("cat") == "kernel" for event in events)
    work = list(_gpu_work(events) if on_gpu else _cpu_work(events))
    if not work:
        raise UserError("the trace has no kernels and no operators", where=where, fix="profile CPU and CUDA activities")
    start, end, steps = _window(events, work)
    return _measured(trace, events, [item for item in work if start <= item[0] < end], (start, end), steps, on_gpu)


def _measured(
    trace: dict[str, Any], events: list[dict[str, Any]], work: list[Work], window: Span, steps: int, on_gpu: bool
) -> Profile:
    whole = Intervals([window])
    by_kind = {
        kind: Intervals(item[:2] for item in work if item[3] == kind) & whole for kind in (*ORDER, "communication")
    }
    computing = Intervals.union(by_kind[kind] for kind in ORDER)
    talking = by_kind["communication"]
    waiting = Intervals(_span(event) for event in events if DATA.match(event["name"]) and _annotates(event)) & whole
    gaps = whole - computing - talking
    info = trace.get("distributedInfo") or {}
    per = 1e-6 / steps
    exclusive, covered = {}, Intervals(())
    for kind in ORDER:  # two kernels at once count once, for the kind that comes first
        exclusive[kind] = (by_kind[kind] - covered).length * per
        covered = Intervals.union((covered, by_kind[kind]))
    return Profile(
        rank=int(info.get("rank", 0)), ranks=int(info.get("world_size", 1)), device="cuda" if on_gpu else "cpu",
        steps=steps, step_s=whole.length * per, compute=exclusive, exposed_s=(talking - computing).length * per,
        hidden_s=(talking & computing).length * per, data_wait_s=(gaps & waiting).length * per,
        idle_s=(gaps - waiting).length * per, largest_gap_s=gaps.longest * 1e-6,
        kernels=_kernels(work, per, _calls(events)),
    )  # fmt: skip


Work = tuple[float, float, str, str]  # start and end in µs, name, kind


def _gpu_work(events: Iterable[dict[str, Any]]) -> Iterator[Work]:
    """Kernels and copies. What the host launched in the optimizer is its work, whatever its name."""
    rows = list(events)
    updates = Intervals(_span(e) for e in rows if e.get("cat") == "user_annotation" and OPTIMIZER.match(e["name"]))
    launched = {_correlation(e): float(e["ts"]) for e in rows if e.get("cat") in ("cuda_runtime", "cuda_driver")}
    for event in rows:
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            start, end = _span(event)
            kind, launch = kind_of(event["name"]), launched.get(_correlation(event))
            if kind in ("elementwise", "copies") and launch is not None and updates.covers(launch, launch):
                kind = "optimizer"
            yield start, end, event["name"], kind


def _cpu_work(events: Iterable[dict[str, Any]]) -> Iterator[Work]:
    """Each operator's own time, without that of the operators it calls; collectives run in threads of their own."""
    rows = list(events)
    updates = Intervals(_span(e) for e in rows if e.get("cat") == "user_annotation" and OPTIMIZER.match(e["name"]))
    for event in rows:
        if COMMUNICATION.match(event["name"]) and _annotates(event):
            yield *_span(event), event["name"], "communication"
    threads: dict[object, list[dict[str, Any]]] = {}
    for event in rows:
        if event.get("cat") == "cpu_op":
            threads.setdefault(event.get("tid"), []).append(event)
    for operators in threads.values():
        for start, end, name in _own_time(operators):
            if not _WRAPPERS.match(name):
                kind = kind_of(name)
                yield start, end, name, "optimizer" if updates.covers(start, end) else kind


def _own_time(operators: list[dict[str, Any]]) -> Iterator[tuple[float, float, str]]:
    """(start, end, name) of the stretches in which an operator is the innermost one of its thread."""
    stack: list[tuple[float, str]] = []  # (end, name)
    at = 0.0
    for event in sorted(operators, key=lambda e: (e["ts"], -e["dur"])):
        start, end = _span(event)
        while stack and stack[-1][0] <= start:
            ended, name = stack.pop()
            if ended > at:
                yield at, ended, name
            at = max(at, ended)
        if stack and start > at:
            yield at, start, stack[-1][1]
        at = start
        stack.append((end, event["name"]))
    while stack:
        ended, name = stack.pop()
        if ended > at:
            yield at, ended, name
        at = max(at, ended)


def kind_of(name: str) -> str:
    if COMMUNICATION.search(name):
        return "communication"
    return next((kind for kind, pattern in KINDS if pattern.search(name)), "elementwise")


def _window(events: list[dict[str, Any]], work: list[Work]) -> tuple[float, float, int]:
    """Start, end and number of the profiled steps. A GPU finishes the last step after the host is done with it."""
    steps = {}
    for event in events:
        match = STEP.match(event["name"])
        if match and event.get("cat") in ("user_annotation", "cpu_op", None):
            steps[int(match[1])] = _span(event)
    last_work = max(end for _, end, _, _ in work)
    if not steps:
        return min(start for start, _, _, _ in work), last_work, 1
    start, end = min(span[0] for span in steps.values()), max(span[1] for span in steps.values())
    return start, max(end, last_work), len(steps)


def _calls(events: list[dict[str, Any]]) -> Counter[str]:
    return Counter(short_name(event["name"]) for event in events if event.get("cat") in WORKING)


def _kernels(work: list[Work], per: float, calls: Counter[str]) -> tuple[Kernel, ...]:
    totals: dict[tuple[str, str], float] = {}
    for start, end, name, kind in work:
        key = short_name(name), kind
        totals[key] = totals.get(key, 0.0) + (end - start) * per
    kernels = [Kernel(name, kind, seconds, calls[name]) for (name, kind), seconds in totals.items()]
    return tuple(sorted(kernels, key=lambda kernel: -kernel.seconds))


def short_name(name: str) -> str:
    """A kernel's name without its return type, arguments and template arguments."""
    plain = re.sub(r"^void ", "", name).split("(anonymous namespace)::")[-1]
    return re.split(r"[<(]", plain)[0][:80] or name[:80]


def _correlation(event: dict[str, Any]) -> object:
    return (event.get("args") or {}).get("correlation")


def _span(event: dict[str, Any]) -> Span:
    start = float(event["ts"])
    return start, start + float(event["dur"])


def _annotates(event: dict[str, Any]) -> bool:
    return event.get("cat") in ("user_annotation", "cpu_op", "python_function")
