"""One concrete job: everything that check, predict, plan, submit and report need to know about it, decided once. Every
value knows its origin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from trainwright.catalog.environment import EnvVar
from trainwright.catalog.instances import InstanceType
from trainwright.errors import UserError
from trainwright.jobs.adapters import NO_ADAPTERS, Adapters
from trainwright.jobs.origin import Decision, JobProblem
from trainwright.recipes.model import Recipe
from trainwright.spec.job import Checkpoint, Job
from trainwright.spec.load import LoadedSpec
from trainwright.spec.model import Queue, Spec
from trainwright.train.models.shape import ModelShape
from trainwright.train.parallel.plan import CONTEXTS, ParallelPlan

Trainer = Literal["trainwright", "foreign", "script"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """On how much of the cluster a job runs."""

    queue: Queue
    instance: InstanceType | None  # None on platforms without instance types
    nodes: int
    processes: int  # per node: one rank each
    gpus: int  # per node
    cpus: int  # per process; 0: not known before the job starts

    @property
    def ranks(self) -> int:
        return self.nodes * self.processes


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerSettings:
    """Learning rate and schedule; what is None is the trainer's own default."""

    lr: float | None = None
    warmup: int | None = None
    schedule: str | None = None
    decay: int | None = None
    final: float | None = None  # learning rate at the end, as a fraction of the peak
    betas: tuple[float, float] | None = None
    weight_decay: float | None = None
    clip: float | None = None
    kind: str = "adamw"  # adamw | adamw8bit | muon


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What is trained and how: complete for our trainer, as far as the spec says it for any other."""

    model: str | None  # None: another trainer that knows its model itself
    model_file: Path | None  # the file of this machine that describes the model of our trainer; it travels with the run
    shape: ModelShape | None
    objective: str | None  # None: the usual one of that kind of model, or another trainer's own
    options: Mapping[str, str | bool | int | float]  # further options of our trainer, from the recipe
    plan: ParallelPlan
    sequence: int
    batch: int  # sequences per step, over all ranks
    micro_batch: int | None  # None: the trainer's own choice
    precision: str | None  # None: the trainer's own choice, by device
    float8: str | None  # how our trainer scales fp8; None: one scale per tensor
    recompute: str | None
    steps: int | None
    data: str
    optimizer: OptimizerSettings
    checkpoint: Checkpoint | None
    adapters: Adapters = NO_ADAPTERS
    context: str = CONTEXTS[0]  # how context ranks of our trainer meet each other's keys
    offload_activations: float = 0.0  # share of the layers whose activations wait in host memory
    pipeline_schedule: str = "1f1b"

    @property
    def model_copy(self) -> str:
        """The name of that file in the run's code folder; the trainer calls the model by it."""
        return f"{self.shape.name}.json" if self.model_file is not None and self.shape is not None else ""

    @property
    def tokens_per_step(self) -> int:
        return self.batch * self.sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """The software a rank runs in."""

    container: str = ""
    mounts: tuple[str, ...] = ()
    ships_code: bool = True  # the code travels in the run folder; else the image holds it
    packs_code: bool = False  # an own script goes to the pods as an archive that the cluster keeps
    code_store: str = ""  # the place in S3 that the archive goes through; empty: a ConfigMap
    carried: tuple[str, ...] = ()  # words of the command that name files of this machine; their folder goes along
    venv: str = ""  # the virtual environment on the nodes; empty: their own Python


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedJob:
    """A job of a spec, ready to be predicted, rendered and submitted."""

    name: str
    spec: Spec  # the whole spec, with its defaults filled in
    job: Job  # as written, with its defaults filled in: scheduler options, environment, secrets
    trainer: Trainer
    recipe: Recipe | None
    placement: Placement
    training: Training | None  # None: a script that says nothing about what it trains
    runtime: Runtime
    environment: tuple[EnvVar, ...]
    run_root: str  # the folder of the cluster that run folders go to; empty: it has no shared one
    base: Path  # relative paths of the job start here
    decisions: Mapping[str, Decision] = field(default_factory=dict)

    @property
    def ranks(self) -> int:
        return self.placement.ranks


@dataclass(frozen=True, slots=True)
class Resolution:
    """A resolved job, or every reason why there is none."""

    loaded: LoadedSpec
    job: ResolvedJob | None
    problems: tuple[JobProblem, ...] = ()
    decisions: Mapping[str, Decision] = field(default_factory=dict)  # what could be decided all the same

    def require(self) -> ResolvedJob:
        """The job; the first problem as an error where there is none. Verbs run `check` first, which names them all."""
        if self.job is None:
            first = self.problems[0]
            raise UserError(
                first.what, where=first.span.at("") if first.span else self.loaded.where(*first.path), fix=first.fix
            )
        return self.job
