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


SHARDED_2 = """import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard
dist.init_process_group()
rank = dist.get_rank()
model = torch.nn.Linear(2, 2)
fully_shard(model)
loss = model(1)
loss.backward()
full = StateDictOptions(full_state_dict=True)
"""
FIRST = "def is_main():\n    return not dist.is_initialized() or dist.get_rank() == 0\n"
MEAN = "def mean(x):\n    dist.all_reduce(x)\n    return x\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (DDP + "if step % 50 == 0 and rank == 0:\n    dist.all_reduce(loss)\n", "all_reduce"),
        (DDP + "main = rank == 0\nif main:\n    dist.all_reduce(loss)\n", "all_reduce"),
        (DDP + "import os\nr = int(os.environ['RANK'])\nif r == 0:\n    dist.gather(loss)\n", "gather"),
        (DDP + FIRST + "if is_main():\n    dist.all_reduce(loss)\n", "all_reduce"),
        (DDP + "def f():\n    if rank != 0:\n        return\n    dist.all_reduce(loss)\nf()\n", "all_reduce"),
        (DDP + "dist.all_reduce(loss)\nif rank == 0:\n    dist.all_reduce(loss)\n", "all_reduce"),
        (DDP + "if rank == 0:\n    print(1)\n    dist.barrier()\ndist.barrier()\n", "this barrier"),
        (DDP + "if rank != 0:\n    print(1)\nif rank == 0:\n    dist.all_reduce(loss)\n", "all_reduce"),
        (DDP + MEAN + "if rank == 0:\n    print(mean(loss))\n", "rank 0 alone calls mean, which calls all_reduce"),
        (SHARDED + "if rank == 0:\n    print(model(2))\n", "rank 0 alone runs a model in FSDP"),
        (SHARDED + "if rank == 0:\n    a = FSDP.optim_state_dict(model, b)\n", "optim_state_dict"),
        (SHARDED_2 + "if rank == 0:\n    a = get_model_state_dict(model, options=full)\n", "get_model_state_dict"),
        (SHARDED_2 + "if rank == 0:\n    dcp.save({'a': 1}, checkpoint_id='a')\n", "torch.distributed.checkpoint"),
    ],
)
def test_rank_0_is_found_under_other_conditions_too(run: Run, text: str, words: str) -> None:
    (finding,) = run("train.py", text, "PYT002")
    assert finding.level == "warning"
    assert words in finding.message


@pytest.mark.parametrize(
    "text",
    [
        DDP + "if rank == 0 or step == 1:\n    dist.all_reduce(loss)\n",
        DDP + "main = local_rank == 0\nif main:\n    dist.all_reduce(loss)\n",
        DDP + "if step % 2 == 0 and rank == 0:\n    dist.broadcast(loss, 0)\nif rank > 0:\n    worker()\n",
        DDP + "if rank == 0:\n    dist.broadcast(loss, 0)\n    raise SystemExit\ndist.broadcast(loss, 0)\n",
        DDP + MEAN + "mean(loss)\nif rank == 0:\n    print(mean(loss))\n",
        DDP + MEAN + "other(mean)\nif rank == 0:\n    print(mean(loss))\n",
        DDP + "if rank != 0:\n    dist.barrier()\nload()\nif rank == 0:\n    dist.barrier()\n",
        SHARDED_2 + "if rank == 0:\n    a = get_model_state_dict(model)\n",
        SHARDED_2 + "if rank == 0:\n    dcp.save({'a': 1}, checkpoint_id='a', no_dist=True)\n",
        SHARDED_2 + "a = get_model_state_dict(model, options=full)\nif rank == 0:\n    print(a)\n",
        DDP + "if rank == 0:\n    print(model(2))\n",
    ],
)
def test_other_conditions_leave_the_call_to_all_ranks(run: Run, text: str) -> None:
    assert run("train.py", text, "PYT002") == []


SKIP = """for x in [1, 2]:
    loss = model(x)
    {lines}
    loss.backward()
"""


@pytest.mark.parametrize("test", ["not torch.isfinite(loss)", "torch.isnan(loss).any()", "math.isnan(loss.item())"])
def test_a_rank_that_skips_its_backward_pass_alone(run: Run, test: str) -> None:
    skip = SKIP.format(lines=f"if {test}:\n        continue")
    for text in (DDP, SHARDED):
        (finding,) = run("train.py", text + skip, "PYT002")
        assert "skips backward alone" in finding.message
        assert finding.level == "warning"


@pytest.mark.parametrize(
    "lines",
    [
        "bad = torch.isnan(loss).float()\n    dist.all_reduce(bad)\n    if torch.isnan(loss) or bad:\n        continue",
        "if not torch.isfinite(loss):\n        raise SystemExit",
        "if torch.isnan(x):\n        continue",
        "loss.backward()\n    if torch.isnan(loss):\n        continue",
        "if torch.isnan(loss):\n        loss = loss * 0",
        "if ranks_agree(torch.isnan(loss)):\n        continue",
    ],
)
def test_ranks_that_skip_together_or_not_at_all(run: Run, lines: str) -> None:
    assert run("train.py", DDP + SKIP.format(lines=lines), "PYT002") == []


