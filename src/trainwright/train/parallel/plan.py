"""How a model is spread over the ranks, and whether that can work: the one plan type of trainer, predictor, recipes and
checks. Free of torch, so that the control side can use it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace

from trainwright.errors import UserError, did_you_mean
from trainwright.train.models.shape import ModelShape

SINGLE = "single"
CONTEXTS = ("gather", "all-to-all", "ring")  # how context ranks meet each other's keys
# The axes that a kind of model has beside shard and replicate.
AXES = {"decoder": ("tp", "pp", "cp"), "encoder": ("tp", "pp"), "encoder-decoder": ("tp",), "vision": ("tp",)}
WHOLE_SEQUENCES = ("encoder-decoder", "vision")  # whose tensor-parallel ranks hold whole sequences between layers
# Other words for an axis, as users of other frameworks and of earlier versions write them.
SYNONYMS = {
    "dp": "replicate", "ddp": "replicate", "fsdp": "shard", "tensor": "tp", "pipeline": "pp", "context": "cp",
    "expert": "ep", "virtual": "virtual_stages", "vp": "virtual_stages", "interleave": "virtual_stages",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ParallelPlan:
    """Ranks along each axis of one mesh; tensor peers are neighbours, pipeline stages lie furthest apart."""

    replicate: int = 1  # whole copies of the (sharded) model
    shard: int = 1  # ranks over which parameters, gradients and optimizer state are split
    tp: int = 1  # ranks that share each layer, and the sequence between its products
    pp: int = 1  # pipeline stages
    cp: int = 1  # ranks that share each sequence
    ep: int = 1  # ranks that share the experts of a layer; they are taken from the data ranks
    virtual_stages: int = 1  # model chunks per pipeline rank; more than 1: the interleaved schedule

    @property
    def world(self) -> int:
        return self.replicate * self.shard * self.tp * self.pp * self.cp

    @property
    def data(self) -> int:
        """Ranks that read different samples."""
        return self.replicate * self.shard

    @classmethod
    def parse(cls, text: str) -> ParallelPlan:
        """A plan from `shard=2,tp=2`; `single` or an empty text is one rank."""
        return cls(**parse_axes(text))

    def __str__(self) -> str:
        parts = [f"{f.name}={getattr(self, f.name)}" for f in fields(self) if getattr(self, f.name) > 1]
        return ",".join(parts) or SINGLE

    def check(self, shape: ModelShape, world: int, seq: int, batch: int) -> None:
        """Raise a UserError that names the two numbers which disagree, and a plan that would work.

        `batch` is the global batch in samples; 0 leaves it unchecked."""
        problem = self.problem(shape, world, seq, batch)
        if problem:
            raise UserError(problem, where=f"plan {self}", fix=self.fix(shape, world, seq, batch))

    def fix(self, shape: ModelShape, world: int, seq: int, batch: int) -> str:
        """The nearest plan that works; where none does with this batch, one and a batch for it. A sequence that no plan
        can run becomes the longest that this one can."""
        if _too_long(shape, seq):
            step = self.cuts(shape)
            fitting = max(1, shape.longest_sequence // step) * step
            rest = self.problem(shape, world, fitting, batch)
            return f"--sequence {fitting}" + (f", and {self.fix(shape, world, fitting, batch)}" if rest else "")
        other = working_plan(self, shape, world, seq, batch)
        if other:
            return f"for example: {other}"
        other = working_plan(self, shape, world, seq, 0)
        if other is None:
            return "no plan fits this model and world"
        return f"for example: {other} with a batch of {max(1, round(batch / other.data)) * other.data} samples"

    def problem(self, shape: ModelShape, world: int, seq: int, batch: int) -> str:
        """The first thing that cannot work, or an empty string."""
        if self.world != world:
            return f"the plan needs {self.world} ranks, but there are {world}"
        undivided = _undivided([(batch, self.data, "samples of the global batch", "data ranks")])
        return self.unsupported(shape) or self.misfit(shape, seq) or undivided

    def unsupported(self, shape: ModelShape, objective: str = "", adapters: bool = False) -> str:
        """An axis that our trainer does not have for that kind of model, that objective or for adapters; or empty."""
        known = ("shard", "replicate", *AXES[shape.kind])
        for axis in ("tp", "pp", "cp"):
            if getattr(self, axis) > 1 and axis not in known:
                return f"{axis}={getattr(self, axis)}, but {shape.kind} models have only {', '.join(known)}"
        if objective == "dpo" and self.tp * self.pp * self.cp > 1:
            return f"plan {self}, but DPO trains a model beside its reference, and only shards or replicates them"
        if adapters and self.tp > 1 and shape.kind != "decoder":
            return f"tp={self.tp}, but LoRA of {shape.kind} models has no tensor parallelism"
        return ""

    def misfit(self, shape: ModelShape, seq: int) -> str:
        """Why this plan cannot run this model at this sequence length, whatever the batch; empty where it can."""
        stages = self.pp * self.virtual_stages
        cuts = 2 * self.cp if self.cp > 1 else 1
        if stages > shape.layers:
            return f"{stages} pipeline stages, but {shape.name} has only {shape.layers} layers"
        if self.virtual_stages > 1 and self.pp == 1:
            return f"virtual_stages={self.virtual_stages} needs a pipeline, but pp is 1"
        if _too_long(shape, seq):
            return f"sequences of {seq} tokens, but {shape.name} has {shape.longest_sequence} learned positions"
        if self.ep > 1 and not shape.experts:
            return f"ep={self.ep} spreads experts, but {shape.name} has none"
        return _undivided(
            [
                (shape.heads, self.tp, "attention heads", "tp"),
                (shape.kv_heads, self.tp, "key-value heads", "tp"),
                (shape.ffn, self.tp, "MLP columns", "tp"),
                (shape.shared_ffn, self.tp, "columns of the shared expert", "tp"),
                (shape.dense_ffn, self.tp, "columns of the dense layers", "tp"),
                (seq, cuts, "tokens of a sequence", "2 x cp"),
                (seq, self.cuts(shape), "tokens of a sequence", f"{'2 x cp x ' if cuts > 1 else ''}tp"),
                (shape.experts, self.ep, "experts", "ep"),
                (self.data, self.ep, "data ranks", "ep"),
            ]
        )

    def cuts(self, shape: ModelShape) -> int:
        """The number of parts that a sequence is cut into."""
        slices = 1 if shape.kind in WHOLE_SEQUENCES else self.tp
        return slices * (2 * self.cp if self.cp > 1 else 1)

    def context_problem(self, context: str, shape: ModelShape) -> str:
        """Why context ranks cannot meet each other's keys in this way, or an empty string."""
        ranks = self.tp * self.cp
        if context == "all-to-all" and self.cp > 1 and shape.kv_heads % ranks:
            return f"{shape.kv_heads} key-value heads cannot be exchanged between {ranks} ranks (tp x cp)"
        return ""


