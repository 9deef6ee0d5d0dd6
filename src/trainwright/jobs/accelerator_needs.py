"""What a job asks of its accelerator: units for its precision, its float8 recipe, links between chips."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwright.catalog.accelerators import TRAINS, Accelerator, find_accelerator
from trainwright.train.float8.recipes import DEFAULT, Capability, instead, lacking

if TYPE_CHECKING:
    from trainwright.jobs.training import TrainingResolver

FLOAT8 = "float8"


def numbers(job: TrainingResolver, rule: str) -> tuple[str | None, str | None]:
    """(precision, float8 recipe); a recipe of scales means fp8. What the chip does not have is refused."""
    recipe, instance = job.recipe, job.placement.instance if job.placement else None
    chip = find_accelerator(instance.accelerator) if instance is not None and instance.accelerator else None
    scales = job.value(FLOAT8, job.job.float8, recipe.options.get(FLOAT8) if recipe and job.ours else None)
    asked = job.job.precision or ("fp8" if scales and (job.job.float8 or FLOAT8 in job.arguments.values) else None)
    precision = job.value("precision", asked, recipe.precision if recipe else None)
    place = _place(job, FLOAT8 if scales and not job.job.precision else "precision")
    if scales and precision != "fp8":
        what = f"float8: {scales} scales fp8 products, and the precision is {precision}"
        job.outer.refuse(rule, _place(job, FLOAT8), what=what, fix="precision: fp8, or leave float8 out")
    elif precision == "fp8" and chip is not None and not chip.fp8_tflops:
        job.outer.refuse(rule, place, what=f"{chip.title} has no fp8 units", fix="use bf16, or a newer GPU")
    elif precision == "fp8" and job.ours:
        _require_recipe(job, chip, str(scales or DEFAULT), rule)
    _require_links(job, chip, rule)
    if chip is not None and chip.only_infers:
        job.outer.refuse(rule, "queue", what=f"{chip.title} cannot train", fix=TRAINS)
    return None if precision is None else str(precision), None if scales is None else str(scales)


def _require_recipe(job: TrainingResolver, chip: Accelerator | None, scales: str, rule: str) -> None:
    capability = capability_of(chip) if chip is not None else None
    lack = lacking(scales, capability) if capability is not None else ""
    if chip is not None and capability is not None and lack:
        what = f"float8: {scales} needs a GPU of {lack}, and {chip.title} has {capability[0]}.{capability[1]}"
        job.outer.refuse(rule, _place(job, FLOAT8), what=what, fix=instead(capability))


def _require_links(job: TrainingResolver, chip: Accelerator | None, rule: str) -> None:
    if job.arguments.values.get("async_tp") and chip is not None and not chip.nvlink_gb_s:
        what = f"--async-tp reads the memory of other GPUs over NVLink, which {chip.title} does not have"
        job.outer.refuse(rule, "args", what=what, fix="leave --async-tp out")


def capability_of(chip: Accelerator) -> Capability | None:
    """The compute capability of an NVIDIA GPU."""
    number = chip.arch.removeprefix("sm_")
    return (int(number[:-1]), int(number[-1])) if chip.arch.startswith("sm_") else None


def _place(job: TrainingResolver, name: str) -> str:
    """Where the value was stated."""
    return "args" if name in job.arguments.values else name if getattr(job.job, name) else "recipe"
