"""What a user asks the predictor: a job on EC2 instances, with some of it left open."""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.predict.objective import Objective
from trainwright.train.models.shape import ModelShape
from trainwright.train.parallel.plan import ParallelPlan


@dataclass(frozen=True, slots=True)
class PredictRequest:
    """One job. What is None is chosen by the predictor and named in its answer."""

    model: ModelShape | str  # a shape, or a name that `catalog.models.model` takes
    instance: str
    nodes: int = 1
    plan: ParallelPlan | str = ""  # text such as `shard=16,tp=8` is completed to the number of GPUs
    sequence: int | None = None  # tokens; None: the model's context
    batch_tokens: int | None = None  # per step, rounded to what the data ranks can share; None: one sequence each
    sequences: int | None = None  # per step, exactly; takes precedence over batch_tokens
    micro_batch: int | None = None  # sequences; None: the fastest that fits
    objective: Objective | str = ""  # empty: the usual one of that kind of model
    precision: str = "bf16"
    float8: str = ""  # of fp8, how our trainer scales: rowwise | blockwise | mxfp8; empty: one scale per tensor
    float8_gather: bool = False  # our trainer gathers float8 weights
    trainer: str = "trainwright"  # a profile of profiles.toml
    zero: int | None = None  # ZeRO stage; None: the trainer's
    adapter_rank: int = 0  # LoRA: only adapters of that rank are trained; 0: all weights
    base_bits: int = 16  # of the frozen weights beside adapters: 4 for QLoRA
    optimizer: str = "adamw"  # adamw | adamw8bit | muon
    context: str = ""  # cp: gather | all-to-all | ring; empty: the trainer's default
    recompute: str | None = None  # None: the least that fits
    offload_activations: float = 0.0  # share of the layers whose activations wait in host memory
    pipeline_schedule: str = "1f1b"  # 1f1b | zero-bubble
    tokens: float | None = None  # of the whole training: gives days and dollars
    region: str = "us-east-1"
    price_kind: str = "on-demand"  # on-demand | spot | capacity-block
    storage_gb_s: float | None = None  # throughput of the checkpoints' file system
    storage_usd_month: float | None = None
    checkpoint_s: float | None = None  # seconds between checkpoints; None: the best interval
    gpus_per_node: int | None = None  # that the job uses; None: all of them


@dataclass(frozen=True, slots=True)
class AdviceRequest:
    """A training for which `advise` searches machines, ways to buy them and parallel plans."""

    shape: ModelShape
    tokens: float  # of the whole training
    deadline_days: float | None = None
    budget: float | None = None  # dollars
    region: str = "us-east-1"
    instances: tuple[str, ...] = ()  # types or families; empty: every current GPU family
    price_kinds: tuple[str, ...] = ("on-demand", "capacity-block")
    sequence: int | None = None  # None: the model's context, at most 8192
    batch_tokens: int = 4_194_304
    precision: str = "bf16"
    max_nodes: int = 512

    @property
    def sequence_length(self) -> int:
        return self.sequence or min(self.shape.longest_sequence, 8192)
