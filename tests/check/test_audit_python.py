"""PYT002 and PYT004 near their triggers: what another file, another module or the branch of an `if` decides."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from reported import shown

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]

HEAD = """import torch
import torch.distributed as dist
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
"""
EPOCHS = """
def main(args, rank, data, model):
    dist.init_process_group("nccl")
    sampler = DistributedSampler(data)
    loader = DataLoader(data, sampler=sampler)
    for epoch in range(args.epochs):
        for batch in loader:
            model(batch).backward()
    if rank == 0:
        torch.save(model, "a.pt")
"""


@pytest.mark.parametrize(
    ("old", "new", "level"),
    [
        ("", "", "warning"),
        ("        for batch", "        sampler.epoch = epoch\n        for batch", ""),
        ("DistributedSampler(data)", "DistributedSampler(data, seed=args.seed + epoch)", ""),
        ("from torch.utils.data.distributed", "from samplers", ""),
        ("def main", "parser.add_argument('--epochs', type=int, default=1)\ndef main", ""),
        ("def main", "parser.add_argument('--epochs', type=int, default=3)\ndef main", "warning"),
        ("range(args.epochs)", "range(1)", ""),
        ("range(args.epochs)", "range(0, 9, 1)", "warning"),
        ("def main", "def predict", ""),
        ("DistributedSampler(data)", "DistributedSampler(FakeData())", "info"),
        ("        for batch", "        start(loader, epoch)\n        for batch", "warning"),
        ("def main", "from engine import step\ndef main", "warning"),
        ("        for batch in loader:\n            model", "        step(loader, epoch)\n    model", "info"),
    ],
)
def test_who_sets_the_epoch(run: Run, old: str, new: str, level: str) -> None:
    findings = run("train.py", (HEAD + EPOCHS).replace(old, new), "PYT004")
    assert [finding.level for finding in findings] == [level] * bool(level)


@pytest.mark.parametrize(
    ("first", "level"),
    [
        ("class Trainer:\n    pass\n", "warning"),
        ("class FineTrainer(object):\n    pass\n", "warning"),
        ("from transformers import Trainer\n", ""),
        ("class OwnTrainer(Trainer):\n    pass\n", ""),
    ],
)
def test_a_trainer_of_the_script_is_no_framework(run: Run, first: str, level: str) -> None:
    name = "FineTrainer" if "Fine" in first else "OwnTrainer" if "Own" in first else "Trainer"
    findings = run("train.py", first + HEAD + EPOCHS + f"\n{name}()\n", "PYT004")
    assert [finding.level for finding in findings] == [level] * bool(level)


def test_a_function_of_another_file_may_set_the_epoch(run: Run) -> None:
    text = (
        HEAD + "from engine import start\n" + EPOCHS.replace("        for", "        start(loader, epoch)\n        for")
    )
    assert [finding.level for finding in run("train.py", text, "PYT004")] == ["info"]


LOADER = """
def main(data, args):
    dist.init_process_group("nccl")
    {}
    loader = DataLoader(data, sampler=sampler, shuffle=True)
    model(loader).backward()
"""


@pytest.mark.parametrize(
    ("made", "fix"),
    [
        ("sampler = DistributedSampler(data)", "remove shuffle=True: DistributedSampler shuffles"),
        ("sampler = DistributedSampler(data, shuffle=False)", "remove shuffle=True: the sampler sets the order"),
        ("sampler = WeightedRandomSampler(data, 9)", "remove shuffle=True: the sampler sets the order"),
        ("sampler: object = None\n    if args.many:\n        sampler = DistributedSampler(data)", ""),
        ("sampler, other = None, None\n    if args.many:\n        sampler = DistributedSampler(data)", ""),
        ("sampler = make_sampler(data)", ""),
    ],
)
def test_a_loader_that_is_given_a_sampler_and_shuffle(run: Run, made: str, fix: str) -> None:
    text = HEAD + LOADER.format(made)
    assert [finding.fix for finding in run("train.py", text, "PYT004")] == [fix] * bool(fix)
    assert run("own.py", text.replace("torch.utils.data import", "mine import"), "PYT004") == []


def test_a_parameter_is_not_the_sampler_of_another_function(run: Run) -> None:
    other = "def load(data, sampler=None):\n    return DataLoader(data, sampler=sampler, shuffle=True)\n"
    plain = LOADER.format("sampler = DistributedSampler(data)").replace(", shuffle=True", "")
    assert run("train.py", HEAD + other + plain, "PYT004") == []


BARRIER = """
def main(rank, model):
    dist.init_process_group("nccl")
    model().backward()
{}"""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("    if rank == 0:\n        dist.barrier()\n", ["warning PYT002 10"]),
        ("    if rank == 0:\n        dist.barrier()\n    else:\n        meet()\n", []),
        ("    if rank != 0:\n        synchronize()\n    if rank == 0:\n        dist.barrier()\n", []),
        ("    if rank == 0:\n        comm.barrier()\n", []),  # of MPI, perhaps of fewer ranks
        ("    if rank == 0:\n        self.barrier()\n", []),
        ("    if args.rank == 0:\n        dist.barrier()\nadd('--rank', help='node rank')\n", []),
    ],
)
def test_a_barrier_that_one_rank_alone_reaches(run: Run, body: str, expected: list[str]) -> None:
    assert shown(run("train.py", HEAD + BARRIER.format(body), "PYT002")) == expected
