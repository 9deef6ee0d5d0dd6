"""One training job as the predictor sees it: everything that decides a step, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainwright.predict.hardware import Cluster
from trainwright.predict.plan import Batch, Plan
from trainwright.predict.profiles import Profile
from trainwright.train.models.shape import ModelShape


@dataclass(frozen=True, slots=True)
class Setup:
    """Model, cluster, plan, batch and how they are run."""

    shape: ModelShape
    cluster: Cluster
    plan: Plan
    batch: Batch
    profile: Profile
    precision: str = "bf16"  # bf16 | fp8 | fp4 | fp32
    rowwise: bool = False  # fp8 with a scale for every row
    recompute: str = "none"  # none | selective | full
    recompute_part: float = 1.0  # of the layers
    frozen: bool = False  # only adapters are trained: no weight gradients
    packed: int = 0  # mean length of the documents packed into one sequence; 0: one document

    def but(self, **changes: object) -> Setup:
        return replace(self, **changes)  # type: ignore[arg-type]

    @property
    def tokens(self) -> int:
        """Tokens of one step, over all GPUs."""
        return self.batch.sequences(self.plan) * self.batch.seq

    @property
    def local_tokens(self) -> float:
        """Tokens of one microbatch on one rank; context parallelism splits the sequence."""
        return self.batch.micro * self.batch.seq / self.plan.cp

    @property
    def attended(self) -> int:
        """How far back attention looks: a packed sequence stops at the document's edge."""
        return min(self.batch.seq, self.packed) if self.packed else self.batch.seq
