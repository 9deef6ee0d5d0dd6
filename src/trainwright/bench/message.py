"""What a line of a collective benchmark is about, whoever measured it: ours, nccl-tests or nccom-test."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Message:
    """A collective at one size."""

    op: str
    size: int  # bytes
    count: int  # elements
    dtype: str
    redop: str
    root: int
