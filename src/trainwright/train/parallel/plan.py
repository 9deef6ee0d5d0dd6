"""How a model is spread over the ranks, and whether that can work. Free of torch: `check` and `predict` use it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

from trainwright.errors import UserError, did_you_mean
from trainwright.train.models.shape import ModelShape

SINGLE = "single"
SHORT = {"dp": "replicate", "ddp": "replicate", "fsdp": "shard", "tp": "tensor", "pp": "pipeline", "cp": "context"}


@dataclass(frozen=True, slots=True)
class Plan:
    """Ranks along each axis of one mesh; tensor peers are neighbours, pipeline stages lie furthest apart."""

    replicate: int = 1  # whole copies of the (sharded) model
    shard: int = 1  # ranks over which parameters, gradients and optimizer state are split
    tensor: int = 1  # ranks that share each layer, and the sequence between its products
    pipeline: int = 1  # stages
    context: int = 1  # ranks that share each sequence
    virtual: int = 1  # stages a rank holds; more than 1: the interleaved schedule

    @property
    def world(self) -> int:
        return self.replicate * self.shard * self.tensor * self.pipeline * self.context

    @property
    def data(self) -> int:
        """Ranks that read different samples."""
        return self.replicate * self.shard

    @classmethod
    def parse(cls, text: str) -> Plan:
        """A plan from `shard=2,tp=2`; `single` or an empty text is one rank."""
        text = "" if text.strip() == SINGLE else text
        known = [f.name for f in fields(cls)]
        values: dict[str, int] = {}
        for item in filter(None, (part.strip() for part in text.split(","))):
            name, _, number = (word.strip() for word in item.partition("="))
            name = SHORT.get(name, name)
            if name not in known:
                fix = did_you_mean(name, [*known, *SHORT]) or f"the axes are {', '.join(known)}"
                raise UserError(f"a plan has no axis {name!r}", where=text, fix=fix)
            if not number.isdecimal() or int(number) < 1:
                raise UserError(f"{name} must be a whole number from 1 up, not {number!r}", where=text)
            if name in values:
                raise UserError(f"{name} is given twice", where=text)
            values[name] = int(number)
        return cls(**values)

    def __str__(self) -> str:
        parts = [f"{f.name}={getattr(self, f.name)}" for f in fields(self) if getattr(self, f.name) > 1]
        return ",".join(parts) or SINGLE

    def check(self, shape: ModelShape, world: int, seq: int, batch: int) -> None:
        """Raise a UserError that names the two numbers which disagree, and a plan that would work.

        `batch` is the global batch in samples; 0 leaves it unchecked."""
        trouble = self.trouble(shape, world, seq, batch)
        if trouble:
            raise UserError(trouble, where=f"plan {self}", fix=self._fix(shape, world, seq, batch))

    def _fix(self, shape: ModelShape, world: int, seq: int, batch: int) -> str:
        """The nearest plan that works; where none does with this batch, one and a batch for it."""
        other = working_plan(self, shape, world, seq, batch)
        if other:
            return f"for example: {other}"
        other = working_plan(self, shape, world, seq, 0)
        if other is None:
            return "no plan fits this model and world"
        return f"for example: {other} with --batch {max(1, round(batch / other.data)) * other.data}"

    def trouble(self, shape: ModelShape, world: int, seq: int, batch: int) -> str:
        """The first thing that cannot work, or an empty string."""
        stages = self.pipeline * self.virtual
        cuts = 2 * self.context if self.context > 1 else 1
        divisions = [
            (shape.heads, self.tensor, "attention heads", "tensor"),
            (shape.kv_heads, self.tensor, "key-value heads", "tensor"),
            (shape.ffn, self.tensor, "MLP columns", "tensor"),
            (seq, cuts, "tokens of a sequence", "2 x context"),
            (seq, cuts * self.tensor, "tokens of a sequence", f"{'2 x context x ' if cuts > 1 else ''}tensor"),
            (batch, self.data, "samples of the global batch", "replicate x shard"),
        ]
        if self.world != world:
            return f"the plan needs {self.world} ranks, but there are {world}"
        if stages > shape.layers:
            return f"{stages} pipeline stages, but {shape.name} has only {shape.layers} layers"
        if self.virtual > 1 and self.pipeline == 1:
            return f"virtual={self.virtual} stages a rank need a pipeline, but pipeline is 1"
        if seq > shape.context and shape.position == "learned":
            return f"sequences of {seq} tokens, but {shape.name} has {shape.context} learned positions"
        for amount, parts, what, axis in divisions:
            if amount % parts:
                return f"{amount} {what} cannot be split into {parts} ({axis})"
        return ""


def working_plan(wanted: Plan, shape: ModelShape, world: int, seq: int, batch: int) -> Plan | None:
    """The plan for `world` ranks that is nearest to the wanted one and has no trouble."""
    fitting = [plan for plan in candidates(wanted, world) if not plan.trouble(shape, world, seq, batch)]
    names = [f.name for f in fields(Plan)]
    return min(fitting, key=lambda p: sum(getattr(p, n) != getattr(wanted, n) for n in names), default=None)


def candidates(wanted: Plan, world: int) -> Iterator[Plan]:
    """Plans with no more tensor, pipeline and context than wanted; the ranks that are left replicate or shard."""
    for tensor in _divisors(world, wanted.tensor):
        for pipeline in _divisors(world // tensor, wanted.pipeline):
            for context in _divisors(world // tensor // pipeline, wanted.context):
                left = world // tensor // pipeline // context
                virtual = wanted.virtual if pipeline > 1 else 1
                base = replace(wanted, tensor=tensor, pipeline=pipeline, context=context, virtual=virtual)
                keep = wanted.replicate if left % wanted.replicate == 0 else 1
                yield replace(base, replicate=keep, shard=left // keep)
                yield replace(base, replicate=left, shard=1)


def _divisors(number: int, most: int) -> list[int]:
    return [d for d in range(min(number, most), 0, -1) if number % d == 0]
