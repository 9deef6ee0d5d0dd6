"""Data that every rank reads alike (PYT001), files that every rank writes (PYT002), and programs that are right on one
node only, beside a launcher of several (JOB008)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from reported import loud, rows

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]

STREAM = """import glob
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

class Lines(IterableDataset):
    def __init__(self, paths):
        self.paths = sorted(paths)

    def __iter__(self):
        info = get_worker_info()
        for path in self.paths[info.id :: info.num_workers]:
            yield from open(path)

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
model = DDP(torch.nn.Linear(2, 2))
paths = glob.glob("/data/*.txt")
data = Lines(paths)
for x in DataLoader(data, batch_size=8, num_workers=4):
    model(x).backward()
"""


def test_a_stream_that_knows_no_rank(run: Run) -> None:
    assert loud(run("train.py", STREAM, "PYT001")) == ["warning PYT001 21"]
    whole = STREAM.replace("[info.id :: info.num_workers]", "").replace("        info = get_worker_info()\n", "")
    assert loud(run("train.py", whole, "PYT001")) == ["warning PYT001 20"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[info.id ::", "[dist.get_rank() + info.id ::"),
        ("Lines(paths)", "Lines(paths[rank::world])"),
        ('glob.glob("/data/*.txt")', 'glob.glob(f"/data/{rank}/*.txt")'),
        ("sorted(paths)", "random.sample(paths, 9)"),
        ("DDP(torch.nn.Linear(2, 2))", "torch.nn.Linear(2, 2)"),
        ("rank, world =", "mesh = init_device_mesh('cuda', (2, 4))\nrank, world ="),
        ("yield from open(path)", "yield from self.paths"),
        ("data = Lines(paths)", "data = split_dataset_by_node(Lines(paths), rank, world)"),
    ],
)
def test_a_stream_that_may_be_divided(run: Run, old: str, new: str) -> None:
    assert old in STREAM
    assert loud(run("train.py", STREAM.replace(old, new), "PYT001")) == []


GIVEN = (
    STREAM.replace("(self, paths):", "(self, paths, part, rank, world=1):")
    .replace(
        "self.paths = sorted(paths)",
        "self.paths, self.part = sorted(paths), part\n        self.rank, self.world = rank, world",
    )
    .replace("Lines(paths)", "Lines(paths, 4, rank, world=world)")
)


def test_a_stream_that_is_given_a_rank_and_does_not_use_it(run: Run) -> None:
    assert loud(run("train.py", GIVEN, "PYT001")) == ["warning PYT001 22"]
    for old, new in (
        ("[info.id ::", "[self.rank + info.id ::"),
        (
            "yield from open(path)",
            "yield from open(self.path_of(path))\n\n    def path_of(self, path):\n        return path + self.world",
        ),
        ("sorted(paths)", "sorted(paths)[rank::world]"),
        ("self.part = sorted(paths), part", "self.part = sorted(paths), (part, rank)"),
        ("Lines(paths, 4, rank, world=world)", "Lines(paths[rank:], 4, rank, world=world)"),
        ("Lines(paths, 4, rank, world=world)", "Lines(paths, rank, rank, world=world)"),
        ("info = get_worker_info()", "info = getattr(self, 'rank')"),
        ("yield from open(path)", "yield from lines_of(open(path), self)"),  # a function of another file
        ("dist.init_process_group", "class More(Lines):\n    pass\n\ndist.init_process_group"),
    ):
        assert old in GIVEN
        text = GIVEN.replace(old, new)
        if "rank, rank" in new:  # the part is read then
            text = text.replace("for path in self.paths[", "for path in self.paths[self.part :][")
        assert loud(run("train.py", text, "PYT001")) == [], new


MAP = """import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torchvision import datasets

def main():
    dist.init_process_group("nccl")
    model = DDP(torch.nn.Linear(2, 2))
    data = datasets.ImageFolder("/data")
    loader = DataLoader(data, shuffle=True)
    for epoch in range(9):
        for x, y in loader:
            model(x).backward()
        torch.save(model.module.state_dict(), "/data/last.pt")

if __name__ == "__main__":
    main()