def _too_long(shape: ModelShape, seq: int) -> bool:
    """Whether a sequence has more tokens than the model has positions; images are cut to the model's size."""
    return seq > shape.longest_sequence and shape.position == "learned" and shape.kind != "vision"


def _undivided(divisions: list[tuple[int, int, str, str]]) -> str:
    """The first amount that its parts do not divide."""
    for amount, parts, what, axis in divisions:
        if amount % parts:
            return f"{amount} {what} cannot be split into {parts} ({axis})"
    return ""


def parse_axes(text: str) -> dict[str, int]:
    """The axes that a text such as `shard=16,tp=8` names, under their own names."""
    text = "" if text.strip() == SINGLE else text
    known = [f.name for f in fields(ParallelPlan)]
    values: dict[str, int] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, number = (word.strip() for word in item.partition("="))
        name = SYNONYMS.get(name, name)
        if name not in known:
            fix = did_you_mean(name, [*known, *SYNONYMS]) or f"the axes are {', '.join(known)}"
            raise UserError(f"a parallel plan has no axis {name!r}", where=text, fix=fix)
        if not number.isdecimal() or int(number) < 1:
            raise UserError(
                f"{name}={number} is not a whole number from 1 up", where=text, fix=f"{name}=1 is the least"
            )
        if name in values:
            raise UserError(f"{name} is given twice", where=text, fix="keep one of the two")
        values[name] = int(number)
    return values


def complete(axes: Mapping[str, int], ranks: int, rest: str = "") -> ParallelPlan | None:
    """The plan with its open data axis filled in, so that it uses every rank: the axis named by `rest`, or `shard`
    unless it is given. None where no size of that axis uses exactly these ranks."""
    given = dict(axes)
    taken = ParallelPlan(**given).world
    open_axes = [axis for axis in ("shard", "replicate") if axis not in given]
    if open_axes and ranks % taken == 0:
        given[rest if rest in open_axes else open_axes[0]] = ranks // taken
    plan = ParallelPlan(**given)
    return plan if plan.world == ranks else None


def working_plan(wanted: ParallelPlan, shape: ModelShape, world: int, seq: int, batch: int) -> ParallelPlan | None:
    """The plan for `world` ranks that is nearest to the wanted one and has no problem."""
    fitting = [plan for plan in candidates(wanted, world) if not plan.problem(shape, world, seq, batch)]
    names = [f.name for f in fields(ParallelPlan)]
    return min(fitting, key=lambda p: sum(getattr(p, n) != getattr(wanted, n) for n in names), default=None)


def candidates(wanted: ParallelPlan, world: int) -> Iterator[ParallelPlan]:
    """Plans with no larger tp, pp and cp than wanted; the ranks that are left replicate or shard."""
    for tp in _divisors(world, wanted.tp):
        for pp in _divisors(world // tp, wanted.pp):
            for cp in _divisors(world // tp // pp, wanted.cp):
                left = world // tp // pp // cp
                virtual = wanted.virtual_stages if pp > 1 else 1
                ep = math.gcd(wanted.ep, left)
                base = replace(wanted, tp=tp, pp=pp, cp=cp, ep=ep, virtual_stages=virtual)
                keep = wanted.replicate if left % wanted.replicate == 0 else 1
                yield replace(base, replicate=keep, shard=left // keep)
                yield replace(base, replicate=left, shard=1)
                yield replace(base, replicate=keep, shard=left // keep, ep=1)


def _divisors(number: int, most: int) -> list[int]:
    return [d for d in range(min(number, most), 0, -1) if number % d == 0]
