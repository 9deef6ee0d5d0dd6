"""Ring attention gives the attention and the gradients of one process: any number of ranks, odd sizes, grouped heads,
documents that begin anywhere, windows, ALiBi, soft caps and sinks. All ranks are played by one process, each on blocks
that a replayed ring hands it; test_plans.py runs it on real processes."""

import random
from dataclasses import replace

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from trainwright.train.kernels.attention_blocks import Whole
from trainwright.train.models.attention import AttentionMask, alibi_slopes
from trainwright.train.models.block_mask import TokenLayout
from trainwright.train.models.ring_mask import (
    MIXED,
    SKIP,
    WHOLE,
    RingMask,
    chunk_positions,
    piece,
    ring_mask,
    with_blocks,
)
from trainwright.train.models.shape import lookup
from trainwright.train.parallel.plan import ParallelPlan
from trainwright.train.parallel.ring import KEYS, attend_ring, pack, ring_backward, ring_forward
from trainwright.train.parallel.traffic import context_traffic


class Replay:
    """Hands a rank the blocks of the ranks before it, and collects the gradients that it passes on."""

    def __init__(self, rank: int, blocks: list[torch.Tensor], sums: list[torch.Tensor]) -> None:
        self.rank, self.blocks, self.sums = rank, blocks, sums
        self.steps, self.sent = [0, 0], 0

    def start(self, leaving: torch.Tensor, arriving: torch.Tensor, tag: int) -> list:
        step = self.steps[tag] = self.steps[tag] + 1
        self.sent += leaving.nbytes
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
        mask = with_blocks(mask, device) if case.get("flex") else mask
        mine = [x[:, :, at] for x in (q, k, v)]
        part, log_sum = ring_forward(*mine, mask, Replay(rank, blocks, sums))
        upstream, sum_grad = grad[:, :, at], torch.zeros_like(log_sum)
        if sinks is not None:
            with torch.enable_grad():
                leaves = [x.detach().requires_grad_() for x in (part, log_sum, sinks)]
                scaled = leaves[0] * torch.sigmoid(leaves[1] - leaves[2][:, None])[..., None]
                upstream, sum_grad, sink_grad = torch.autograd.grad(scaled, leaves, grad[:, :, at])
            share_grads.append(sink_grad)
        out[:, :, at] = part if sinks is None else scaled.detach().to(out.dtype)
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


def check(case: dict, seed: int) -> None:
    q, k, v, grad = tensors(case, seed)
    slopes = alibi_slopes(case["heads"]) if case["alibi"] else None
    sinks = torch.randn(case["heads"]) if case["sinks"] else None
    leaves = [x.clone().requires_grad_() for x in (q, k, v, *([sinks] if case["sinks"] else []))]
    wanted = right(case, *leaves[:3], case["documents"], slopes, leaves[3] if case["sinks"] else None)
    wanted = [wanted, *torch.autograd.grad(wanted, leaves, grad)]
    got = play(case, q, k, v, grad, case["documents"], slopes, sinks)
    for name, one, other in zip(("out", "q", "k", "v", "sinks"), got, wanted, strict=False):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-4, msg=lambda m, n=name: f"{n} {case}: {m}")


@pytest.mark.parametrize("seeds", [range(30), range(30, 60)], ids=["first", "second"])
def test_any_case_is_attention_of_one_process(seeds):
    for seed in seeds:
        check(random_case(seed), seed)


