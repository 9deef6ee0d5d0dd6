"""Ring attention gives the attention and the gradients of one process: any number of ranks, odd sizes, grouped heads,
documents that begin anywhere, windows, ALiBi, soft caps and sinks. All ranks are played by one process, each on blocks
that a replayed ring hands it; test_plans.py runs it on real processes."""

import random
from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from trainwright.train.kernels.attention_blocks import Whole
from trainwright.train.models.attention import alibi_slopes, attend, dense_mask
from trainwright.train.models.block_mask import TokenLayout
from trainwright.train.models.ring_mask import MIXED, SKIP, WHOLE, chunk_positions, piece, ring_mask
from trainwright.train.models.shape import lookup
from trainwright.train.parallel.ring import KEYS, pack, ring_backward, ring_forward

SHAPE = lookup("llama3.1-8b-debug")


class Replay:
    """Hands a rank the blocks of the ranks before it, and collects the gradients that it passes on."""

    def __init__(self, rank: int, blocks: list[torch.Tensor], sums: list[torch.Tensor]) -> None:
        self.rank, self.blocks, self.sums = rank, blocks, sums
        self.steps = [0, 0]

    def start(self, leaving: torch.Tensor, arriving: torch.Tensor, tag: int) -> list:
        step = self.steps[tag] = self.steps[tag] + 1
        if tag == KEYS:
            assert torch.equal(leaving, self.blocks[self.rank - step + 1])
            arriving.copy_(self.blocks[self.rank - step])
        else:
            self.sums[self.rank - step + 1] += leaving
            arriving.zero_()
        return []


def sequence_mask(case: dict, documents: torch.Tensor | None) -> torch.Tensor:
    """The dense mask of the whole sequence, from the rule and not from our builders."""
    index = torch.arange(case["length"], device=case.get("device"))
    distance = index[:, None] - index[None, :]
    visible = (distance >= 0) & (distance < (case["window"] or case["length"]))
    if documents is None:
        return visible[None, None]
    return visible & (documents[:, None, :, None] == documents[:, None, None, :])


def right(case: dict, q, k, v, documents, slopes, sinks) -> torch.Tensor:
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if case["cap"]:
        scores = case["cap"] * torch.tanh(scores / case["cap"])
    if slopes is not None:
        index = torch.arange(case["length"], device=q.device)
        scores = scores - slopes[:, None, None] * (index[:, None] - index[None, :])
    scores = scores.masked_fill(~sequence_mask(case, documents), -torch.inf)
    if sinks is None:
        return scores.softmax(-1) @ v
    column = sinks[:, None, None].expand(*scores.shape[:-1], 1)
    return torch.cat([scores, column], -1).softmax(-1)[..., :-1] @ v


def random_case(seed: int) -> dict:
    """A case of any kind; documents are none, many, few, or begin exactly at the borders of the chunks."""
    dice = random.Random(seed)
    ranks, half = dice.choice([2, 2, 3, 4, 5]), dice.choice([1, 2, 3, 5, 7, 11])
    length, kv_heads = 2 * ranks * half, dice.choice([1, 2, 3])
    case = {"ranks": ranks, "half": half, "length": length, "rows": dice.choice([1, 2, 3]), "kv_heads": kv_heads}
    case |= {"heads": kv_heads * dice.choice([1, 2, 4]), "width": dice.choice([4, 7]), "value": dice.choice([0, 0, 3])}
    case |= {"window": dice.choice([0, 0, 1, half, half + 1, 3 * half]), "cap": dice.choice([0, 0, 5.0])}
    case |= {"alibi": not case["cap"] and dice.random() < 0.3, "sinks": dice.random() < 0.3}
    share = dice.choice([None, 0.5, 0.1, 0.02, "chunks"])
    rolls = torch.rand(case["rows"], length, generator=torch.Generator().manual_seed(seed))
    begins = (torch.arange(length) % half == 0).expand(case["rows"], -1) if share == "chunks" else rolls < (share or 0)
    return {**case, "documents": None if share is None else begins.long().cumsum(1)}


def play(case: dict, q, k, v, grad, documents, slopes=None, sinks=None):
    """Output and gradients from all ranks, in the order of the sequence."""
    ranks, half, device = case["ranks"], case["half"], q.device
    places = [chunk_positions(rank, ranks, half, device) for rank in range(ranks)]
    index = torch.arange(case["length"], device=device)
    blocks = [pack(k[:, :, at], v[:, :, at]) for at in places]
    sums = [torch.zeros_like(block) for block in blocks]
    out, query, share_grads = torch.zeros_like(grad), torch.zeros_like(q), []
    for rank, at in enumerate(places):
        layout = TokenLayout(at, index, documents, None if documents is None else documents[:, at])
        mask = ring_mask(case["window"], case["cap"], slopes, sinks is not None, layout, rank, ranks)
        mine = [x[:, :, at] for x in (q, k, v)]
        part, log_sum = ring_forward(*mine, mask, Replay(rank, blocks, sums))
        upstream, sum_grad = grad[:, :, at], torch.zeros_like(log_sum)
        if sinks is not None:
            with torch.enable_grad():
                leaves = [x.detach().requires_grad_() for x in (part, log_sum, sinks)]
                scaled = leaves[0] * torch.sigmoid(leaves[1] - leaves[2][:, None])[..., None]
                upstream, sum_grad, sink_grad = torch.autograd.grad(scaled, leaves, grad[:, :, at])
            share_grads.append(sink_grad)
        out[:, :, at] = part if sinks is None else scaled.detach()
        whole = Whole(part, log_sum, upstream, sum_grad)
        query[:, :, at] = ring_backward(*mine, whole, mask, Replay(rank, blocks, sums))[0]
    grads = [torch.zeros_like(x) for x in (k, v)]
    for at, block in zip(places, sums, strict=True):
        keys = k[:, :, at].numel()
        for total, flat in zip(grads, (block[:keys], block[keys:]), strict=True):
            total[:, :, at] = flat.view(len(q), 2 * half, -1, total.shape[3]).transpose(1, 2)
    return [out, query, *grads, *([sum(share_grads)] if share_grads else [])]


def tensors(case: dict, seed: int) -> list[torch.Tensor]:
    dice, rows, length = torch.Generator().manual_seed(seed), case["rows"], case["length"]
    heads = (case["heads"], case["kv_heads"], case["kv_heads"], case["heads"])
    widths = (case["width"], case["width"], *[case["value"] or case["width"]] * 2)
    return [torch.randn(rows, h, length, w, generator=dice) for h, w in zip(heads, widths, strict=True)]


@pytest.mark.parametrize("seeds", [range(0, 40), range(40, 80)], ids=str)
def test_any_case_is_attention_of_one_process(seeds):
    for seed in seeds:
        case = random_case(seed)
        q, k, v, grad = tensors(case, seed)
        slopes = alibi_slopes(case["heads"]) if case["alibi"] else None
        sinks = torch.randn(case["heads"]) if case["sinks"] else None
        leaves = [x.clone().requires_grad_() for x in (q, k, v, *([sinks] if case["sinks"] else []))]
        wanted = right(case, *leaves[:3], case["documents"], slopes, leaves[3] if case["sinks"] else None)
        wanted = [wanted, *torch.autograd.grad(wanted, leaves, grad)]
        got = play(case, q, k, v, grad, case["documents"], slopes, sinks)
        for name, one, other in zip(("out", "q", "k", "v", "sinks"), got, wanted, strict=False):
            torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-4, msg=lambda m, n=name, c=case: f"{n} {c}: {m}")
