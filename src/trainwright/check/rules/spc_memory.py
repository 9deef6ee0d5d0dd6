"""SPC: a job whose memory is predicted to be more than its GPUs, or their hosts, have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainwright.check.model import File
from trainwright.check.registry import Problem, problem, rule

if TYPE_CHECKING:  # pydantic comes with it; a foreign file is checked without it
    from trainwright.jobs.resolved import ResolvedJob

PLACES = ("parallel", "batch", "recipe", "model", "name")  # what a finding stands at, the first that the job states
CLEARLY = 1.15  # predicted memory differs from published memory by about a tenth


@rule("SPC015", "warning")
def job_fits_in_memory(file: File) -> Iterator[Problem]:
    """A job must fit in the memory of its GPUs.

    Weights, gradients, optimizer state, activations and logits are predicted as `trainwright predict` does, for
    trainers that it covers. Reported only where the prediction is at least 15 % above what the GPU has; nearer to it,
    `predict` says that it is tight. The same where activations that are offloaded need more than 80 % of a GPU's share
    of the host's memory.

    Why: every rank ends with an out-of-memory error, after the wait in the queue. Adam in mixed precision needs 16
    bytes per parameter before any activation: 128 GB for 8 billion, and an H100 has 80.

    Fix: the nearest plan that fits, as the finding says: shard or split the model further, a smaller micro-batch, more
    recomputation, or more nodes. For host memory: offload fewer layers, or recompute, so that only a layer's input is
    offloaded.

    Source: `trainwright predict` (docs/predict/model.md); published memory scatters by about 10 %; ZeRO (2019),
    memory of mixed precision.

    When to ignore: the trainer offloads, or was seen to fit.
    """
    for spec in file.specs:
        for index, resolution in enumerate(spec.jobs):
            told = _too_large(resolution.job) if resolution.job is not None else None
            if told is not None:
                written = [key for key in PLACES if spec.loaded.node.get("jobs", index, key) is not None]
                yield problem(spec.loaded.span("jobs", index, written[0]), *told)


def _too_large(job: ResolvedJob) -> tuple[str, str] | None:
    """(what, fix) of a job that clearly does not fit; None where it does, or where it cannot be predicted."""
    if job.trainer == "script" or job.training is None or job.training.shape is None or _offloads(job):
        return None
    if job.placement.instance is None or not job.placement.instance.gpus:
        return None
    from trainwright.errors import UserError
    from trainwright.predict.constants import constants
    from trainwright.predict.hardware import GIB
    from trainwright.predict.job import setup_of
    from trainwright.predict.memory import HOST_USABLE, host_bytes, host_fits, memory
    from trainwright.predict.prediction import memory_parts

    try:
        setup = setup_of(job, constants())
    except UserError:
        return None  # a trainer or an accelerator that is not covered
    used, machines = memory(setup, constants()), setup.cluster
    if not host_fits(setup):
        what = (
            f"job {job.name!r} offloads about {host_bytes(setup) / GIB:.0f} GiB of activations per GPU, and "
            f"{machines.instance} has {HOST_USABLE * machines.host_memory / GIB:.0f} GiB of host memory per GPU for "
            "them"
        )
        return what, "a smaller --offload-activations, `recompute: full`, or a smaller micro-batch"
    limit = machines.device.memory / GIB
    if used.gib < CLEARLY * limit:
        return None
    from trainwright.predict.suggest import nearest_that_fits

    parts = ", ".join(f"{name} {size:.0f}" for name, size in memory_parts(used).items() if size >= 1)
    what = (
        f"job {job.name!r} needs about {used.gib:.0f} GiB per GPU ({parts}), and a GPU of {machines.instance} has "
        f"{limit:.0f}"
    )
    nearest = nearest_that_fits(setup, constants())
    return what, f"the nearest that fits: {nearest.keys}" if nearest else "a larger GPU, or a smaller model or sequence"


def _offloads(job: ResolvedJob) -> bool:
    """Whether something goes to host memory that the prediction does not count."""
    trainer = job.recipe.trainer if job.recipe is not None else None
    foreign = {} if trainer is None or isinstance(trainer, str) else {**trainer.options, **trainer.file}
    settings = {**foreign, **(job.training.options if job.training is not None else {})}
    words = [*job.job.args, *(name for name, value in settings.items() if value not in (None, False))]
    counted = ("offload-activations", "offload_activations") if job.trainer == "trainwright" else ()
    return any("offload" in word and not word.lstrip("-").startswith(counted) for word in words)
