"""A recipe: a model, how it is spread over GPUs, its batch, schedule and data, in one short file. It knows nothing of
schedulers: every launch is derived from it."""

from __future__ import annotations

from dataclasses import fields
from typing import Literal

from pydantic import Field, model_validator

from trainwright.errors import did_you_mean
from trainwright.recipes.framework import DebugSettings, Framework, Settings, framework
from trainwright.spec.job import Batch, Checkpoint, Parallel
from trainwright.spec.part import Part
from trainwright.spec.units import Count, CountOrZero
from trainwright.spec.validate import misplaced
from trainwright.train.config import TrainConfig


class Optimization(Part):
    """The optimizer and its schedule."""

    lr: float = Field(gt=0, allow_inf_nan=False, description="Peak learning rate.")
    warmup: CountOrZero = Field(0, description="Warm-up steps.")
    schedule: Literal["cosine", "linear", "wsd", "constant"] = Field("cosine", description="Shape of the schedule.")
    final: float = Field(0.1, ge=0, le=1, description="Learning rate at the end, as a fraction of the peak.")
    betas: tuple[float, float] = Field((0.9, 0.95), description="AdamW's two decay rates.")
    weight_decay: float = Field(0.1, ge=0, description="AdamW's weight decay.")
    clip: float = Field(1.0, gt=0, description="Largest gradient norm.")


class Spread(Parallel):
    """How the model is spread over GPUs; `rest` names the axis that takes the GPUs which are left."""

    rest: Literal["replicate", "shard"] = Field("shard", description="The axis that takes the GPUs which are left.")


class Foreign(Settings):
    """Another trainer: a framework that we know, with what this recipe says differently, or any command."""

    framework: str | None = Field(None, description="A known framework (`trainwright recipes frameworks`).")
    command: tuple[str, ...] = Field((), description="Or any command: what each rank runs, words apart.")
    launcher: Literal["torchrun", "srun", "plain"] | None = Field(
        None,
        description="How a command starts: torchrun (default), srun (one Slurm task per rank), plain (once per node).",
    )
    entry: tuple[str, ...] = Field((), description="Another program of the framework than its usual one.")
    container: str | None = Field(None, description="The image it needs.")
    scripts: tuple[str, ...] = Field((), description="Further programs of ours that go with the run.")
    debug: DebugSettings = Field(DebugSettings(), description="Options of the debug size.")

    @model_validator(mode="after")
    def _framework_or_command(self) -> Foreign:
        if bool(self.framework) == bool(self.command):
            raise ValueError("another trainer is a `framework` or a `command`, and one of them")
        if self.framework and self.launcher:
            raise ValueError("'launcher' goes with `command`; a framework says itself how it is started")
        own = self.model_fields_set - {"command", "container", "framework", "launcher"}
        if self.command and own:
            raise ValueError(f"{sorted(own)[0]!r} goes with `framework`; a command has its options in it")
        return self

    @property
    def known(self) -> Framework | None:
        """The framework; None for a command."""
        return framework(self.framework) if self.framework else None

    @property
    def image(self) -> str | None:
        """The image: the recipe's, or the framework's."""
        known = self.known
        return self.container or (known.container if known else None)


class Recipe(Part):
    """One training job, as data."""

    title: str = Field(description="What it trains, in a few words.")
    model: str | None = Field(None, description="Model shape (`trainwright catalog list --kind models`).")
    objective: str | None = Field(None, description="What it is trained for (default: the usual one of such a model).")
    options: dict[str, str | bool | int | float] = Field(
        {}, description="Further options of our trainer, as in `trainwright train --help`: lora_rank, base, holdout…"
    )
    trainer: Literal["trainwright"] | Foreign = Field("trainwright", description="Our trainer, or another one.")
    parallel: dict[str, Spread] = Field(
        {"default": Spread()}, description="How it is spread, by instance type or family, and `default`."
    )
    sequence: int = Field(2048, ge=1, description="Context length in tokens.")
    batch: Batch = Field(Batch(sequences=1), description="How much one step sees.")
    precision: Literal["bf16", "fp16", "fp8", "fp32"] = Field(
        "bf16", description="Arithmetic of the matrix products; fp16 is for frameworks without bf16."
    )
    recompute: Literal["none", "selective", "full"] = Field("none", description="Activation checkpointing.")
    optimizer: Optimization = Field(Optimization(lr=3e-4), description="Optimizer and schedule.")
    steps: Count = Field(description="Optimizer steps.")
    data: str = Field("builtin:stdlib", description="Prepared tokens: a folder, s3:// address or builtin:stdlib.")
    checkpoint: Checkpoint = Field(Checkpoint(steps=500, keep=3), description="When state is saved.")
    hardware: str = Field("", description="What it was written for.")
    expected: str = Field("", description="What to expect of it: loss, tokens/s, where measured.")
    source: str = Field("", description="Where its numbers come from.")
    reference: tuple[str, ...] = Field((), description="The reference's test cases that it stands for.")
    avoids: tuple[str, ...] = Field((), description="Mistakes of those test cases that it does not have.")

    @model_validator(mode="after")
    def _sensible(self) -> Recipe:
        if self.optimizer.warmup >= self.steps and self.optimizer.warmup:
            what = f"warmup ({self.optimizer.warmup}) is not shorter than the run ({self.steps} steps)"
            raise misplaced(what, "optimizer", "warmup")
        every = self.checkpoint.steps
        if every is not None and every > self.steps:
            what = f"no checkpoint is ever reached: every {every} steps of a run of {self.steps}"
            raise misplaced(what, "checkpoint", "steps")
        if self.trainer == "trainwright" and self.model is None:
            raise ValueError("a recipe for our trainer names a model")
        if self.trainer == "trainwright" and self.precision == "fp16":
            raise misplaced("our trainer has no fp16, which needs its loss scaled", "precision", fix="use bf16")
        for name, value in self.options.items():
            self._check_option(name, value)
        return self

    def _check_option(self, name: str, value: str | bool | int | float) -> None:
        """Our trainer has that option, and its value is of that kind."""
        usual = {one.name: getattr(TrainConfig(), one.name) for one in fields(TrainConfig)}
        if self.trainer != "trainwright":
            what = f"`options` are those of our trainer, and {name!r} is given to another one"
            raise misplaced(what, "options", name, fix="write it under `trainer.options`")
        if name not in usual:
            what = f"our trainer has no option {name!r}"
            raise misplaced(what, "options", name, fix=did_you_mean(name, usual) or "see `trainwright train --help`")
        kind = type(usual[name])
        whole = kind is not float and isinstance(value, kind) and isinstance(value, bool) == (kind is bool)
        number = kind is float and isinstance(value, int | float) and not isinstance(value, bool)
        if usual[name] is not None and not whole and not number:
            word = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}.get(kind)
            if word is not None:
                raise misplaced(f"{name} takes {word}, not {value!r}", "options", name)

    def spread(self, instance: str | None) -> Spread:
        """The parallel plan for an instance type: by its name, its family, or the default."""
        plain = (instance or "").removeprefix("ml.")
        for key in (plain, plain.partition(".")[0], "default"):
            if key in self.parallel:
                return self.parallel[key]
        return Spread()

    def global_sequences(self) -> int:
        """Sequences one optimizer step sees, at least one."""
        if self.batch.sequences is not None:
            return self.batch.sequences
        return max(1, (self.batch.tokens or self.sequence) // self.sequence)