MADE_BY_A_FUNCTION = """import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType


def build(net):
    RETURN


def write(net, path):
    if dist.get_rank() == 0:
        BODY


dist.init_process_group()
net = build(torch.nn.Linear(2, 2))
net(1).backward()
write(net, "all.pt")
"""
PLAIN, GATHERED = "torch.save(net.state_dict(), path)", "with FSDP.state_dict_type(net, StateDictType.FULL_STATE_DICT):"
SOMETIMES = "if SMALL:\n        return net\n    return FSDP(net)"
BRANCH = "    if dist.get_rank() == 0:\n        BODY"
WRITTEN = BRANCH.replace("BODY", "torch.save(state, path)")


@pytest.mark.parametrize(
    "text",
    [
        MADE_BY_A_FUNCTION.replace("RETURN", "return FSDP(net)").replace("BODY", PLAIN),
        MADE_BY_A_FUNCTION.replace("RETURN", "return made(net)").replace("BODY", f"{GATHERED}\n            {PLAIN}"),
    ],
)
def test_a_model_that_a_function_shards(run: Run, text: str) -> None:
    (finding,) = run("train.py", text, "PYT002")
    assert (finding.level, "state_dict of an FSDP model" in finding.message) == ("warning", True)


@pytest.mark.parametrize(
    "text",
    [
        MADE_BY_A_FUNCTION.replace("RETURN", "return made(net)").replace("BODY", PLAIN),
        MADE_BY_A_FUNCTION.replace("RETURN", "return FSDP(net) if SHARD else net").replace("BODY", PLAIN),
        MADE_BY_A_FUNCTION.replace("RETURN", SOMETIMES).replace("BODY", PLAIN),
        MADE_BY_A_FUNCTION.replace("RETURN", "return FSDP(net)").replace(
            BRANCH, "    state = net.state_dict()\n" + WRITTEN
        ),
    ],
)
def test_a_state_that_all_ranks_gather(run: Run, text: str) -> None:
    assert run("train.py", text, "PYT002") == []


RENAMED = """import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def write(net, path):
    TEMPORARY
    torch.save(net.module.state_dict(), part)
    RENAME


dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
net = DDP(torch.nn.Linear(2, 2), device_ids=[local_rank])
for epoch in range(9):
    net(1).backward()
    CALL
"""


def renamed(temporary: str, rename: str, call: str = 'write(net, "out/last.pt")') -> str:
    return RENAMED.replace("TEMPORARY", temporary).replace("RENAME", rename).replace("CALL", call)


@pytest.mark.parametrize(
    "text",
    [
        renamed('part = path + ".tmp"', "os.replace(part, path)"),
        renamed('part = f"{path}.tmp"', "os.rename(part, path)"),
        renamed('part = path.with_name("temp.pt")', "part.replace(path)"),
    ],
)
def test_a_temporary_file_of_one_name_for_all_ranks(run: Run, text: str) -> None:
    (finding,) = run("train.py", text, "PYT002")
    assert (finding.level, finding.span.line) == ("warning", 9)


@pytest.mark.parametrize(
    "text",
    [
        renamed('part = f"{path}.tmp{os.getpid()}"', "os.replace(part, path)"),
        renamed('part = f"{path}.tmp{dist.get_rank()}"', "os.replace(part, path)"),
        renamed(
            'part = path + ".tmp"', "os.replace(part, path)", 'if local_rank == 0:\n        write(net, "out/last.pt")'
        ),
        renamed('part = path + ".tmp"', "os.replace(part, path)", 'write(net, f"out/{local_rank}.pt")'),
        renamed('part = "/tmp/weights.pt"', "load(part)"),
    ],
)
def test_a_temporary_file_that_one_rank_alone_writes(run: Run, text: str) -> None:
    assert [one for one in run("train.py", text, "PYT002") if one.level != "info"] == []


EARLY = """import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def validate(net, batches):
    with torch.no_grad():
        return sum(net(one).mean().item() for one in batches) / len(batches)


dist.init_process_group("nccl")
net = DDP(torch.nn.Linear(2, 2))
parts = DistributedSampler(seen)
train = DataLoader(seen, sampler=parts)
held_out = DataLoader(unseen, SAMPLER)
lowest, patience = 9.0, 3
for epoch in range(100):
    parts.set_epoch(epoch)
    for batch in train:
        net(batch).mean().backward()
    RESULT
    if result < lowest:
        lowest, patience = result, 3
    else:
        patience -= 1
    if STOP:
        break
"""


def early(
    sampler: str = "sampler=DistributedSampler(unseen)",
    result: str = "result = validate(net, held_out)",
    stop: str = "patience == 0",
) -> str:
    return EARLY.replace("SAMPLER", sampler).replace("RESULT", result).replace("STOP", stop)


@pytest.mark.parametrize("text", [early(), early(stop="result < 0.01"), early(stop="epoch > 9 and not patience")])
def test_a_rank_that_stops_by_itself(run: Run, text: str) -> None:
    (finding,) = run("train.py", text, "PYT002")
    assert (finding.level, "each rank leaves the loop" in finding.message) == ("warning", True)


@pytest.mark.parametrize(
    "text",
    [
        early(sampler="batch_size=4"),
        early(stop="epoch == last"),
        early(result="result = validate(net, held_out)\n    dist.all_reduce(torch.tensor(result))"),
        early(result="result = mean_of_all(validate(net, held_out))\n    torch.cuda.synchronize()"),
        early(result="result = elsewhere(net, held_out)"),
        early(result="result = epoch / 100"),
        early(result="loss, steps = validate(net, held_out)\n    result = epoch", stop="steps > 900"),
    ],
)
def test_ranks_that_stop_together(run: Run, text: str) -> None:
    assert [one for one in run("train.py", text, "PYT002") if "leaves" in one.message] == []
