"""AdamW over named parameters, sharded or not. A bf16 parameter keeps the missing 16 bits of its fp32 master beside it
(4 bytes instead of 6), and optimizer state may live in host memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from trainwright.train.kernels.adamw import adamw_split, join, split


@dataclass(frozen=True, slots=True)
class AdamWOptions:
    kind: str = "adamw"  # adamw | adamw8bit | muon
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    weight_decay: float = 0.1


@dataclass(slots=True)
class ParameterState:
    """One parameter of this rank and its optimizer state, on the device where the update runs."""

    param: nn.Parameter
    decay: float
    decays: bool
    first: Tensor  # running mean of the gradient
    second: Tensor  # running mean of its square
    low: Tensor | None  # bf16 parameter: the low 16 bits of its fp32 master
    master: Tensor | None  # offloaded parameter: its master in host memory
    begin: int = 0  # steps of the run before its first update


Updates = list[tuple[ParameterState, Tensor]]  # a parameter and this rank's part of its gradient


def local(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor, sharing its memory."""
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor.detach()


def as_dtensor_like(part: Tensor, like: Tensor) -> Tensor:
    """`part` as a distributed tensor with the layout of `like`."""
    if not isinstance(like, DTensor):
        return part
    spec = like.device_mesh, like.placements
    return DTensor.from_local(part, *spec, run_check=False, shape=like.shape, stride=like.stride())


def part_of(whole: Tensor, param: Tensor) -> Tensor:
    """The part of a whole tensor that this rank's parameter holds."""
    if not isinstance(param, DTensor):
        return whole
    size, offset = compute_local_shape_and_global_offset(param.shape, param.device_mesh, param.placements)
    for dim, (length, start) in enumerate(zip(size, offset, strict=True)):
        whole = whole.narrow(dim, min(start, whole.shape[dim] - length), length)
    return whole


def has_decay(name: str, param: Tensor) -> bool:
    """Whether weight decay is for it: a matrix, not a norm or a bias (experts have theirs as rows of one tensor)."""
    return param.ndim > 1 and not name.endswith("bias")


class AdamW:
    """Decoupled weight decay on matrices only; the update is the same for every sharding."""

    def __init__(self, params: dict[str, nn.Parameter], options: AdamWOptions, offload: bool = False) -> None:
        self.options, self.offload = options, offload
        self.steps = 0
        self.states = {name: self._slot(name, param) for name, param in params.items()}

    def _slot(self, name: str, param: nn.Parameter) -> ParameterState:
        part = local(param)
        where = torch.device("cpu") if self.offload else part.device
        first, second = (torch.zeros(part.shape, dtype=torch.float32, device=where) for _ in range(2))
        halved = part.dtype == torch.bfloat16 and not self.offload
        low = torch.zeros(part.shape, dtype=torch.int16, device=where) if halved else None
        master = part.to(where, torch.float32, copy=True) if self.offload else None
        decays = has_decay(name, param)
        decay = self.options.weight_decay if decays else 0.0
        return ParameterState(param, decay, decays, first, second, low, master)

    def description(self) -> str:
        """For the log."""
        return "AdamW"

    def set_weight_decay(self, value: float) -> None:
        """Another decay from now on, for objectives that schedule it."""
        for slot in self.states.values():
            slot.decay = value if slot.decays else 0.0

    def write(self, name: str, value: Tensor) -> None:
        """Set this rank's part of a parameter, and its master, from an fp32 tensor."""
        slot = self.states[name]
        part = local(slot.param)
        if slot.master is not None:
            slot.master.copy_(value)
        if slot.low is not None:
            split(value.to(part.device), part, slot.low)
        else:
            part.copy_(value)

    def read(self, name: str) -> Tensor:
        """This rank's part of a parameter's fp32 master."""
        slot = self.states[name]
        if slot.master is not None:
            return slot.master
        part = local(slot.param)
        return part if slot.low is None else join(part, slot.low)

    @torch.no_grad()
    def step(self, lr: float, grads: dict[str, Tensor], clip: Tensor) -> None:
        """One update with every gradient times `clip`, a scalar on the gradients' device; none where that is NaN."""
        self.steps += 1
        self.update(lr, grads, clip)

    def update(self, lr: float, grads: dict[str, Tensor], clip: Tensor) -> None:
        """The update of the parameters that `grads` names; the others stay as they are."""
        plain = []
        for name, grad in grads.items():
            slot = self.states[name]
            if slot.low is not None:
                self._step_split(slot, slot.low, grad, lr, clip)
            else:
                plain.append((slot, grad))
        if plain:
            self._step_fused(plain, lr, clip)

    def _step_split(self, slot: ParameterState, low: Tensor, grad: Tensor, lr: float, clip: Tensor) -> None:
        beta1, beta2 = self.options.betas
        adamw_split(
            (local(slot.param), low, slot.first, slot.second, grad),
            clip,
            lr=lr,
            beta1=beta1,
            beta2=beta2,
            eps=self.options.eps,
            decay=slot.decay,
            step=self.steps - slot.begin,
        )

    def _step_fused(self, plain: Updates, lr: float, clip: Tensor) -> None:
        for decay in {slot.decay for slot, _ in plain}:
            group = [(slot, grad) for slot, grad in plain if slot.decay == decay and grad.numel()]
            if not group:
                continue
            where = group[0][0].first.device
            grads = [grad.to(where, torch.float32) for _, grad in group]
            torch._foreach_mul_(grads, clip.to(where))
            masters = [slot.master if slot.master is not None else local(slot.param) for slot, _ in group]
            self._fused(group, masters, grads, lr, decay, clip.to(where).isnan().float())
            for (slot, _), master in zip(group, masters, strict=True):
                if slot.master is not None:
                    local(slot.param).copy_(master)

    def _fused(
        self, group: Updates, masters: list[Tensor], grads: list[Tensor], lr: float, decay: float, skip: Tensor
    ) -> None:
        begins = {slot.begin for slot, _ in group}
        step = {begin: torch.tensor(float(self.steps - begin), device=grads[0].device) for begin in begins}
        torch._fused_adamw_(
            masters,
            grads,
            [slot.first for slot, _ in group],
            [slot.second for slot, _ in group],
            [],
            [step[slot.begin] for slot, _ in group],
            lr=lr,
            beta1=self.options.betas[0],
            beta2=self.options.betas[1],
            weight_decay=decay,
            eps=self.options.eps,
            amsgrad=False,
            maximize=False,
            found_inf=skip,
        )

    def state(self) -> Iterator[tuple[str, str, Tensor]]:
        """(kind, name, tensor) of everything a checkpoint keeps, as distributed tensors where they are sharded."""
        for name, slot in self.states.items():
            yield "model", name, as_dtensor_like(self.read(name), slot.param)
            yield "exp_avg", name, as_dtensor_like(slot.first, slot.param)
            yield "exp_avg_sq", name, as_dtensor_like(slot.second, slot.param)

    def load(self, kind: str, name: str, value: Tensor) -> None:
        """Restore one tensor that `state` gave, after it was loaded."""
        part, slot = local(value), self.states[name]
        if kind == "model":
            self.write(name, part)
        else:
            (slot.first if kind == "exp_avg" else slot.second).copy_(part)