"""


def test_what_the_script_itself_decides_is_a_warning(run: Run) -> None:
    assert loud(run("train.py", MAP, "PYT001")) == ["warning PYT001 11"]
    assert loud(run("train.py", MAP, "PYT002")) == ["warning PYT002 15"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('    dist.init_process_group("nccl")', '    if several():\n        dist.init_process_group("nccl")'),
        ("DDP(torch.nn.Linear(2, 2))", "torch.nn.Linear(2, 2)"),
        ('if __name__ == "__main__":\n    main()\n', ""),
    ],
)
def test_what_others_may_decide_is_a_note(run: Run, old: str, new: str) -> None:
    text = MAP.replace(old, new)
    assert loud(run("train.py", text, "PYT002")) == []
    assert loud(run("train.py", text, "PYT001")) == ([] if new else ["warning PYT001 11"])


@pytest.mark.parametrize(
    ("code", "old", "new"),
    [
        ("PYT001", '"/data"', 'f"/data/{dist.get_rank()}"'),
        ("PYT001", '"/data"', '"/data/" + os.environ["SLURM_PROCID"]'),
        ("PYT001", '"/data"', '"/data/" + os.environ["OMPI_COMM_WORLD_RANK"]'),
        ("PYT001", '"/data"', 'f"/data/{os.environ["PMI_RANK"]}"'),
        ("PYT001", '"/data"', "parts[comm.Get_rank()]"),
        ("PYT001", 'ImageFolder("/data")', "part(files, global_rank, num_processes)"),
        ("PYT001", 'ImageFolder("/data")', "part(files, state.process_index)"),
        ("PYT001", 'datasets.ImageFolder("/data")', "TensorDataset(torch.randn(9, 2))"),
        ("PYT002", '"/data/last.pt"', "path"),
    ],
)
def test_what_ranks_do_not_share_is_no_warning(run: Run, code: str, old: str, new: str) -> None:
    text = MAP.replace(old, new).replace("def main():", "def main(path='a.pt'):")
    text = text.replace("    main()", "    main(f'{RANK}.pt')")
    assert loud(run("train.py", text, code)) == []


PROGRAM = """import os
import torch
import torch.distributed as dist
from torch.utils.data import DistributedSampler
dist.init_process_group("nccl")
rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
number = dist.get_rank()
{lines}
torch.nn.Linear(2, 2).cuda()(1).backward()
"""
LAUNCHER = """#!/bin/bash
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=96
srun torchrun --nnodes={nodes} --nproc-per-node=8 --rdzv-backend=c10d --rdzv-id=1 --rdzv-endpoint=$HEAD:29500 train.py
"""


@pytest.mark.parametrize(
    ("lines", "nodes", "levels"),
    [
        ("torch.cuda.set_device(dist.get_rank())", 2, ["error"]),
        ("torch.cuda.set_device(number)", 2, ["error"]),
        ("torch.cuda.set_device(int(os.environ['RANK']))", 2, ["error"]),
        ("torch.cuda.set_device(number)", 1, []),
        ("torch.cuda.set_device(number % 8)", 2, []),
        ("torch.cuda.set_device(local_rank)", 2, []),
        ("s = DistributedSampler([1], num_replicas=torch.cuda.device_count(), rank=local_rank)", 4, ["warning"]),
        ("s = DistributedSampler([1], rank=local_rank)", 4, ["warning"]),
        ("s = DistributedSampler([1], rank=local_rank)", 1, []),
        ("s = DistributedSampler([1], num_replicas=dist.get_world_size(), rank=rank)", 4, []),
        ("s = DistributedSampler(part(node_rank), num_replicas=8, rank=local_rank)", 4, []),
    ],
)
def test_a_program_that_is_right_on_one_node_only(tmp_path: Path, lines: str, nodes: int, levels: list[str]) -> None:
    (tmp_path / "train.py").write_text(PROGRAM.format(lines=lines))
    (tmp_path / "job.sbatch").write_text(LAUNCHER.format(nodes=nodes))
    assert [row["level"] for row in rows(tmp_path, "--select", "JOB008")] == levels


VALIDATED = """import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import datasets


def main(args, net):
    dist.init_process_group("nccl")
    train, held_out = datasets.ImageFolder("/fsx/a"), datasets.ImageFolder("/fsx/b")
    {train}
    {valid}
    model = DistributedDataParallel(net)
    for epoch in range(args.epochs):
        for images, labels in batches:
            model(images).sum().backward()


