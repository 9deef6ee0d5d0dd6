"""A weight that was gathered in float8 and stands for the bf16 one: float8 products take its values as they are."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

aten = torch.ops.aten
# What FSDP, autograd and `to_local` do to a parameter without changing its numbers.
VIEWS = {aten.alias.default, aten.as_strided.default, aten.detach.default, aten.view.default}


class Float8Weight(Tensor):
    """bf16 to autograd and to FSDP; any operation but a view sees bf16 numbers."""

    float8: Tensor
    inverse_scale: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, float8: Tensor, inverse_scale: Tensor) -> Float8Weight:
        return torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined, no-any-return]
            cls, float8.shape, strides=float8.stride(), dtype=torch.bfloat16, device=float8.device
        )

    def __init__(self, float8: Tensor, inverse_scale: Tensor) -> None:
        self.float8, self.inverse_scale = float8, inverse_scale

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Float8Weight({tuple(self.shape)})"

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["float8", "inverse_scale"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], _meta: None, _size: Any, _stride: Any) -> Float8Weight:
        return Float8Weight(inner["float8"], inner["inverse_scale"])

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func in VIEWS:
            return cls(func(args[0].float8, *args[1:], **(kwargs or {})), args[0].inverse_scale)
        args, kwargs = tree_map_only(Float8Weight, to_bf16, (args, kwargs or {}))
        return func(*args, **kwargs)


def to_bf16(weight: Float8Weight) -> Tensor:
    return (weight.float8.float() * weight.inverse_scale).bfloat16()
