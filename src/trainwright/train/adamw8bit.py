"""AdamW with its two moments in 8 bits (arXiv 2110.02861): blocks of 256 numbers share a scale, and a code stands for
one of 256 values that are dense near zero. 6 bytes less per parameter than fp32 moments. Checkpoints hold the moments
in fp32, as those of the other optimizers: the codes of such numbers are the same again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn

from trainwright.train.optimizer import AdamW, ParameterState, as_dtensor_like, local

BLOCK = 256
SMALLEST = 4096  # smaller parameters keep fp32 moments
EXPONENTS = 7


@dataclass
class Codes:
    """One moment of one parameter."""

    numbers: Tensor  # uint8, blocks x 256
    scales: Tensor  # fp32, one per block: its largest number, with its sign
    signed: bool

    @staticmethod
    def zeros(count: int, signed: bool, device: torch.device) -> Codes:
        blocks = -(-count // BLOCK)
        zero = int((code_values(signed, device) == 0).nonzero()[0])
        return Codes(
            torch.full((blocks, BLOCK), zero, dtype=torch.uint8, device=device),
            torch.zeros(blocks, device=device),
            signed,
        )

    def read(self, size: torch.Size) -> Tensor:
        values = code_values(self.signed, self.scales.device)[self.numbers.int()] * self.scales[:, None]
        return values.flatten()[: size.numel()].view(size)

    def write(self, values: Tensor) -> None:
        missing = self.numbers.numel() - values.numel()
        blocks = torch.nn.functional.pad(values.reshape(-1), (0, missing)).view(-1, BLOCK)
        # With its sign, so that its share is 1 and has a code: there is none for -1.
        self.scales.copy_(blocks.gather(1, blocks.abs().argmax(dim=1, keepdim=True))[:, 0])
        shares = blocks / torch.where(self.scales == 0, 1.0, self.scales)[:, None]
        table = code_values(self.signed, values.device)
        middles = (table[1:] + table[:-1]) / 2
        self.numbers.copy_(torch.bucketize(shares, middles))


@cache
def code_values(signed: bool, device: torch.device) -> Tensor:
    """The 256 values of the codes, in order: decades from 1e-7 to 1, each with twice as many values as the one below,
    which lie in the middle of equal parts of the decade; and 0 and 1."""
    values = [0.0, 1.0]
    for decade in range(EXPONENTS):
        count = 2**decade if signed else 2 ** (decade + 1)
        edges = torch.linspace(0.1, 1, count + 1, dtype=torch.float64)
        middles = ((edges[1:] + edges[:-1]) / 2 * 10.0 ** (decade + 1 - EXPONENTS)).tolist()
        values += middles + ([-value for value in middles] if signed else [])
    return torch.tensor(sorted(values), dtype=torch.float32, device=device)


class AdamW8bit(AdamW):
    def __init__(self, *arguments: object) -> None:
        self.codes: dict[str, tuple[Codes, Codes]] = {}
        super().__init__(*arguments)  # type: ignore[arg-type]

    def _slot(self, name: str, param: nn.Parameter) -> ParameterState:
        slot = super()._slot(name, param)
        if slot.first.numel() >= SMALLEST:
            count, device = slot.first.numel(), slot.first.device
            self.codes[name] = Codes.zeros(count, True, device), Codes.zeros(count, False, device)
            slot.first = slot.second = slot.first.new_zeros(0)
        return slot

    def description(self) -> str:
        return f"AdamW with moments in 8 bits for {len(self.codes)} of {len(self.states)} parameters"

    @contextmanager
    def _opened(self, name: str, keep: bool) -> Iterator[None]:
        """The moments of a parameter in fp32; and, where they are to be kept, as codes again."""
        slot, (first, second) = self.states[name], self.codes[name]
        size = self.read(name).shape
        slot.first, slot.second = first.read(size), second.read(size)
        yield
        if keep:
            first.write(slot.first)
            second.write(slot.second)
        slot.first = slot.second = slot.first.new_zeros(0)

    @torch.no_grad()
    def step(self, lr: float, grads: dict[str, Tensor], clip: Tensor) -> None:
        super().step(lr, {name: grad for name, grad in grads.items() if name not in self.codes}, clip)
        for name in [name for name in self.codes if name in grads]:
            with self._opened(name, keep=True):
                self.update(lr, {name: grads[name]}, clip)

    def state(self) -> Iterator[tuple[str, str, Tensor]]:
        for kind, name, tensor in super().state():
            if name in self.codes and kind != "model":
                param, code = self.states[name].param, self.codes[name][kind == "exp_avg_sq"]
                yield kind, name, as_dtensor_like(code.read(self.read(name).shape), param)
            else:
                yield kind, name, tensor

    def load(self, kind: str, name: str, value: Tensor) -> None:
        if name in self.codes and kind != "model":
            self.codes[name][kind == "exp_avg_sq"].write(local(value))
        else:
            super().load(kind, name, value)
