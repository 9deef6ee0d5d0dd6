"""Ring attention (arXiv 2310.01889): keys and values travel from rank to rank while each computes a block of attention,
and the parts are merged by their log-sum-exp. Gradients of keys and values follow them around in the backward pass. A
rank never holds more than two blocks of keys and values beside its own, in either pass."""

from __future__ import annotations

from typing import Any, Protocol

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.distributed_c10d import _resolve_process_group  # type: ignore[attr-defined]

from trainwright.train.kernels.attention_blocks import Whole, block_kernel
from trainwright.train.models.attention import AttentionMask
from trainwright.train.models.ring_mask import SKIP, RingMask, piece

KEYS, SUMS = 0, 1  # tags of what travels: keys and values, and the sums of their gradients


class Ring(Protocol):
    """Moves blocks one rank on."""

    def start(self, leaving: Tensor, arriving: Tensor, tag: int) -> list[Any]: ...


class GroupRing:
    def __init__(self, name: str) -> None:
        self.group: Any = _resolve_process_group(name)  # type: ignore[arg-type]
        rank, ranks = dist.get_rank(self.group), dist.get_world_size(self.group)
        self.after, self.before = (rank + 1) % ranks, (rank - 1) % ranks

    def start(self, leaving: Tensor, arriving: Tensor, tag: int) -> list[Any]:
        """Begin to send one block and to receive another, beside what is computed until `wait`."""
        send = dist.P2POp(dist.isend, leaving, None, self.group, tag, self.after)
        receive = dist.P2POp(dist.irecv, arriving, None, self.group, tag, self.before)
        return dist.batch_isend_irecv([send, receive])


def wait(transfers: list[Any]) -> None:
    for transfer in transfers:
        transfer.wait()


def pack(k: Tensor, v: Tensor) -> Tensor:
    """Keys and values as one block, token by token, so that one message carries both."""
    return torch.cat([k.transpose(1, 2).flatten(), v.transpose(1, 2).flatten()])