main(None, None)
"""
ALL = "batches = DataLoader(train, 32, shuffle=True)"
PART = "batches = DataLoader(train, 32, sampler=DistributedSampler(train))"
CHECKED = "val_batches = DataLoader(held_out, 32, sampler=DistributedSampler(held_out, shuffle=False))"


@pytest.mark.parametrize(
    ("train", "valid", "expected"),
    [
        (ALL, CHECKED, ["warning PYT001 10"]),
        (ALL, "val_sampler = DistributedSampler(held_out)\n    val_batches = DataLoader(held_out, sampler=val_sampler)",
         ["warning PYT001 10"]),
        (ALL, "loaders = {'b': DataLoader(val_data, sampler=DistributedSampler(val_data))}", ["warning PYT001 10"]),
        (f"train_sampler = None\n    {ALL}", CHECKED, ["warning PYT001 11"]),
        (f"{ALL}  # no sampler yet", CHECKED, ["warning PYT001 10"]),
        (f"train_sampler = make(train)\n    {ALL}\n    train = list(train_sampler)", CHECKED, []),
        (f"train_sampler = None\n    if args.many:\n        train_sampler = make()\n    {ALL}", CHECKED, []),
        ("options = {'shuffle': True}\n    batches = DataLoader(train, **options)", CHECKED, ["warning PYT001 11"]),
        ("options = dict(shuffle=True)\n    batches = DataLoader(train, **options)", "", ["warning PYT001 11"]),
        ("options = dict(shuffle=True)\n    fill(options)\n    batches = DataLoader(train, **options)", CHECKED, []),
        ("options = {**sampler, 'shuffle': True}\n    batches = DataLoader(train, **options)", CHECKED, []),
        ("batches = DataLoader(train, sampler=None, shuffle=True)", "", ["warning PYT001 10"]),
        ("batches = DataLoader(train, sampler=torch.utils.data.RandomSampler(train))", "", ["warning PYT001 10"]),
        ("batches = DataLoader(train, sampler=RandomSampler(train) if args.one else Part(train))", "", []),
        ("sampler = RandomSampler(train)\n    batches = DataLoader(train, sampler=sampler)", "", []),
        (ALL, "val_sampler = DistributedSampler(val) if args.many else None\n"
         "    val_batches = DataLoader(val, sampler=val_sampler)", ["warning PYT001 10"]),
        (ALL, "", ["warning PYT001 10"]),
        (PART, CHECKED, []),
        (PART, "val_batches = DataLoader(held_out, 32, shuffle=True)", []),
        (f"{ALL}\n    if args.many:\n        {PART}", CHECKED, []),
        (ALL, "more = DataLoader(retrieval, 32, sampler=DistributedSampler(retrieval))", []),
        (ALL, "more = DataLoader(held_out, 32, sampler=DistributedSampler(held_out))", []),  # trained on, too?
        ("sampler = DistributedSampler(train)\n    batches = make(train, sampler)", CHECKED, []),
        (f"train = train.shard(8, 1)\n    {ALL}", CHECKED, []),
    ],
)  # fmt: skip
def test_a_sampler_of_the_validation_divides_no_training_data(
    run: Run, train: str, valid: str, expected: list[str]
) -> None:
    assert loud(run("fit.py", VALIDATED.format(train=train, valid=valid), "PYT001")) == expected


RETURNED = (
    MAP.replace("import datasets\n", "import datasets\nfrom torch.utils.data.distributed import DistributedSampler\n")
    .replace('    data = datasets.ImageFolder("/data")\n', "")
    .replace("    loader = DataLoader(data, shuffle=True)\n", "    loader, shares = load()\n")
    .replace("        for x, y in loader", "        shares.set_epoch(epoch)\n        for x, y in loader")
    .replace(
        "def main",
        'def load():\n    data = datasets.ImageFolder("/data")\n    sampler = DistributedSampler(data)\n'
        "    loader = DataLoader(data, shuffle=True)\n    return loader, sampler\n\ndef main",
    )
)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("", "", ["warning PYT001 11"]),
        ("data, shuffle=True", "data, sampler=sampler", []),
        ("shares = load()\n", "shares = load()\n    loader = DataLoader(loader.dataset, sampler=shares)\n", []),
        ("    loader, shares = load()", "    both = load()\n    loader, shares = both", []),
        ("    loader, shares = load()", "    loader, shares = other()", []),
    ],
)  # fmt: skip
def test_sampler_that_a_function_returns(run: Run, old: str, new: str, expected: list[str]) -> None:
    """Who receives it sets its epoch only: no loader is given it."""
    assert loud(run("train.py", RETURNED.replace(old, new), "PYT001")) == expected
