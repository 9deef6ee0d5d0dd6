"""A parallel plan: how a model and a batch are spread over GPUs, and whether that divides."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from trainwright.errors import UserError, did_you_mean
from trainwright.train.models.shape import ModelShape

RECOMPUTE = ("none", "selective", "full")


@dataclass(frozen=True, slots=True)
class Plan:
    """Degrees multiply to the GPU count. `replicate` copies of `shard`-way sharded state, each over tp x pp x cp."""

    replicate: int = 1
    shard: int = 1
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    interleave: int = 1
    zero: int = 3  # 0: plain replicas; 1: moments; 2: and gradients; 3: and weights are sharded

    @property
    def dp(self) -> int:
        return self.replicate * self.shard

    @property
    def gpus(self) -> int:
        return self.dp * self.tp * self.pp * self.cp

    def but(self, **changes: int) -> Plan:
        return replace(self, **changes)

    def text(self) -> str:
        """As a user writes it: the degrees that are not one."""
        names = ("replicate", "shard", "tp", "pp", "cp", "ep", "interleave")
        return ",".join(f"{name}={getattr(self, name)}" for name in names if getattr(self, name) != 1) or "single"


@dataclass(frozen=True, slots=True)
class Batch:
    """Sequences: `micro` of them a rank at a time, `count` times a step."""

    seq: int
    micro: int
    count: int

    def sequences(self, plan: Plan) -> int:
        return self.micro * self.count * plan.dp


def parse_plan(text: str, gpus: int) -> Plan:
    """From `shard=16,tp=8`; what is left of the GPUs goes to `shard`, or to `replicate` where shard is given."""
    names = {"dp": "replicate", "fsdp": "shard", "vp": "interleave"}
    known = {f.name for f in fields(Plan)} | set(names)
    given: dict[str, int] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        key, _, value = part.partition("=")
        if key not in known:
            raise UserError(
                f"no parallel degree {key!r}",
                where="--parallel",
                fix=did_you_mean(key, known) or ", ".join(sorted(known)),
            )
        if not value.isdigit() or (int(value) < 1 and key != "zero"):
            raise UserError(
                f"{key}={value} is not a whole number above 0", where="--parallel", fix=f"{key}=1 is the least"
            )
        given[names.get(key, key)] = int(value)
    return complete(given, gpus)


def complete(given: dict[str, int], gpus: int) -> Plan:
    """Fill in the data-parallel degree so that the plan uses every GPU, or say why none does."""
    inner = given.get("tp", 1) * given.get("pp", 1) * given.get("cp", 1)
    if gpus % inner:
        raise UserError(
            f"tp x pp x cp = {inner} does not divide {gpus} GPUs",
            where="--parallel",
            fix=f"use {gpus // inner * inner or inner} GPUs, or degrees whose product is one of {divisors(gpus)}",
        )
    dp = gpus // inner
    if "shard" in given:
        given.setdefault("replicate", dp // given["shard"] if dp % given["shard"] == 0 else 0)
    elif "replicate" in given:
        given["shard"] = dp // given["replicate"] if dp % given["replicate"] == 0 else 0
    else:
        given["shard"] = dp
    if given.get("replicate", 1) * given["shard"] != dp:
        asked = max(1, given.get("replicate", 1)) * max(1, given["shard"])
        raise UserError(
            f"{gpus} GPUs / (tp x pp x cp = {inner}) leave {dp} data ranks, the plan names {asked}",
            where="--parallel",
            fix=f"shard={dp}, or a shard that divides {dp}",
        )
    given.setdefault("zero", 3 if given["shard"] * given.get("cp", 1) > 1 else 0)
    return Plan(**given)


def check_fit(plan: Plan, shape: ModelShape, seq: int) -> list[str]:
    """Every reason why this plan cannot run this model, with the numbers; empty where it can."""
    found = []
    if shape.heads % plan.tp:
        found.append(f"tp={plan.tp} does not divide {shape.heads} attention heads")
    if shape.layers < plan.pp * plan.interleave:
        found.append(f"pp={plan.pp} x interleave={plan.interleave} is more than {shape.layers} layers")
    if seq % (2 * plan.cp) and plan.cp > 1:
        found.append(f"cp={plan.cp} needs a sequence that {2 * plan.cp} divides; {seq} is not")
    if plan.ep > 1 and (not shape.experts or shape.experts % plan.ep):
        found.append(f"ep={plan.ep} does not divide {shape.experts} experts")
    return found


def divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]
