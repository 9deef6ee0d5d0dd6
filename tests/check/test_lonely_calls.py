"""PYT002: collectives that rank 0 alone calls, and state dicts of FSDP, which are collectives too."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]
HEAD = """import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group()
rank = dist.get_rank()
model = {wrap}(torch.nn.Linear(2, 2))
loss = model(1)
loss.backward()
"""
DDP, SHARDED = HEAD.format(wrap="DistributedDataParallel"), HEAD.format(wrap="FSDP")
SAVE = "if rank == 0:\n    torch.save(model.state_dict(), 'a.pt')\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (DDP + "if dist.get_rank() == 0:\n    dist.all_reduce(loss)\n", "rank 0 alone calls all_reduce"),
        (DDP + "if rank == 0:\n    dist.all_reduce(loss, dist.ReduceOp.AVG)\n", "all_reduce"),
        (DDP + "if rank == 0:\n    dist.broadcast(loss, src=0)\n", "broadcast"),
        (DDP + "if rank == 0:\n    for one in [1]:\n        dist.all_gather([loss], loss)\n", "all_gather"),
        (DDP + "def f():\n    if rank == 0:\n        dist.reduce_scatter(loss, [loss])\n", "reduce_scatter"),
        (SHARDED + SAVE, "state_dict of an FSDP model"),
    ],
)
def test_a_call_that_waits_for_the_others_is_a_warning(run: Run, text: str, words: str) -> None:
    (finding,) = run("train.py", text, "PYT002")
    assert finding.level == "warning"
    assert words in finding.message
    assert "10 minutes with NCCL" in finding.why


@pytest.mark.parametrize(
    "text",
    [
        DDP + "dist.all_reduce(loss)\nif rank == 0:\n    print(loss)\n",
        DDP + "if rank == 0:\n    dist.all_reduce(loss)\nelse:\n    dist.all_reduce(loss)\n",
        DDP + "if rank == 0:\n    dist.broadcast(loss, 0)\nif rank != 0:\n    receive(loss)\n",
        DDP + "if rank == 0:\n    dist.broadcast(loss, 0)\nelse:\n    wait()\n",
        DDP + "if rank == 0:\n    dist.all_reduce(loss, group=first)\n",
        DDP + "if rank == 0:\n    dist.all_reduce(loss, dist.ReduceOp.SUM, first)\n",
        DDP + "if rank == 0:\n    dist.all_reduce(loss, **options)\n",
        DDP + "if local_rank == 0:\n    dist.all_reduce(loss)\n",
        DDP + "if tp_rank == 0:\n    dist.all_reduce(loss)\n",
        DDP + "if rank == 0:\n    def f():\n        dist.all_reduce(loss)\n",
        DDP + "if rank == 0:\n    loss.broadcast(1)\n",
        DDP + "if rank == 0:\n    dist.broadcast(loss, 0)\nbroadcast_to_others(loss)\n",
        DDP + SAVE,
        SHARDED + "state = model.state_dict()\nif rank == 0:\n    torch.save(state, 'a.pt')\n",
        SHARDED + "FSDP.set_state_dict_type(model, StateDictType.LOCAL_STATE_DICT)\n" + SAVE,
        SHARDED + SAVE.replace("model.", "optimizer."),
    ],
)
def test_a_call_that_the_others_make_too_is_not_reported(run: Run, text: str) -> None:
    assert run("train.py", text, "PYT002") == []


@pytest.mark.parametrize(("text", "first"), [(DDP, "write it on rank 0"), (SHARDED, "call state_dict() on every rank")])
def test_the_fix_for_fsdp_keeps_the_state_on_every_rank(run: Run, text: str, first: str) -> None:
    text = text if "FSDP(" in text else text.replace("FullyShardedDataParallel as FSDP, ", "")
    (finding,) = run("train.py", text + "torch.save(model.state_dict(), 'a.pt')\n", "PYT002")
    assert finding.fix.startswith(first)
