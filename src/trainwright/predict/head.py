"""How long the output head takes: the products after the last layer and the loss, of the model and of its teacher."""

from __future__ import annotations

from functools import lru_cache

from trainwright.predict.constants import Constants
from trainwright.predict.hardware import Device
from trainwright.predict.objective import head_linears
from trainwright.predict.products import Pair, linear_time, trainer_matmul_rate
from trainwright.predict.profiles import Profile
from trainwright.predict.setup import Setup


@lru_cache(maxsize=50_000)
def head_time(
    linears: tuple[tuple[int, int], ...],
    tokens: float,
    split: int,
    device: Device,
    profile: Profile,
    c: Constants,
    trained: bool = True,
) -> Pair:
    """The output products and the loss. The head stays in 16 bits in every trainer we know; where it is not trained,
    its backward has no weight gradients."""
    rate = trainer_matmul_rate(device, profile, "bf16", "", c)
    *before, (columns, depth) = linears
    vocab = columns / split
    times = [linear_time(tokens, out, deep, rate, c, frozen=not trained) for out, deep in (*before, (vocab, depth))]
    forward, backward = sum(time[0] for time in times), sum(time[1] for time in times)
    loss = c.traffic[profile.loss_fusion].loss
    stream = device.bandwidth * c.memory_efficiency
    return forward + tokens * vocab * loss[0] / stream, backward + tokens * vocab * loss[1] / stream


def head_of(s: Setup, c: Constants) -> float:
    """Seconds of one microbatch in the output head, forward and backward."""
    linears, split = head_linears(s.shape, s.objective), s.plan.tp if s.profile.head_split else 1
    device, trained = s.cluster.device, not s.adapter_rank
    one = sum(head_time(linears, s.head_rows, split, device, s.profile, c, trained))
    teacher = head_time(linears, s.frozen_rows, split, device, s.profile, c)[0] if s.frozen_rows else 0.0
    return one * (1 + s.shape.mtp_layers) + teacher
