"""One training job as the predictor sees it: all that decides the time and memory of a step, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.predict.hardware import Cluster
from trainwright.predict.objective import (
    GLOBAL_CROPS,
    NEXT_TOKEN,
    Objective,
    head_tokens,
    passes,
    tokens_per_sample,
)
from trainwright.predict.profiles import Profile
from trainwright.train.models.shape import ModelShape
from trainwright.train.parallel.plan import WHOLE_SEQUENCES, ParallelPlan
from trainwright.train.parallel.traffic import Traffic, context_traffic


@dataclass(frozen=True, slots=True)
class Batch:
    """Sequences per data rank: `micro` at a time, `count` microbatches per step."""

    sequence: int  # tokens
    micro: int
    count: int

    def sequences(self, plan: ParallelPlan) -> int:
        """Sequences of one step, over all data ranks."""
        return self.micro * self.count * plan.data


@dataclass(frozen=True, slots=True)
class Setup:
    """Model, cluster, parallel plan, batch, trainer profile and numeric options of one job."""

    shape: ModelShape
    cluster: Cluster
    plan: ParallelPlan
    batch: Batch
    profile: Profile
    precision: str = "bf16"  # bf16 | fp8 | fp4 | fp32
    zero: int = 3  # ZeRO stage over shard x cp: 0 nothing, 1 optimizer state, 2 and gradients, 3 and weights is sharded
    rowwise: bool = False  # fp8 with one scale per row in another trainer than ours
    float8: str = ""  # our trainer's scales: rowwise | blockwise | mxfp8; empty: one per tensor
    float8_gather: bool = False  # our trainer gathers float8 weights
    recompute: str = "none"  # none | selective | full
    recompute_part: float = 1.0  # share of the layers that recompute
    offload_part: float = 0.0  # share of the layers whose activations wait in host memory
    zero_bubble: bool = False  # the pipeline puts weight gradients off
    frozen: bool = False  # only adapters are trained: no weight gradients
    adapter_rank: int = 0  # of those adapters, where it is known
    base_bits: int = 16  # of a frozen weight: 4 for QLoRA
    optimizer: str = "adamw"  # adamw | adamw8bit | muon
    context: str = "ring"  # how context ranks meet each other's keys: gather | all-to-all | ring
    balanced: bool = False  # every expert receives the same number of tokens, as benchmarks enforce
    objective: Objective = NEXT_TOKEN
    packed: int = 0  # mean length of the documents packed into one sequence; 0: one document per sequence

    @property
    def tokens(self) -> int:
        """Tokens of one step, over all GPUs."""
        return self.batch.sequences(self.plan) * self.sample_tokens

    @property
    def sample_tokens(self) -> int:
        """Tokens that are trained per sample: a sequence, both sides of T5, the crops of an image."""
        return tokens_per_sample(self.shape, self.batch.sequence, self.objective)

    @property
    def local_tokens(self) -> float:
        """Tokens of one microbatch on one rank; context parallelism splits the sequence."""
        return self.batch.micro * self.sample_tokens / self.plan.cp

    @property
    def head_rows(self) -> float:
        """Rows of one microbatch that go through the output head on one rank."""
        return self.batch.micro * head_tokens(self.shape, self.batch.sequence, self.objective) / self.plan.cp

    @property
    def frozen_rows(self) -> float:
        """As `head_rows`, of a teacher or a reference: forward only."""
        share = {"dino": GLOBAL_CROPS / (GLOBAL_CROPS + self.objective.local_crops), "dpo": 1.0}
        return self.head_rows * share.get(self.objective.name, 0.0)

    @property
    def watched_share(self) -> float:
        """Tokens that a teacher or a reference sees, forward only, over those that are trained; 0: there is neither."""
        every = passes(self.shape, self.batch.sequence, self.objective)
        return sum(one.tokens for one in every if not one.backward) / self.sample_tokens

    @property
    def traffic(self) -> Traffic:
        """What context ranks move and keep in one layer."""
        return context_traffic(self.context, self.shape, self.plan, self.local_tokens)

    @property
    def splits_sequence(self) -> bool:
        """Whether tensor-parallel ranks share the sequence between the products of a layer."""
        whole = self.profile.own and self.shape.kind in WHOLE_SEQUENCES
        return self.profile.sequence and not whole

    @property
    def scales(self) -> str:
        """The fp8 recipe where it has finer scales than one per tensor: rowwise | blockwise | mxfp8."""
        return self.float8 or ("rowwise" if self.rowwise else "")

    @property
    def timed_products(self) -> bool:
        """Whether the trainer takes the fastest algorithm of each linear layer."""
        return self.profile.timed_products and self.precision == "bf16" and self.plan.tp * self.plan.pp == 1

    @property
    def expert_tp(self) -> int:
        """Tensor-parallel ranks that share one expert; 1 where experts are spread over those ranks too."""
        return self.plan.tp if self.plan.data * self.plan.cp % self.plan.ep == 0 else 1

    @property
    def expert_replicas(self) -> float:
        """Ranks that hold the same experts, and can share their optimizer state."""
        plan = self.plan
        return max(1.0, plan.data * plan.cp * plan.tp / (plan.ep * self.expert_tp))

    @property
    def attended(self) -> int:
        """How many tokens back attention reaches: in a packed sequence, to the start of the document."""
        return min(self.batch.sequence, self.packed) if self.packed else self.batch.sequence


def zero_stage(plan: ParallelPlan, profile: Profile) -> int:
    """The ZeRO stage a trainer uses for a plan: none without sharding, 1 for a distributed optimizer, 3 for FSDP."""
    if plan.shard * plan.cp == 1:
        return 0
    return 1 if profile.data == "zero1" else 3
