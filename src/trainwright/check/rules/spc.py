"""SPC: what a spec of ours asks for must be something that its platform, scheduler and trainer can do. `plan`, `up`,
`submit` and `predict` run these rules first, so that nothing is refused later that was not reported here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainwright.check.launches.job_sizes import refusals
from trainwright.check.model import CheckedSpec, File
from trainwright.check.registry import Problem, problem, rule
from trainwright.spec.source import Node

Path = tuple[str | int, ...]


def written(root: Node, pattern: tuple[str, ...], path: Path = ()) -> Iterator[Path]:
    """The paths of a document that fit a pattern (`queues.*.nodes`), as far as somebody wrote them."""
    if not pattern:
        yield path
        return
    step, rest = pattern[0], pattern[1:]
    if step == "*":
        for index in range(len(list(root.elements()))):
            yield from written(root.get(index) or root, rest, (*path, index))
    elif (child := root.get(step)) is not None:
        yield from written(child, rest, (*path, step))


def plain(spec: CheckedSpec, path: Path) -> Any:
    node = spec.loaded.node.get(*path)
    return node.plain() if node is not None else None


def _asks(value: Any, pattern: tuple[str, ...]) -> bool:
    """Whether a value asks for something. An empty section does not; but `lustre: {}` names the kind of a storage."""
    return value not in (None, False) and (pattern[0] == "storage" or value not in ({}, []))


@rule("SPC001", "error")
def platform_can_do_it(file: File) -> Iterator[Problem]:
    """What a spec asks for must be something that its platform can do.

    Each platform and scheduler declares what it cannot honour (`catalog/data/capabilities.toml`): `nodes:` outside
    platform local, an operating system without images, a Slurm account on Kubernetes.

    Why: a value that the platform cannot honour would be dropped, and the cluster would not be what the file says,
    which one sees after the 15 to 20 minutes of its creation.

    Fix: as the finding says; usually remove the value, or choose another platform.

    Source: each platform's own schema and documentation, noted in the capability table; README of
    awsome-distributed-ai (15 to 20 minutes).

    When to ignore: never; `plan`, `up` and `submit` stop at it.
    """
    from trainwright.catalog.capabilities import platforms, scheduler_of, schedulers

    for spec in file.specs:
        platform = platforms()[spec.full.platform]
        scheduler = schedulers()[spec.scheduler] if spec.scheduler else scheduler_of(platform.name)
        for pattern, limit in {**platform.cannot, **scheduler.cannot}.items():
            title = platform.title if pattern in platform.cannot else f"the {scheduler.name} scheduler"
            for path in written(spec.loaded.node, pattern):
                if _asks(plain(spec, path), pattern):
                    what = f"{title} cannot honour `{pattern[-1]}`: {limit.why}"
                    yield problem(spec.loaded.span(*path), what, limit.fix, level=limit.level)
        for pattern, values in platform.values.items():
            for path in written(spec.loaded.node, pattern):
                value = plain(spec, path)
                if value is not None and value not in values:
                    what = f"{platform.title} has no {value!r} for `{pattern[-1]}`"
                    yield problem(spec.loaded.span(*path), what, f"one of {', '.join(values)}")


@rule("SPC002", "error")
def queue_of_a_job_exists(file: File) -> Iterator[Problem]:
    """A job must name a queue of its spec.

    Why: nothing can be submitted to a queue that is not there, and a prediction for another queue answers another
    question: an H100 has 989 TFLOPS in bf16, an A100 312.

    Fix: name one of the spec's queues, or leave `queue` out: the first one is taken.

    Source: the spec itself; data sheets of H100 and A100.

    When to ignore: never; `submit` and `predict` stop at it.
    """
    yield from refusals(file, "SPC002")


@rule("SPC003", "error")
def job_fits_its_queue(file: File) -> Iterator[Problem]:
    """A job must fit the nodes of its queue.

    It asks for no more nodes than the queue may have, starts no more processes on a node than the node has GPUs (or, on
    nodes without GPUs, CPUs).

    Why: a job that is larger than its queue waits for ever, and NCCL refuses two ranks on one GPU.

    Fix: ask for fewer nodes or processes, or let the queue grow.

    Source: Slurm, `sbatch --nodes`; NCCL, "Duplicate GPU detected".

    When to ignore: never; `submit` stops at it.
    """
    yield from refusals(file, "SPC003")


@rule("SPC004", "error")
def job_can_be_started(file: File) -> Iterator[Problem]:
    """A job must say what it runs, in words that its trainer takes.

    The recipe and the model exist, the trainer has that kind of model and every option that the job or its `args`
    state, a script can reach the nodes, and the environment leaves the rendezvous to the scheduler. Where nodes share
    nothing by themselves (EKS, Batch, HyperPod), the spec has shared storage for run folders.

    Why: the trainer would stop on every rank, after the wait in the queue; or never hear of what the job states. 16
    p5.48xlarge cost 15 USD per minute (us-east-2, August 2026).

    Fix: as the finding says.

    Source: the trainer's own parser and checks.

    When to ignore: never; `submit` stops at it.
    """
    yield from refusals(file, "SPC004")


@rule("SPC005", "info")
def words_of_today(file: File) -> Iterator[Problem]:
    """A key or value that has another name today.

    Earlier versions wrote `tensor`, `pipeline`, `context`, `vp`, `micro` and `float8`; they stay accepted.

    Why: one word for each thing, in spec, flags, messages and documentation. 7 keys and 1 value have another name
    today.

    Fix: write the word of today.

    Source: the specification of this version (docs/reference/spec.md).

    When to ignore: as long as an older version reads the file too.
    """
    for spec in file.specs:
        for renamed in spec.loaded.renamed:
            yield problem(renamed.span, f"`{renamed.old}` is written `{renamed.new}` today", f"write `{renamed.new}`")