def plain_flex(q, k, v, score_mod, block_mask, enable_gqa, return_lse):
    """FlexAttention by its definition; torch's own has no gradient on a CPU."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    sizes = (len(q), q.shape[1], q.shape[2], k.shape[2])
    index = [torch.arange(n).view([-1 if at == axis else 1 for axis in range(4)]) for at, n in enumerate(sizes)]
    scores = q @ k.mT / q.shape[-1] ** 0.5
    scores = score_mod(scores, *index) if score_mod else scores
    visible = block_mask.mask_mod(*index)
    empty = ~visible.any(-1, keepdim=True)
    scores = scores.masked_fill(~visible & ~empty, -torch.inf)
    out, log_sum = scores.softmax(-1) @ v, scores.logsumexp(-1)
    return out.masked_fill(empty, 0.0), log_sum.masked_fill(empty[..., 0], -torch.inf)


def test_blocks_by_flex_attention_are_the_same(monkeypatch):
    """As a GPU computes windows, ALiBi, soft caps and sinks."""
    monkeypatch.setattr("trainwright.train.kernels.attention_blocks.flex", lambda _device: plain_flex)
    for seed in range(20):
        check({**random_case(seed), "flex": True}, seed)


class ReplayTwice(Replay):
    """One ring for the forward and the backward pass."""

    def start(self, leaving: torch.Tensor, arriving: torch.Tensor, tag: int) -> list:
        if tag == KEYS and self.steps[KEYS] == len(self.blocks) - 1:
            self.steps[KEYS] = 0
        return super().start(leaving, arriving, tag)


def test_sinks_take_their_share_after_the_ring(monkeypatch):
    """`attend_ring` with its gradients by autograd, and FlexAttention's blocks, as a GPU takes for sinks."""
    monkeypatch.setattr("trainwright.train.kernels.attention_blocks.flex", lambda _device: plain_flex)
    for seed in range(5):
        case = {**random_case(seed), "sinks": True}
        q, k, v, grad = tensors(case, seed)
        slopes, sinks = alibi_slopes(case["heads"]) if case["alibi"] else None, torch.randn(case["heads"]) * 3
        leaves = [x.clone().requires_grad_() for x in (q, k, v, sinks)]
        wanted = right(case, *leaves[:3], case["documents"], slopes, leaves[3])
        wanted = [wanted.detach(), *torch.autograd.grad(wanted, leaves, grad)]
        ranks, half, documents = case["ranks"], case["half"], case["documents"]
        places = [chunk_positions(rank, ranks, half, q.device) for rank in range(ranks)]
        blocks = [pack(k[:, :, at], v[:, :, at]) for at in places]
        sums = [torch.zeros_like(block) for block in blocks]
        shares = torch.zeros_like(sinks)
        for rank, at in enumerate(places):
            layout = TokenLayout(
                at, torch.arange(case["length"]), documents, None if documents is None else documents[:, at]
            )
            mask = with_blocks(ring_mask(case["window"], case["cap"], slopes, True, layout, rank, ranks), q.device)
            ring = ReplayTwice(rank, blocks, sums)
            monkeypatch.setattr("trainwright.train.parallel.ring.GroupRing", lambda _name, ring=ring: ring)
            own = [x[:, :, at].clone().requires_grad_() for x in (q, k, v)] + [sinks.clone().requires_grad_()]
            out = attend_ring(*own[:3], AttentionMask(ring=mask), own[3], group="")
            query, _, _, share = torch.autograd.grad(out, own, grad[:, :, at])
            torch.testing.assert_close(out, wanted[0][:, :, at], atol=2e-5, rtol=1e-4)
            torch.testing.assert_close(query, wanted[1][:, :, at], atol=2e-5, rtol=1e-4)
            shares += share
        torch.testing.assert_close(shares, wanted[4], atol=2e-5, rtol=1e-4)
        for at, block in zip(places, sums, strict=True):
            kept = pack(wanted[2][:, :, at], wanted[3][:, :, at])
            torch.testing.assert_close(block, kept, atol=2e-5, rtol=1e-4)


def masks(case: dict) -> list[RingMask]:
    index, documents = torch.arange(case["length"]), case["documents"]
    places = [chunk_positions(rank, case["ranks"], case["half"], index.device) for rank in range(case["ranks"])]
    layouts = [TokenLayout(at, index, documents, None if documents is None else documents[:, at]) for at in places]
    return [ring_mask(case["window"], 0.0, None, False, one, rank, case["ranks"]) for rank, one in enumerate(layouts)]


