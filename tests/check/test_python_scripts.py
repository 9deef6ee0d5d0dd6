"""Training scripts: what divides the data, who writes a checkpoint, what it holds. The shapes are those of public
scripts, right and wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwright.check.engine import Selection, check

HEAD = "import torch\nimport torch.distributed as dist\nfrom torch.utils.data import DataLoader, Dataset\n"
STEP = "    loss = model(batch)\n    loss.backward()\n"

METHOD = (
    HEAD
    + """
class Trainer:
    def __init__(self, rank):
        dist.init_process_group("nccl")
        self.rank = rank

    def _save(self, epoch):
        torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, self.path)

    def train(self, epochs):
        if self.log and self.rank == 0:
            print("start")
        for epoch in range(epochs):
            self.loss.backward()
            if GUARD:
                self._save(epoch)


Trainer(0).train(3)
"""
)
LOADER = (
    HEAD
    + """
def setup(rank, world_size):
    dist.init_process_group("nccl", rank=rank, world_size=world_size)


def main(rank, world_size, model):
    setup(rank, world_size)
    options = {"batch_size": 64}
    train_loader = DataLoader(Shapes(TRAIN), **options)
    test_loader = DataLoader(Shapes(test=True), **options)
    for batch in train_loader:
        model(batch).backward()


class Shapes(Dataset):
    def __getitem__(self, index):
        return index
"""
)
CASES = [
    (METHOD.replace("GUARD", "epoch % 2 == 0"), ["PYT002 11"]),
    (METHOD.replace("GUARD", "self.rank == 0 and epoch % 2 == 0"), []),
    (METHOD.replace("GUARD", "self.master_process"), []),
    (METHOD.replace("GUARD", "True").replace("    def _save(self, epoch):\n", "    def _save(self, epoch):\n"
     "        if self.rank != 0:\n            return\n"), []),
    (METHOD.replace("GUARD", "True").replace("self.path)", "f'{self.path}/{self.rank}.pt')"), []),
    (LOADER.replace("TRAIN", "train=True"), ["PYT001 12"]),
    (LOADER.replace("TRAIN", "rank=rank, count=world_size"), []),
    (LOADER.replace("Shapes(TRAIN)", "make_dataset(rank, world_size)"), []),
    (LOADER.replace("TRAIN", "train=True").replace('{"batch_size": 64}', '{"sampler": pick()}'), []),
    (HEAD + "def f(model, batch):\n    dist.init_process_group('nccl')\n" + STEP, []),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_script(tmp_path: Path, text: str, expected: list[str]) -> None:
    path = tmp_path / "train.py"
    path.write_text(text)
    findings = check([str(path)], Selection(select=("PYT",))).findings
    assert [f"{f.code} {f.span.line}" for f in findings] == expected


def test_other_python_files_are_not_ours(tmp_path: Path) -> None:
    (tmp_path / "library.py").write_text("import torch\ntorch.save(1, 'x')\n")
    (tmp_path / "broken.py").write_text("init_process_group( .backward( \n")
    assert check([str(tmp_path)], Selection(select=("PYT",))).findings == []
