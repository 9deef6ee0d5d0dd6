"""How long a matrix product takes: whole waves of tiles over the multiprocessors, and never faster than the power limit
of the card allows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from trainwright.predict.constants import Constants
from trainwright.predict.hardware import Device
from trainwright.predict.profiles import Profile

Pair = tuple[float, float]  # forward, backward

Tile = tuple[int, int, float]  # rows, columns, share of the best rate

TILES: tuple[Tile, ...] = ((256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.9), (128, 64, 0.75))
MORE_TILES = (*TILES, (192, 128, 0.97), (128, 192, 0.97))  # proposed too, but seldom first
RATE_OF_FILL = 5.2e12  # FLOP/s of one H200 multiprocessor, where matmul_k_half was measured
SPLIT_BYTES = 4.0  # per output and part of k: fp32 sums, most of which stay in the cache
FIRST_SHIPPED = {"sm_80": 2020.4, "sm_90": 2022.8, "sm_100": 2024.9}  # volume shipments of each generation
LEARNING_YEARS = 0.8


@dataclass(frozen=True, slots=True)
class MatmulRate:
    """FLOP/s of products on one device."""

    sustained: float  # large products of a long run, at the power limit
    burst: float  # the same before the power limit lowers the clock, where a trainer finds algorithms that reach it
    sms: int
    stream: float  # bytes/s of memory
    tiles: tuple[Tile, ...] = TILES

    def scaled(self, share: float) -> MatmulRate:
        return replace(self, sustained=self.sustained * share, burst=self.burst * share)


def trainer_matmul_rate(
    device: Device, profile: Profile, precision: str, scales: str, c: Constants, timed: bool = False
) -> MatmulRate:
    """The matmul rate this trainer can reach: old libraries and fp8 with finer scales than one per tensor reach less of
    the device's. `timed`: the trainer takes the fastest algorithm of each."""
    sustained, stream = device.matmul_rate(precision, c), device.bandwidth * c.memory_efficiency
    rate = MatmulRate(sustained, sustained, device.sms, stream)
    if timed:
        rate = replace(rate, burst=device.best_matmul(precision, c), tiles=MORE_TILES)
    return rate.scaled(library_progress(device, profile, c) * scaled_products(profile, scales, c))


def expert_matmul_rate(device: Device, profile: Profile, precision: str, scales: str, c: Constants) -> MatmulRate:
    """As `trainer_matmul_rate`, of routed experts and their router: some trainers leave them in 16 bits, and none times
    the algorithms of grouped products."""
    own = profile.expert_precision(precision)
    return trainer_matmul_rate(device, profile, own, scales if own == precision else "", c)


def scaled_products(profile: Profile, scales: str, c: Constants) -> float:
    """Share of the rate with one scale per tensor that fp8 products with these scales reach. Published runs with one
    per row used earlier kernels than our trainer does."""
    own = {"rowwise": c.fp8_rowwise_own, "blockwise": c.fp8_blockwise}
    others = {"rowwise": c.fp8_rowwise}
    return (own if profile.own else others).get(scales, 1.0)


def library_progress(device: Device, profile: Profile, c: Constants) -> float:
    """Share of today's rate that libraries of the trainer's release reach: least when a generation is new."""
    first = FIRST_SHIPPED.get(device.family)
    if not profile.released or first is None:
        return 1.0
    return 1.0 - (1.0 - c.early_kernels) * math.exp(-max(0.0, profile.released - first) / LEARNING_YEARS)


def matmul_time(m: float, n: float, k: float, rate: MatmulRate, c: Constants, groups: float = 1.0) -> float:
    """Seconds of an m x k by k x n product. Equal products of a group (the experts of a rank) fill the waves together.
    Idle multiprocessors draw little power: the burst rate is that of the tiles, the sustained one that of the card."""
    tiled = min(waves_time(m, n, k, tile, rate, c, groups) for tile in rate.tiles)
    return max(tiled, 2.0 * groups * m * n * k / rate.sustained) + c.matmul_start


def waves_time(m: float, n: float, k: float, tile: Tile, rate: MatmulRate, c: Constants, groups: float) -> float:
    """Whole waves of tiles over the multiprocessors, each with the fill of its pipeline. Where the tiles are too few
    for one wave, several multiprocessors share the depth k of each, if that pays for adding up their sums."""
    rows, columns, share = tile
    tiles = groups * math.ceil(m / rows) * math.ceil(n / columns)
    step = 2.0 * rows * columns / (share * rate.burst / rate.sms)  # seconds of a tile per element of k
    fill = c.matmul_k_half * rate.burst / rate.sms / RATE_OF_FILL
    whole = math.ceil(tiles / rate.sms) * step * (k + fill)
    parts = int(rate.sms // tiles)
    if parts < 2:
        return whole
    return min(whole, step * (k / parts + fill) + parts * groups * m * n * SPLIT_BYTES / rate.stream)


def linear_time(
    tokens: float, out: float, deep: float, rate: MatmulRate, c: Constants, groups: float = 1.0, frozen: bool = False
) -> Pair:
    """One linear layer: the backward computes the gradients of the input and, unless it is frozen, of the weight."""
    of_input = matmul_time(tokens, deep, out, rate, c, groups)
    of_weight = 0.0 if frozen else matmul_time(out, deep, tokens, rate, c, groups)
    return matmul_time(tokens, out, deep, rate, c, groups), of_input + of_weight
