"""Attention within each of many small images, straight from the packed queries, keys and values: the general kernels
are made for thousands of tokens, and spend more time on copies than on the few dozen tokens of a crop."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Groups = tuple[tuple[int, int], ...]  # (images, tokens per image) of each group of equal images, in order
LONGEST = 256  # tokens of an image: keys and values of one head stay in one program of the GPU


def attend_images(qkv: Tensor, groups: Groups) -> Tensor:
    """qkv [all tokens, heads, 3, width] to [all tokens, heads, width]; every image attends to itself."""
    longest, fast = max(tokens for _, tokens in groups), qkv.device.type == "cuda" and qkv.dtype == torch.bfloat16
    if fast and fits(longest, qkv.shape[-1], shared_memory(qkv.device)):
        images, tokens = zip(*groups, strict=True)
        return _attend(qkv, list(images), list(tokens))[0]
    return _attend_plain(qkv, groups)


def fits(tokens: int, width: int, memory: int) -> bool:
    """Whether a GPU with so many bytes of shared memory per block runs the kernels. The backward pass keeps keys,
    values and their gradients there: at most this much, as compiled for compute capability 8.0 to 10.0."""
    keys = max(16, 1 << (tokens - 1).bit_length())
    power_of_two = width >= 16 and width & (width - 1) == 0
    return tokens <= LONGEST and power_of_two and keys * (8 * width + 136) <= memory


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def shared_memory(device: torch.device) -> int:
    card: Any = torch.cuda.get_device_properties(device)  # torch's stub does not list all of it
    return int(card.shared_memory_per_block_optin)


def _attend_plain(qkv: Tensor, groups: Groups) -> Tensor:
    parts = []
    for (images, tokens), own in zip(
        groups, torch.split(qkv, [images * tokens for images, tokens in groups]), strict=True
    ):
        q, k, v = own.view(images, tokens, *own.shape[1:]).permute(3, 0, 2, 1, 4)
        parts.append(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(0, 1))
    return torch.cat(parts)


@torch.library.custom_op("trainwright::attend_images", mutates_args=())
def _attend(qkv: Tensor, images: list[int], tokens: list[int]) -> tuple[Tensor, Tensor]:
    from trainwright.train.kernels.image_attention_triton import forward

    return forward(qkv.contiguous(), images, tokens)  # type: ignore[no-any-return]


@torch.library.custom_op("trainwright::attend_images_backward", mutates_args=())
def _attend_backward(
    qkv: Tensor, out: Tensor, sums: Tensor, upstream: Tensor, images: list[int], tokens: list[int]
) -> Tensor:
    from trainwright.train.kernels.image_attention_triton import backward

    return backward(qkv.contiguous(), out, sums, upstream.contiguous(), images, tokens)  # type: ignore[no-any-return]


@_attend.register_fake
def _(qkv: Tensor, images: list[int], tokens: list[int]) -> tuple[Tensor, Tensor]:
    rows, heads, _, width = qkv.shape
    return qkv.new_empty(rows, heads, width), qkv.new_empty(heads, rows, dtype=torch.float32)


@_attend_backward.register_fake
def _(qkv: Tensor, out: Tensor, sums: Tensor, upstream: Tensor, images: list[int], tokens: list[int]) -> Tensor:
    return torch.empty(qkv.shape, dtype=qkv.dtype, device=qkv.device)


def _save(ctx: Any, inputs: tuple[Tensor, list[int], list[int]], output: tuple[Tensor, Tensor]) -> None:
    qkv, ctx.images, ctx.tokens = inputs
    ctx.save_for_backward(qkv, *output)


def _gradient(ctx: Any, upstream: Tensor, _sums: Tensor) -> tuple[Tensor, None, None]:
    qkv, out, sums = ctx.saved_tensors
    return _attend_backward(qkv, out, sums, upstream, ctx.images, ctx.tokens), None, None


_attend.register_autograd(_gradient, setup_context=_save)
