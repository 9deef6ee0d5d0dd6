"""A shuffle without memory: a keyed permutation of 0..n-1 that computes any element in constant time.

It is a Feistel network over the rectangle a x b, the smallest near-square that holds n; the few points outside n are
skipped (cycle walking). A trillion samples are shuffled without a list, and every rank computes the same order."""

from __future__ import annotations

import hashlib
from math import isqrt

import torch
from torch import Tensor

ROUNDS = 6
WORD = (1 << 64) - 1


def mix(value: int, key: int) -> int:
    """64 hashed bits of (value, key): a multiply-xorshift hash."""
    x = (value * 0x9E3779B97F4A7C15 + key) & WORD
    x ^= x >> 32
    x = (x * 0xD6E8FEB86659FD93) & WORD
    return x ^ (x >> 29)


def uniform(seeds: list[int], count: int) -> Tensor:
    """[len(seeds), count] numbers from 0 to 1, each row fixed by its seed (splitmix64). A torch generator per row would
    take longer than the rest of a batch, with Python's lock held."""
    start = torch.tensor([seed - (1 << 64) if seed >> 63 else seed for seed in seeds])[:, None]
    x = start + torch.arange(1, count + 1) * _signed(0x9E3779B97F4A7C15)
    x = (x ^ _shifted(x, 30)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shifted(x, 27)) * _signed(0x94D049BB133111EB)
    return _shifted(x ^ _shifted(x, 31), 40).to(torch.float32) * 2.0**-24


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def _shifted(x: Tensor, bits: int) -> Tensor:
    return (x >> bits) & ((1 << (64 - bits)) - 1)


class Permutation:
    """A permutation of range(n), fixed by the words of its key (seed, source, epoch, ...)."""

    __slots__ = ("height", "keys", "n", "width")

    def __init__(self, n: int, *key: object) -> None:
        self.n = n
        self.width = isqrt(max(n - 1, 0)) + 1
        self.height = -(-n // self.width) if n else 0
        digest = hashlib.blake2b(repr(key).encode(), digest_size=8 * ROUNDS).digest()
        words = [int.from_bytes(digest[8 * i : 8 * i + 8], "little") for i in range(ROUNDS)]
        self.keys = list(zip(words[::2], words[1::2], strict=True))

    def __call__(self, index: int) -> int:
        """Where `index` goes."""
        if not 0 <= index < self.n:
            raise IndexError(f"{index} is not in range({self.n})")
        index = self._once(index)
        while index >= self.n:
            index = self._once(index)
        return index

    def _once(self, index: int) -> int:
        width, height = self.width, self.height
        row, column = divmod(index, width)
        for own, other in self.keys:
            row = (row + mix(column, own)) % height
            column = (column + mix(row, other)) % width
        return row * width + column
