"""SPC: the software that a job's framework needs must be on the nodes that run it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from trainwright.check.model import CheckedSpec, File
from trainwright.check.registry import Problem, problem, rule

if TYPE_CHECKING:
    from trainwright.recipes.model import Foreign
    from trainwright.spec.job import Job

PLATFORMS = ("parallelcluster", "hyperpod")  # whose nodes run jobs without a container, from images that we know


@rule("SPC014", "warning")
def framework_is_on_the_nodes(file: File) -> Iterator[Problem]:
    """A job of another framework needs an image, or an environment of yours, that holds the framework.

    Nodes of ParallelCluster and HyperPod have PyTorch from the managed environment, and no Megatron-LM, NeMo, JAX or
    neuronx-distributed. An image of your own (`software: {image: ami-…}`), an environment of your own (`software:
    {runtime: /folder}`) and other platforms are not judged.

    NeMo, Megatron-Bridge, BioNeMo and MaxText run in their vendor's image where a job names none. That one brings its
    own EFA libraries and aws-ofi-nccl, or none, which no version set of ours states: a note says so.

    Why: every rank would stop with a missing module or program, after the wait in the queue. 16 p5.48xlarge cost 15
    USD per minute (us-east-2, August 2026).

    Fix: `trainwright image container --for RECIPE` writes the image; name it with `container:` in the job.

    Source: the lists of packages of the managed environment and of the container families (`trainwright image sets`).

    When to ignore: when the nodes get the framework in another way, such as a script of your own.
    """
    for spec in file.specs:
        software = spec.full.software
        if (
            spec.full.platform in PLATFORMS
            and software.image == "stock"
            and software.runtime in (None, "managed", "none")
        ):
            for index, job in enumerate(spec.full.jobs):
                yield from _missing(spec, index, job)
        if spec.full.platform not in ("local", "existing"):
            for index, job in enumerate(spec.full.jobs):
                yield from _stock(spec, index, job)


def _foreign(job: Job) -> Foreign | None:
    """The framework's part of the recipe of a job that names no image of its own."""
    from trainwright.errors import UserError
    from trainwright.recipes.load import recipe
    from trainwright.recipes.model import Foreign

    if not job.recipe or job.container:
        return None
    try:
        trainer = recipe(job.recipe).trainer
    except UserError:
        return None  # SPC004 says so
    return trainer if isinstance(trainer, Foreign) and trainer.known is not None else None


def _stock(spec: CheckedSpec, index: int, job: Job) -> Iterator[Problem]:
    trainer = _foreign(job)
    if trainer is None or not trainer.image:
        return
    yield problem(
        spec.loaded.span("jobs", index, "recipe"),
        f"job {job.name!r} runs in {trainer.image}, whose EFA libraries and plugin are not those of the version set",
        f"`trainwright image container --for {job.recipe}` writes an image of it with those: name it with `container:`",
        level="info",
    )


def _missing(spec: CheckedSpec, index: int, job: Job) -> Iterator[Problem]:
    trainer = _foreign(job)
    known = trainer.known if trainer is not None else None
    if trainer is None or known is None or trainer.image:
        return
    name = known.image or trainer.framework or ""
    held = in_runtime(name)
    if held and spec.full.software.runtime != "none":
        return
    write = f"`trainwright image container --for {job.recipe}` writes its image: name it with `container:`"
    own = f"name an image that has {known.title} with `container:`"
    yield problem(
        spec.loaded.span("jobs", index, "recipe"),
        f"{known.title} is not on the nodes: job {job.name!r} names no container",
        own if held is None else write,
        level="warning",
    )


@cache
def in_runtime(framework: str) -> bool | None:
    """Whether the managed environment has all that a framework needs; None where no image of ours has the framework."""
    import re

    from trainwright.catalog.families import families
    from trainwright.catalog.runtime import runtime_pins

    holder = next((one for one in families().values() if framework in one.frameworks), None)
    if holder is None:
        return None
    image = holder.frameworks[framework]
    installed = set(re.findall(r"(?m)^([A-Za-z0-9_.-]+)==", runtime_pins().requirements))
    needed = {re.split(r"[\[=<>]", package)[0] for package in image.packages}
    return holder.nccl == "wheel" and not image.git and needed <= installed
