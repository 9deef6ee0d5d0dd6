"""What each rank of a pipeline does, in order: the 1F1B schedule, the interleaved one where a rank holds several
stages, and for both a zero-bubble variant; what they need, and the bubble that they leave. Free of torch, so that the
control side checks and predicts with the same code."""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.errors import UserError
from trainwright.train.parallel.plan import ParallelPlan

ZERO_BUBBLE = "zero-bubble"


@dataclass(frozen=True, slots=True)
class Action:
    kind: str  # forward | backward | weights (their gradients, where the backward leaves them out)
    chunk: int  # which of the rank's stages
    microbatch: int


def schedule(rank: int, ranks: int, chunks: int, microbatches: int, zero_bubble: bool = False) -> list[Action]:
    """What one rank does, in order: fill the pipeline, then one forward and one backward in turn, then drain it.

    With `zero_bubble`, a backward sends the gradient on before it computes those of its weights. Later stages put more
    of these off, so that all hold as many activations as the first one, and do them while the pipeline drains: ZB-H1 of
    arXiv 2401.10241, with a third of 1F1B's bubble where the three parts take as long."""
    if chunks > 1 and microbatches % ranks:
        fix = f"a --batch that makes {-(-microbatches // ranks) * ranks} micro-batches per data rank, or virtual=1"
        raise UserError(f"{microbatches} micro-batches cannot be interleaved over {ranks} pipeline ranks", fix=fix)
    total = microbatches * chunks
    ahead = ranks - rank - 1 if chunks == 1 else 2 * (ranks - rank - 1) + (chunks - 1) * ranks
    ahead = min(ahead, total)
    forward = [Action("forward", *_chunk_of(k, ranks, chunks)) for k in range(total)]
    backward = [Action("backward", chunks - 1 - c, m) for c, m in (_chunk_of(k, ranks, chunks) for k in range(total))]
    steady = [action for pair in zip(forward[ahead:], backward, strict=False) for action in pair]
    actions = forward[:ahead] + steady + backward[total - ahead :]
    return _with_weights(actions, backward, delay=rank) if zero_bubble else actions


def schedule_conflict(kind: str, plan: ParallelPlan, compiled: bool, recompute: str) -> str:
    """Why a schedule cannot run blocks that are compiled or recomputed; empty where it can."""
    if not is_zero_bubble(kind, plan) or not (compiled or recompute != "none"):
        return ""
    how = "compiled" if compiled else "recomputed"
    return f"the {ZERO_BUBBLE} schedule cannot put off the weight gradients of blocks that are {how}"


def is_zero_bubble(kind: str, plan: ParallelPlan) -> bool:
    return kind == ZERO_BUBBLE and plan.pp > 1


@dataclass(frozen=True, slots=True)
class StageTime:
    """Seconds of one micro-batch in one stage. `weights`: the gradients that the zero-bubble schedule puts off."""

    forward: float
    backward: float
    weights: float

    @property
    def total(self) -> float:
        return self.forward + self.backward + self.weights


def bubble(ranks: int, chunks: int, microbatches: int, stage: StageTime, zero_bubble: bool = False) -> float:
    """Seconds that a rank waits per step, where all stages take as long: what the schedule above leaves. With
    `zero_bubble` every rank after the first fills a part of its wait with weight gradients, as far as there are enough
    micro-batches, and no more at a time than the step of its neighbour that it waits for."""
    if not zero_bubble:
        return (ranks - 1) * stage.total
    filled = min(stage.weights, stage.backward)
    if chunks == 1 or microbatches <= ranks:
        filled = min(filled, stage.forward)
    return (ranks - 1) * (stage.forward + stage.backward) - min(ranks - 1, microbatches - 1) * filled


def _with_weights(actions: list[Action], backward: list[Action], delay: int) -> list[Action]:
    """The same actions, with the weights of each backward after `delay` further ones."""
    weights = [Action("weights", action.chunk, action.microbatch) for action in backward]
    due = dict(zip(backward[delay:], weights, strict=False))
    together = [each for action in actions for each in (action, due.get(action)) if each is not None]
    return together + weights[max(0, len(weights) - delay) :]


def _chunk_of(k: int, ranks: int, chunks: int) -> tuple[int, int]:
    """(chunk, micro-batch) of the k-th forward: as many micro-batches as ranks for one chunk, then for the next."""
    if chunks == 1:
        return 0, k
    lap, within = divmod(k, ranks * chunks)
    return within // ranks, lap * ranks + within % ranks


def stage_layers(stage: int, stages: int, layers: int) -> range:
    """The layers of one stage, as even as can be; early stages get the extra ones because the last has the head."""
    each, extra = divmod(layers, stages)
    start = stage * each + min(stage, extra)
    return range(start, start + each + (stage < extra))
