"""Optimizers other than AdamW: what their state weighs beside AdamW's two fp32 moments, and what their update costs."""

from __future__ import annotations

from trainwright.catalog.models import parameter_count
from trainwright.predict.collectives import Group, all_gather
from trainwright.predict.constants import Constants
from trainwright.predict.operators import optimizer_time
from trainwright.predict.products import matmul_time, trainer_matmul_rate
from trainwright.predict.setup import Setup
from trainwright.train.models.adapter_shape import Matrix, model_matrices
from trainwright.train.models.shape import mlp_parameters

MOMENTS = 8.0  # bytes per parameter of AdamW's two fp32 moments
EIGHT_BIT = 2 * (1 + 4 / 256)  # a code each, and one fp32 scale per block of 256
ONE_MOMENT = 4.0  # Muon keeps no second moment of the matrices of the blocks
ROUNDS = 5  # of Muon's Newton-Schulz iteration
# Bytes that an update moves per parameter, neither having a kernel of its own: measured on an H200 with the 1B shape of
# docs/train/parallelism.md (108 ms and, less Muon's products, 77 ms).
MOVED = {"adamw8bit": 350.0, "muon": 340.0}


def saved_bytes(s: Setup) -> float:
    """Bytes of state per parameter that the optimizer has less than AdamW."""
    if s.optimizer == "adamw8bit":
        return MOMENTS - EIGHT_BIT
    if s.optimizer == "muon":
        return ONE_MOMENT * block_share(s)
    return 0.0


def block_share(s: Setup) -> float:
    """Share of the trained parameters that are matrices of blocks: embeddings and head keep AdamW."""
    return 1.0 if s.frozen else matrix_parameters(s) / parameter_count(s.shape)


def trained_matrices(s: Setup) -> list[tuple[int, Matrix]]:
    """(how many, each) of the matrices of the blocks that are trained, stacked experts apart: with adapters, theirs."""
    plain, rank = model_matrices(s.shape), s.adapter_rank
    if not s.frozen:
        return plain
    return [(count, narrow) for count, (out, deep) in plain for narrow in ((rank, deep), (out, rank))]


def matrix_parameters(s: Setup) -> float:
    """Parameters of the trained matrices of all blocks, experts included."""
    experts = s.shape.experts * mlp_parameters(s.shape) * (s.shape.layers - s.shape.dense_layers)
    return sum(count * out * deep for count, (out, deep) in trained_matrices(s)) + (0 if s.frozen else experts)


def update_time(s: Setup, owned: float, shard: Group, c: Constants) -> float:
    """Seconds of the update of the `owned` parameters of this rank."""
    stream = s.cluster.device.bandwidth * c.memory_efficiency
    if s.optimizer == "adamw8bit":
        return owned * MOVED["adamw8bit"] / stream
    usual = optimizer_time(owned, s.cluster.device, s.profile, c)
    if s.optimizer != "muon":
        return usual
    whole = matrix_parameters(s) / s.plan.pp  # every rank updates whole matrices
    return usual * (1 - block_share(s)) + whole * MOVED["muon"] / stream + orthogonal_time(s, shard, c)


def orthogonal_time(s: Setup, shard: Group, c: Constants) -> float:
    """Seconds of Muon's products in one step: every rank gathers the momentum of a matrix and makes it orthogonal, in
    five rounds of x x', its square, and their product with x."""
    rate = trainer_matmul_rate(s.cluster.device, s.profile, "bf16", "", c)

    def rounds(out: float, deep: float, groups: float = 1.0) -> float:
        low, high = min(out, deep), max(out, deep)
        gram, square = (
            matmul_time(low, low, high, rate, c, groups),
            matmul_time(low, low, low, rate, c, groups),
        )
        return ROUNDS * (gram + square + matmul_time(low, high, low, rate, c, groups))

    each = sum(count * rounds(*pair) for count, pair in trained_matrices(s))
    if s.shape.experts and not s.frozen:
        mine = s.shape.experts / s.plan.ep
        up, down = (s.shape.ffn, s.shape.hidden), (s.shape.hidden, s.shape.ffn)
        pairs = [up] * (2 if s.shape.gated else 1) + [down]
        each += (s.shape.layers - s.shape.dense_layers) * sum(rounds(*pair, mine) for pair in pairs)
    gathered = all_gather(matrix_parameters(s) / s.plan.pp * 4.0, shard)
    return each / s.plan.pp + gathered
