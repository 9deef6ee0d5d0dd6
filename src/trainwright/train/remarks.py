"""Lines for the log: about the data, about options that have no effect in this run, and about values that are accepted
but unusual. Such a run goes on: a spec or a resumed run may carry options that are meant for another model or plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from trainwright.train.config import TrainConfig
from trainwright.train.data.loader import Samples
from trainwright.train.models.shape import ModelShape
from trainwright.train.objectives.base import Objective
from trainwright.train.parallel.plan import ParallelPlan

# Options that only some objectives read.
OBJECTIVES = {"dpo_beta": ("dpo",), "mask_rate": ("mlm", "span_corruption")} | {
    f.name: ("dino",) for f in fields(TrainConfig) if f.metadata["group"] == "vision"
}


def remarks(config: TrainConfig, plan: ParallelPlan, shape: ModelShape, device: str) -> list[str]:
    """One line each. `config` has its defaults filled in; an option at its default is never named."""
    idle = [f"note: {_flag(config, name)} has no effect: {why}" for name, why in _idle(config, plan, device)]
    return [*idle, *_unusual(config, shape)]


def _idle(config: TrainConfig, plan: ParallelPlan, device: str) -> Iterator[tuple[str, str]]:
    reasons = {
        "context": "cp is 1" if plan.cp == 1 else "",
        "pipeline_schedule": "pp is 1" if plan.pp == 1 else "",
        "attention": "a CPU has one kernel only" if device == "cpu" else "",
        "lora_alpha": "--lora-rank is 0" if not config.lora_rank else "",
        "decay": f"the schedule is {config.schedule}, not wsd" if config.schedule != "wsd" else "",
    }
    for name, objectives in OBJECTIVES.items():
        other = config.objective not in objectives
        reasons[name] = f"the objective is {config.objective}, not {' or '.join(objectives)}" if other else ""
    for f in fields(config):
        if reasons.get(f.name) and getattr(config, f.name) != f.default:
            yield f.name, reasons[f.name]


def _flag(config: TrainConfig, name: str) -> str:
    value = getattr(config, name)
    return (
        f"--{name.replace('_', '-')} {value:g}" if isinstance(value, float) else f"--{name.replace('_', '-')} {value}"
    )


def _unusual(config: TrainConfig, shape: ModelShape) -> Iterator[str]:
    if shape.position == "rope" and shape.kind != "vision" and config.sequence > shape.longest_sequence:
        times = f"{config.sequence / shape.longest_sequence:.3g} times"
        yield f"note: sequences of {config.sequence:,} tokens are {times} the model's context of {shape.context:,}"
    if config.lora_rank > shape.hidden:
        yield f"note: --lora-rank {config.lora_rank} is above the model's width of {shape.hidden}, which gains nothing"


def data_line(config: TrainConfig, samples: Samples, objective: Objective) -> str:
    """What is read, how much of it a step takes, and how often the run sees each source."""
    steps, parts = config.steps, samples.parts
    each, noun = objective.tokens_per_sample, objective.samples_are
    epochs = [f"{steps * config.batch * part.share / part.samples:.2f} epochs" for part in parts]
    sources = [f"{n} of {part.where} ({part.samples:,} {noun})" for n, part in zip(epochs, parts, strict=True)]
    seen = f"{epochs[0]} in {steps} steps" if len(parts) == 1 else f"in {steps} steps: {', '.join(sources)}"
    return (
        f"data: {sum(part.samples for part in parts):,} {noun} of {each:,} tokens; {config.batch} {noun} = "
        f"{config.batch * each:,} tokens per step, micro-batches of {config.micro_batch}; {seen}"
    )
