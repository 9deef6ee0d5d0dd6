"""PYT002: functions that run a model in FSDP and that rank 0 alone calls."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from reported import shown

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]
SCRIPT = """import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def evaluate(net, loader):
    net.eval()
    return [net(x) for x in loader]

def main(plain, loader):
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    model = FSDP(plain)
    for x in loader:
        model(x).backward()
    if rank == 0:
        print(evaluate(model, loader))

main(None, [])
"""
METHOD = """import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

class Trainer:
    def __init__(self, model):
        dist.init_process_group("nccl")
        self.rank = dist.get_rank()
        self.model = FSDP(model)

    def score(self, loader):
        return [self.model(x) for x in loader]

    def train(self, loader):
        self.model(loader).backward()
        if self.rank == 0:
            print(self.score(loader))
"""


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("", "", ["warning PYT002 15"]),
        ("evaluate(model, loader)", "evaluate(loader=loader, net=model)", ["warning PYT002 15"]),
        ("    net.eval()", "    if len(loader) > 9:\n        return []", ["info PYT002 16"]),
        ("    if rank == 0:\n        print(", "    print(", []),
        ("evaluate(model, loader)", "evaluate(plain, loader)", []),
        ("    net.eval()", "    net = copy(net)", []),
        ("main(None", "def other(model):\n    if rank != 0:\n        evaluate(model, [])\n\nmain(None", []),
        ("[net(x) for x in loader]", "sum(p.numel() for p in net.parameters())", []),
        ("    net.eval()", "    with FSDP.summon_full_params(net):\n        pass", []),
    ],
)
def test_functions(run: Run, old: str, new: str, expected: list[str]) -> None:
    assert shown(run("train.py", SCRIPT.replace(old, new) if old else SCRIPT, "PYT002")) == expected


def test_methods(run: Run) -> None:
    assert shown(run("train.py", METHOD, "PYT002")) == ["info PYT002 16"]
    several = METHOD + "\nclass Teacher:\n    def __init__(self, model):\n        self.model = model\n"
    assert shown(run("train.py", several, "PYT002")) == []
