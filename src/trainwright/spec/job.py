"""The jobs of a spec: what is trained, on how many nodes, spread how. Recipes are written in the same words."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from trainwright.spec.part import Part
from trainwright.spec.units import Count, CountOrZero, Seconds
from trainwright.spec.variables import Secret, SecretVariable, Texts, Variables
from trainwright.spec.words import Argument, Name, Word

JobKind = Literal["pytorchjob", "jobset", "trainjob", "mpijob", "rayjob"]


class Batch(Part):
    """How much one optimizer step sees."""

    tokens: Count | None = Field(None, description="Tokens per step over the whole cluster, such as 4M.")
    sequences: int | None = Field(None, ge=1, description="Sequences per step over the whole cluster.")
    micro_batch: int | None = Field(None, ge=1, description="Sequences that a GPU works on at once.")

    @model_validator(mode="after")
    def _one_size(self) -> Batch:
        if self.tokens is not None and self.sequences is not None:
            raise ValueError("a batch takes one of tokens and sequences")
        return self


class Parallel(Part):
    """How a model is spread over GPUs. What is not written is 1; `shard` or `replicate` takes the rest."""

    replicate: int | None = Field(None, ge=1, description="Copies of the model (data parallel).")
    shard: int | None = Field(None, ge=1, description="GPUs that one copy is sharded over (FSDP).")
    tp: int = Field(1, ge=1, description="Tensor parallel size.")
    pp: int = Field(1, ge=1, description="Pipeline stages.")
    cp: int = Field(1, ge=1, description="Context parallel size.")
    ep: int = Field(1, ge=1, description="Expert parallel size.")
    virtual_stages: int = Field(1, ge=1, description="Model chunks per pipeline stage (interleaved schedule).")


class Checkpoint(Part):
    """When and where training state is saved."""

    every: Seconds | None = Field(None, description="Time between checkpoints, such as 15min.")
    steps: int | None = Field(None, ge=1, description="Steps between checkpoints.")
    to: Word | None = Field(None, description="Folder or s3:// address on shared storage.")
    keep: int | None = Field(None, ge=1, description="How many of the newest are kept.")

    @model_validator(mode="after")
    def _one_interval(self) -> Checkpoint:
        if self.every is not None and self.steps is not None:
            raise ValueError("checkpoint takes one of every and steps")
        return self


class Optimizer(Part):
    """The learning-rate schedule and its numbers."""

    lr: float | None = Field(None, gt=0, allow_inf_nan=False, description="Peak learning rate.")
    warmup: CountOrZero | None = Field(None, description="Warm-up steps.")
    decay: CountOrZero | None = Field(None, description="Steps over which the rate decays. Default: all.")
    schedule: Literal["cosine", "linear", "wsd", "constant"] | None = Field(None, description="Shape of the schedule.")


class Job(Part):
    """A training job: a recipe or a script, on so many nodes of a queue."""

    name: Name = Field(description="Name of the job.")
    recipe: Word | None = Field(None, description="A recipe (see `trainwright recipes list`) or a path to your own.")
    script: Word | None = Field(None, description="A script of your own, run with torchrun instead of a recipe.")
    command: tuple[Argument, ...] = Field(
        (), description="A command in words, instead of a recipe or script. Nothing is shipped; no shell reads it."
    )
    launcher: Literal["torchrun", "srun", "plain"] | None = Field(
        None,
        description="How a command starts: torchrun (default), srun (one Slurm task per rank), plain (once per node).",
    )
    args: tuple[Argument, ...] = Field((), description="Arguments passed to the script or trainer.")
    model: Word | None = Field(None, description="Model shape, when it is not the recipe's.")
    objective: Word | None = Field(
        None, description="What our trainer trains for: mlm, sft, dino… Default: the model's."
    )
    queue: Word | None = Field(None, description="Queue it runs on. Default: the first.")
    nodes: int | None = Field(None, ge=1, description="Nodes. Default: all of the queue.")
    processes: int | None = Field(None, ge=1, description="Processes per node. Default: one per GPU.")
    parallel: Parallel | None = Field(None, description="How the model is spread over GPUs.")
    batch: Batch | None = Field(None, description="How much one step sees.")
    sequence: int | None = Field(None, ge=1, description="Context length in tokens.")
    precision: Literal["bf16", "fp8", "fp32"] | None = Field(None, description="Arithmetic of the matrix products.")
    float8: Literal["tensorwise", "rowwise", "blockwise", "mxfp8"] | None = Field(
        None, description="How our trainer scales fp8 products; it means precision fp8."
    )
    recompute: Literal["none", "selective", "full"] | None = Field(
        None, description="Activation checkpointing: what is computed again instead of kept."
    )
    optimizer: Optimizer | None = Field(None, description="Learning rate and its schedule.")
    data: Word | None = Field(None, description="Folder or s3:// address of prepared tokens, or builtin:stdlib.")
    workers: int | None = Field(None, ge=0, description="Loader processes per rank.")
    steps: Count | None = Field(None, description="Optimizer steps.")
    checkpoint: Checkpoint | None = Field(None, description="When and where state is saved.")
    container: Word | None = Field(None, description="Container image or .sqsh file.")
    mounts: tuple[Word, ...] = Field((), description="Folders mounted into the container: /fsx or /host:/inside.")
    env: Variables = Field(
        {},
        description="Environment variables, beside those Trainwright computes. A secret is referenced: "
        "{secret: {env: NAME}} or {secret: {file: PATH}}.",
    )
    secrets: Texts = Field(
        {},
        description="Environment variables from secrets that the cluster keeps: NAME/KEY of a Kubernetes Secret, on "
        "platform batch the ARN of a secret or parameter.",
    )
    kind: JobKind | None = Field(None, description="Platforms eks and hyperpod-eks: kind of the job.")
    time: Seconds | None = Field(None, description="Time limit.")
    account: Word | None = Field(None, description="Slurm account.")
    qos: Word | None = Field(None, description="Slurm quality of service.")
    constraint: Word | None = Field(None, description="Slurm node feature.")
    reservation: Word | None = Field(None, description="Slurm reservation.")
    array: Word | None = Field(None, description="Slurm array, such as 0-3%2.")
    after: Word | None = Field(None, description="Job that must succeed first.")
    requeue: bool = Field(True, description="Come back after a node failure.")
    health: bool = Field(False, description="Check every node before the ranks start.")

    @model_validator(mode="after")
    def _recipe_or_script(self) -> Job:
        if sum(map(bool, (self.recipe, self.script, self.command))) > 1:
            raise ValueError("a job takes one of recipe, script and command")
        if self.launcher is not None and not (self.command or self.script):
            raise ValueError("launcher goes with command or script")
        if twice := sorted(self.env.keys() & self.secrets.keys()):
            raise ValueError(f"{twice[0]} is in env and in secrets: name it once")
        return self

    @property
    def texts(self) -> dict[str, str]:
        """The variables of `env` whose values stand in the spec."""
        return {name: value for name, value in self.env.items() if isinstance(value, str)}

    @property
    def referenced(self) -> dict[str, Secret]:
        """The variables of `env` whose values are kept elsewhere."""
        return {name: value.secret for name, value in self.env.items() if isinstance(value, SecretVariable)}
