"""BEN: thresholds of benchmarks and health checks against the hardware limits."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.catalog.accelerators import find_accelerator
from trainwright.catalog.instances import InstanceType
from trainwright.check import reasons
from trainwright.check.launches.captured import captured_jobs
from trainwright.check.launches.job_sizes import once, type_of
from trainwright.check.launches.scopes import branches
from trainwright.check.model import Command, EnvVar, File, Job, ShellScript, Value, known
from trainwright.check.registry import Problem, problem, rule

_THRESHOLD = re.compile(r"^(NCCL_)?(MIN|EXPECTED|THRESHOLD)_?\w*BUS_?BW\w*$|^\w*BUS_?BW_?(MIN|THRESHOLD)\w*$", re.I)
# Other units, and thresholds of a test inside one node.
_OTHER = re.compile(r"[KMG]BIT|[KMG]BPS|PCT|PERCENT|RATIO|INTRA|NVLINK|LOCAL|SINGLE", re.I)
_SAME_LIMIT = ("all_reduce_perf", "all_gather_perf", "reduce_scatter_perf", "alltoall_perf")
_SIZE = re.compile(r"^(\d+(?:\.\d+)?)\s*([KMG]?)i?B?$", re.I)
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}
_LARGE = 2**30
_OF_BANDWIDTH = re.compile(r"bus_?bw|bandwidth", re.IGNORECASE)  # a test of latency sends small messages
_MOST_SIZES = 3  # of jobs that one threshold is compared with


@rule("BEN001", "warning")
def thresholds_are_possible(file: File) -> Iterator[Problem]:
    """A bandwidth threshold must be below the hardware limit, and the messages large enough to reach it.

    The bus bandwidth of an all-reduce over N nodes is at most NIC × N / (2(N − 1)) × 2(n − 1)/n with n ranks: 750 GB/s
    for two p5, 423 for sixteen; inside one node NVLink is the limit. Messages below 1 GiB do not reach it.

    Why: a check that can never pass marks good nodes as bad, and people learn to ignore it: a published health
    check requires 800 GB/s, and two p5.48xlarge reach at most 750.

    Fix: set it to about 80 % of the limit, and test up to 1 GiB or more.

    Source: the arithmetic of ring all-reduce; a health check of awsome-distributed-ai requires 800 GB/s on p5.

    When to ignore: the benchmark uses in-network reduction.
    """
    yield from _thresholds(file)
    yield from once(p for job in file.jobs for p in _messages(job))
    if _OF_BANDWIDTH.search(file.text) is not None and "_perf" in file.text:
        yield from once(p for job in captured_jobs(file) for p in _messages(job))


def bandwidth_limit(type_: InstanceType, nodes: int) -> float:
    """The best bus bandwidth of an all-reduce, in GB/s."""
    ranks = nodes * max(1, type_.gpus)
    factor = 2 * (ranks - 1) / ranks if ranks > 1 else 1.0
    if nodes > 1:
        return type_.network_gbps / 8 * nodes / (2 * (nodes - 1)) * factor
    chip = find_accelerator(type_.accelerator) if type_.accelerator else None
    link = chip.nvlink_gb_s if chip is not None else 0.0
    # With in-switch reduction (NVLS) each GPU sends its data once: bus bandwidth may exceed the link rate.
    return link * (factor if chip is not None and chip.nvls else 1.0)


Limits = list[tuple[Value[str], float]]


def _limits(job: Job) -> Limits:
    """The thresholds of a job; those of a script are the same for all its jobs."""
    of_script = job.script.derived(_limits_of_script) if job.script is not None else []
    return [*_numbers(job.env), *of_script] if job.env else of_script


def _limits_of_script(script: ShellScript) -> Limits:
    return _numbers(script.assignments)


def _numbers(assigned: list[EnvVar]) -> Limits:
    limits: Limits = []
    for variable in assigned:
        text = variable.value.value.strip("'\"")
        if not _THRESHOLD.match(variable.name) or _OTHER.search(variable.name):
            continue
        if variable.value.known and re.fullmatch(r"\d+(\.\d+)?", text):
            limits.append((variable.value, float(text)))
    return limits


def _thresholds(file: File) -> Iterator[Problem]:
    """Each threshold against the first jobs that cannot reach it, of every size at most once."""
    jobs: dict[int, list[Job]] = {}
    for job in file.jobs:
        jobs.setdefault(id(job.script) if job.script is not None and not job.env else id(job), []).append(job)
    for alike in jobs.values():
        limits = _limits(alike[0])
        sizes = _sizes(alike) if limits else {}
        for value, wanted in limits:
            places = [place for best, place in sizes.items() if wanted > best]
            yield from (_impossible(file, value, wanted, place) for place in places)


def _sizes(jobs: list[Job]) -> dict[float, Job]:
    """The limits of the jobs that measure bandwidth, each with its first job: a few of the smallest."""
    sizes: dict[float, Job] = {}
    for job in jobs:
        type_, nodes = type_of(job), known(job.nodes)
        if type_ is not None and type_.is_gpu and nodes is not None and nodes >= 1 and job.of_commands(_same_limit):
            sizes.setdefault(bandwidth_limit(type_, nodes), job)
    return dict(sorted(((best, job) for best, job in sizes.items() if best), key=lambda one: one[0])[:_MOST_SIZES])


def _same_limit(commands: list[Command]) -> bool:
    tests = [command.program for command in commands if command.program.endswith("_perf")]
    return not tests or any(name in _SAME_LIMIT for name in tests)


def _impossible(file: File, value: Value[str], wanted: float, job: Job) -> Problem:
    type_, nodes = type_of(job), known(job.nodes) or 1
    assert type_ is not None
    best = bandwidth_limit(type_, nodes)
    where = f"{nodes} {type_.name} nodes" if nodes > 1 else f"one {type_.name}"
    return problem(
        value,
        f"{wanted:g} GB/s of bus bandwidth, but {where} can reach {best:.0f}",
        f"use about {0.8 * best:.0f}",
        # The caller, or a branch for another type, decides.
        level="info" if value.default or branches(file, value) else None,
    )


def _messages(job: Job) -> Iterator[Problem]:
    launch, type_ = job.launch, type_of(job)
    if launch is None or not launch.program.endswith("_perf"):
        return
    largest = launch.options.get("e") or launch.options.get("maxbytes")
    match = _SIZE.match(largest.value) if largest is not None and largest.known else None
    fast = type_ is not None and type_.efa_cards >= 4 and (known(job.nodes) or 0) > 1
    if largest is None or match is None or not (fast or _limits(job)):
        return
    size = float(match[1]) * _UNITS[match[2].lower()]
    if size < _LARGE:
        what = f"messages up to {largest.value} do not reach the full bandwidth"
        yield problem(largest, what, "test up to 1G or more (-e 16G)", level="info", why=reasons.SMALL_MESSAGES)