def unpack(block: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Views of a block in the shapes of `k` and `v`."""
    parts = block[: k.numel()], block[k.numel() :]
    keys, values = (p.view(x.transpose(1, 2).shape).transpose(1, 2) for p, x in zip(parts, (k, v), strict=True))
    return keys, values


def by_token(like: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """[b, heads, s, width], laid out token by token as the products around attention want it."""
    b, heads, s, _ = like.shape
    return torch.empty(b, s, heads, width, dtype=dtype, device=like.device).transpose(1, 2)


def ring_forward(q: Tensor, k: Tensor, v: Tensor, mask: RingMask, ring: Ring) -> tuple[Tensor, Tensor]:
    """This rank's output and log-sum-exp over the keys of all ranks. Its own block comes first, so that every query has
    seen a key before the first merge."""
    kernel, here = block_kernel(q, mask), pack(k, v)
    spare = torch.empty_like(here)
    out = by_token(q, v.shape[3], torch.float32)
    log_sum = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    for step in range(mask.ranks):
        transfers = ring.start(here, spare, KEYS) if step + 1 < mask.ranks else []
        owner = (mask.rank - step) % mask.ranks
        if mask.plan[owner][0] != SKIP:
            span = piece(mask.rank, owner, mask.half)
            keys, values = (x[:, :, span.keys] for x in unpack(here, k, v))
            part, sums = kernel.forward(q[:, :, span.queries], keys, values, owner)
            if step == 0:
                out.copy_(part)
                log_sum.copy_(sums)
            else:
                merge(out[:, :, span.queries], log_sum[:, :, span.queries], part, sums)
        wait(transfers)
        here, spare = spare, here
    return by_token(q, v.shape[3], q.dtype).copy_(out), log_sum


def merge(out: Tensor, log_sum: Tensor, part: Tensor, sums: Tensor) -> None:
    """Add a part to `out` and `log_sum`, in place: its share is exp(sums) / (exp(log_sum) + exp(sums))."""
    out.lerp_(part.float(), torch.sigmoid(sums - log_sum)[..., None])
    log_sum.sub_(F.logsigmoid(log_sum - sums))


def ring_backward(
    q: Tensor, k: Tensor, v: Tensor, whole: Whole, mask: RingMask, ring: Ring
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v. The sum of a block's gradients follows the block by one step and ends at its owner."""
    kernel, here = block_kernel(q, mask), pack(k, v)
    spare, sums = torch.empty_like(here), torch.zeros_like(here)
    landing, sent = torch.empty_like(here), list[Any]()
    query_grad = by_token(q, q.shape[3], torch.float32).zero_()
    for step in range(mask.ranks):
        transfers = ring.start(here, spare, KEYS) if step + 1 < mask.ranks else []
        owner = (mask.rank - step) % mask.ranks
        span, grads = piece(mask.rank, owner, mask.half), None
        if mask.plan[owner][0] != SKIP:
            keys, values = (x[:, :, span.keys] for x in unpack(here, k, v))
            grads = kernel.backward(q[:, :, span.queries], keys, values, whole.part(span.queries), owner)
        wait(sent)
        if step:
            sums, landing = landing, sums
        if grads is not None:
            query_grad[:, :, span.queries] += grads[0]
            for total, grad in zip(unpack(sums, k, v), grads[1:], strict=True):
                total[:, :, span.keys] += grad
        sent = ring.start(sums, landing, SUMS)
        wait(transfers)
        here, spare = spare, here
    wait(sent)
    moved = zip((q, k, v), (query_grad, *unpack(landing, k, v)), strict=True)
    queries, keys, values = (by_token(x, x.shape[3], x.dtype).copy_(grad) for x, grad in moved)
    return queries, keys, values


@torch.library.custom_op("trainwright::ring_attention", mutates_args=())
def ring_attention(
    q: Tensor, k: Tensor, v: Tensor, work: Tensor, documents: Tensor | None, parts: Tensor | None,
    slopes: Tensor | None, window: int, cap: float, rank: int, ranks: int, group: str,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """One operator, so that the compiler does not stop at the exchange and recomputation can keep its result."""
    mask = RingMask(rank, ranks, q.shape[2] // 2, work, documents, parts, window, cap, slopes)
    return ring_forward(q, k, v, mask, GroupRing(group))


@torch.library.custom_op("trainwright::ring_attention_backward", mutates_args=())
def ring_attention_backward(
    q: Tensor, k: Tensor, v: Tensor, work: Tensor, documents: Tensor | None, parts: Tensor | None,
    slopes: Tensor | None, window: int, cap: float, rank: int, ranks: int, group: str,
    out: Tensor, log_sum: Tensor, grad: Tensor, log_sum_grad: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    mask = RingMask(rank, ranks, q.shape[2] // 2, work, documents, parts, window, cap, slopes)
    return ring_backward(q, k, v, Whole(out, log_sum, grad, log_sum_grad), mask, GroupRing(group))


@ring_attention.register_fake
def _(q: Tensor, _k: Tensor, v: Tensor, *_others: Any) -> tuple[Tensor, Tensor]:
    return by_token(q, v.shape[3], q.dtype), torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)


@ring_attention_backward.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *_others: Any) -> tuple[Tensor, Tensor, Tensor]:
    query, keys, values = (by_token(x, x.shape[3], x.dtype) for x in (q, k, v))
    return query, keys, values


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs[:7], *output)
    ctx.plain = inputs[7:]


def _gradient(ctx: Any, grad: Tensor, log_sum_grad: Tensor) -> tuple[Any, ...]:
    *inputs, out, log_sum = ctx.saved_tensors
    grads = ring_attention_backward(*inputs, *ctx.plain, out, log_sum, grad, log_sum_grad)
    return *grads, *([None] * 9)


ring_attention.register_autograd(_gradient, setup_context=_save)


class _FlexRing(torch.autograd.Function):
    """The same around FlexAttention, whose gradient needs autograd: not allowed inside an operator."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: RingMask, ring: Ring) -> tuple[Tensor, Tensor]:
        out, log_sum = ring_forward(q, k, v, mask, ring)
        ctx.save_for_backward(q, k, v, out, log_sum)
        ctx.where = mask, ring
        return out, log_sum

    @staticmethod
    def backward(ctx: Any, grad: Tensor, log_sum_grad: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        q, k, v, out, log_sum = ctx.saved_tensors
        return *ring_backward(q, k, v, Whole(out, log_sum, grad, log_sum_grad), *ctx.where), None, None


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _flex_ring(q: Tensor, k: Tensor, v: Tensor, mask: RingMask, group: str) -> tuple[Tensor, Tensor]:
    return _FlexRing.apply(q, k, v, mask, GroupRing(group))  # type: ignore[no-untyped-call, no-any-return]


def attend_ring(
    q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, sinks: Tensor | None = None, *, group: str
) -> Tensor:
    """Attention of this rank's queries over the keys and values of all, which pass by one rank's block at a time."""
    m = mask.ring
    assert m is not None
    if m.blocks:
        out, log_sum = _flex_ring(q, k, v, m, group)
    else:
        tensors = q, k, v, m.work, m.documents, m.parts, m.slopes
        out, log_sum = ring_attention(*tensors, m.window, m.cap, m.rank, m.ranks, group)
    if sinks is None:
        return out
    share = torch.sigmoid(log_sum - sinks.float()[:, None])  # of the tokens in exp(log_sum) + exp(sink)
    return (out * share[..., None]).to(out.dtype)