def test_work_and_parts_say_what_is_visible():
    """A block without a visible pair is skipped, one without a hidden pair needs no mask, and within the parts that a
    kernel of variable lengths gets every pair (on the own tokens: every causal pair) is visible, and no other."""
    kinds = set()
    for seed in range(60):
        case = random_case(seed)
        seen = sequence_mask(case, case["documents"]).expand(case["rows"], 1, -1, -1)[:, 0]
        for mask in masks(case):
            for owner, (kind, longest_query, longest_key, count) in enumerate(mask.plan):
                span = piece(mask.rank, owner, mask.half)
                at, keys = (chunk_positions(r, case["ranks"], mask.half, None) for r in (mask.rank, owner))
                here = seen[:, at[span.queries]][:, :, keys[span.keys]]
                causal = torch.ones_like(here).tril() if owner == mask.rank else torch.ones_like(here)
                assert kind != SKIP or not here.any()
                assert kind == SKIP or here.any() or case["window"]
                assert kind != WHOLE or torch.equal(here, causal)
                kinds.add(kind)
                if kind == MIXED and not case["window"]:
                    starts = [side[: count + 1].long() for side in mask.parts[owner]]
                    assert [int(s.diff().max()) for s in starts] == [longest_query, longest_key]
                    number = [torch.arange(count).repeat_interleave(s.diff()).view(case["rows"], -1) for s in starts]
                    assert torch.equal(here, (number[0][:, :, None] == number[1][:, None, :]) & causal)
    assert kinds == {SKIP, WHOLE, MIXED}


class LiveBytes(TorchDispatchMode):
    """The most bytes that tensors made under it held at once, and the most blocks of a size."""

    def __init__(self, block: int) -> None:
        super().__init__()
        self.block, self.alive, self.most, self.most_blocks = block, {}, 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        given = [one.untyped_storage()._cdata for one in tree_leaves(args) if isinstance(one, torch.Tensor)]
        for storage in (one.untyped_storage() for one in tree_leaves(out) if isinstance(one, torch.Tensor)):
            if storage._cdata not in given:
                self.alive[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self.alive = {key: pair for key, pair in self.alive.items() if not pair[0].expired()}
        sizes = [size for _, size in self.alive.values()]
        self.most, self.most_blocks = max(self.most, sum(sizes)), max(self.most_blocks, sizes.count(self.block))
        return out


def test_a_rank_holds_two_blocks_beside_its_own_however_many_ranks_there_are():
    """And sends what the page and the predictor count."""
    peaks = []
    for ranks in (2, 4, 8):
        q, k, v, grad = (torch.randn(1, heads, 34, 5) for heads in (8, 1, 1, 8))
        mask = RingMask(1, ranks, 17, torch.tensor([[WHOLE, 34, 34, 0]]).repeat(ranks, 1))
        blocks, sums = [pack(k, v)] * ranks, [torch.zeros(340) for _ in range(ranks)]
        rings = [Replay(1, blocks, sums) for _ in range(2)]
        with LiveBytes(4 * 340) as forward:
            out, log_sum = ring_forward(q, k, v, mask, rings[0])
        whole = Whole(out, log_sum, grad, torch.zeros_like(log_sum))
        with LiveBytes(4 * 340) as backward:
            ring_backward(q, k, v, whole, mask, rings[1])
        assert forward.most_blocks == 2
        assert backward.most_blocks == 4, "two of keys and values, two of their gradients"
        peaks.append((forward.most, backward.most))
        shape = replace(lookup("llama3.1-8b-debug"), heads=8, kv_heads=1, head_dim=5)
        counted = context_traffic("ring", shape, ParallelPlan(cp=ranks), 34, width=4)
        assert [ring.sent for ring in rings] == [counted.forward, counted.backward]
        assert counted.passing == 4 * blocks[0].nbytes
    assert peaks[0] == peaks[1] == peaks[2]
