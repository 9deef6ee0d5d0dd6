"""Dockerfiles, training scripts and DeepSpeed files that are right, or meant so, and were reported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from reported import loud, rows, shown

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]
CUDA = "FROM nvidia/cuda:12.4.1-devel-ubuntu22.04\n"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        # The variable is set for the whole image as well.
        (["ENV CUDA_HOME=/usr/local/cuda", "RUN export CUDA_HOME=/usr/local/cuda", "RUN ls $CUDA_HOME"], []),
        (["ENV A=1 CUDA_HOME=/usr/local/cuda", "RUN export CUDA_HOME=/usr/local/cuda", "RUN ls $CUDA_HOME"], []),
        (["ENV CUDA_HOME /usr/local/cuda", "RUN export CUDA_HOME=/usr/local/cuda", "RUN ls $CUDA_HOME"], []),
        (["ENV CUDA_HOME=/old", "RUN export CUDA_HOME=/usr/local/cuda", "RUN ls $CUDA_HOME"], ["warning IMG007 3"]),
        (["RUN export CUDA_HOME=/usr/local/cuda", "RUN ls $CUDA_HOME"], ["warning IMG007 2"]),
        # Nothing shows that the command is to run there, and not where the files were copied to.
        (["WORKDIR /app", "COPY . .", "RUN cd /tmp", "RUN pip install ."], []),
        (["WORKDIR /app", "COPY . /app/src", "RUN cd /app/src", "RUN pip install ."], ["warning IMG007 4"]),
        (["RUN git clone https://github.com/a/apex", "RUN cd apex", "RUN pip install ."], ["warning IMG007 3"]),
    ],
)
def test_instructions_without_a_loss(run: Run, lines: list[str], expected: list[str]) -> None:
    assert loud(run("Dockerfile", CUDA + "\n".join(lines) + "\n", "IMG007")) == expected


def test_a_shell_of_another_environment(run: Run) -> None:
    first = 'SHELL ["conda", "run", "-n", "a", "/bin/bash", "-c"]\nRUN pip install torch==1.13.1\n'
    second = 'SHELL ["conda", "run", "-n", "b", "/bin/bash", "-c"]\n'
    last = "RUN pip install torchvision==0.16.0\n"
    assert loud(run("Dockerfile", CUDA + first + last, "IMG006")) == ["warning IMG006 4"]
    assert loud(run("Dockerfile", CUDA + first + second + last, "IMG006")) == []


SCRIPT = """import numpy as np
import torch, torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset, TensorDataset
from mydata import Images
dist.init_process_group("nccl")
{made}
loader = DataLoader(data, sampler={sampler})
for epoch in range(10):
    {first}
    for batch in loader:
        batch.sum().backward()
    if dist.get_rank() == 0:
        torch.save({{}}, "checkpoint.pt")
"""
OF_RANDOM = """class Data(Dataset):
    def __init__(self, size):
        self.data = [(torch.rand(20), torch.rand(1)) for _ in range(size)]
    def __len__(self):
        return len(self.data)
    def __getitem__(self, index):
        return self.data[index]
data = Data(2048)"""
OF_NUMPY = OF_RANDOM.replace("[(torch.rand(20), torch.rand(1)) for _ in range(size)]", "np.random.randn(size, 3)")
AUGMENTED = """class Data(Dataset):
    def __init__(self, paths):
        self.paths = paths
    def __getitem__(self, index):
        image = torch.load(self.paths[index])
        return image.flip(0) if torch.rand(1) > 0.5 else image
data = Data([])"""


@pytest.mark.parametrize(
    ("made", "sampler", "first", "level"),
    [
        ("data = Images()", "DistributedSampler(data)", "pass", "warning"),
        (AUGMENTED, "DistributedSampler(data)", "pass", "warning"),
        (OF_RANDOM, "DistributedSampler(data)", "pass", "info"),  # their order teaches nothing
        (OF_NUMPY, "DistributedSampler(data)", "pass", "info"),
        ("x = torch.randn(9, 3)\ndata = TensorDataset(x, x)", "DistributedSampler(data)", "pass", "info"),
        (
            "from sklearn.datasets import make_classification\nX, y = make_classification()\n"
            "data = TensorDataset(torch.tensor(X), torch.tensor(y))",
            "DistributedSampler(data)", "pass", "info",
        ),
        ("data = Images()\nsampler = DistributedSampler(data)", "sampler", "sampler.seed = epoch", None),
        ("data = Images()\nSEED = 1", "DistributedSampler(data, seed=SEED)", "pass", "warning"),
    ],
)  # fmt: skip
def test_data_whose_order_matters(run: Run, made: str, sampler: str, first: str, level: str | None) -> None:
    findings = run("train.py", SCRIPT.format(made=made, sampler=sampler, first=first), "PYT004")
    assert [one.level for one in findings] == ([level] if level else [])


def test_samplers_that_are_made_anew(run: Run) -> None:
    head = SCRIPT.partition("{made}")[0]
    by_seed = (
        "def make(number):\n    data = Images()\n"
        "    return DataLoader(data, sampler=DistributedSampler(data, seed=number))\n"
        "for epoch in range(10):\n    for batch in make(epoch):\n        batch.backward()\n"
        "    torch.save({}, 'rank.pt')\n"
    )
    assert run("a.py", head + by_seed, "PYT004") == []
    by_order = (
        "for epoch in range(10):\n    part = Subset(Images(), torch.randperm(100))\n"
        "    for batch in DataLoader(part, sampler=DistributedSampler(part)):\n        batch.backward()\n"
        "    torch.save({}, 'rank.pt')\n"
    )
    assert loud(run("b.py", head + by_order, "PYT004")) == []
    by_turn = (
        "def make(part):\n    return DataLoader(part, sampler=DistributedSampler(part))\n"
        "for epoch in range(10):\n    for batch in make(Images()):\n        batch.backward()\n"
        "    torch.save({}, 'rank.pt')\n"
    )
    assert loud(run("c.py", head + by_turn, "PYT004")) == []
    by_rollout = (
        "for turn in range(10):\n    part = Images()\n    loader = DataLoader(part, sampler=DistributedSampler(part))\n"
        "    for epoch in range(4):\n        for batch in loader:\n            batch.backward()\n"
        "    torch.save({}, 'rank.pt')\n"
    )
    assert loud(run("d.py", head + by_rollout, "PYT004")) == []


@pytest.mark.parametrize(
    ("remark", "level"),
    [
        ("# the same order in every epoch, on purpose", "info"),
        ("# deterministic: runs are compared", "info"),
        ("# the data of this rank", "warning"),
    ],
)
def test_an_order_that_is_meant(run: Run, remark: str, level: str) -> None:
    made = f"data = Images()\n{remark}\nsampler = DistributedSampler(data)"
    findings = run("train.py", SCRIPT.format(made=made, sampler="sampler", first="pass"), "PYT004")
    assert [one.level for one in findings] == [level]


def test_a_key_that_was_switched_off_is_removed(run: Run) -> None:
    text = '{"train_batch_size": 8, "zero_optimization": {"stage": 2, "_offload_optimizer": {"device": "cpu"}}}\n'
    findings = run("ds.json", text, "DSP001")
    assert shown(findings) == ["error DSP001 1"]
    assert findings[0].fix == "remove it"


def test_notes_are_not_places_of_a_warning(tmp_path: Path) -> None:
    """One file decides it, the other does not: it must not be listed under the warning of the first."""
    for name, made in (
        ("a.py", "data = Images()"),
        ("b.py", "data = Images()  # FakeData"),
        ("c.py", "data = Images()"),
    ):
        (tmp_path / name).write_text(SCRIPT.format(made=made, sampler="DistributedSampler(data)", first="pass"))
    problems = [
        (one["level"], Path(one["file"]).name, len(one["also"])) for one in rows(tmp_path, "--select", "PYT004")
    ]
    assert problems == [("warning", "a.py", 1), ("info", "b.py", 0)]


@pytest.mark.parametrize(
    ("key", "level"),
    [
        ("1234567890abcdef1234567890abcdef12345678", "info"),  # nobody's
        ("3f9a61c07be2d845903c1e6fa7b2d4850c91e6f3", "warning"),
    ],
)
def test_a_key_that_is_nobodys(run: Run, key: str, level: str) -> None:
    for name, text in (
        ("a.sh", f"#!/bin/bash\nwandb login {key}\npython train.py\n"),
        ("Dockerfile", f"{CUDA}RUN wandb login {key}\n"),
    ):
        assert [one.level for one in run(name, text, "SEC005")] == [level]


@pytest.mark.parametrize(
    ("more", "fix"),
    [
        ("", "move it to the top of the file, as gradient_clipping"),
        (', "gradient_clipping": 1.0', "remove it: gradient_clipping at the top does it"),
    ],
)
def test_clipping_that_is_there_already(run: Run, more: str, fix: str) -> None:
    optimizer = '{"type": "AdamW", "params": {"lr": 1e-3, "max_grad_norm": 1.0}}'
    (finding,) = run(
        "ds.json", f'{{"train_batch_size": 8, "bf16": {{"enabled": true}}, "optimizer": {optimizer}{more}}}\n', "DSP"
    )
    assert finding.fix == fix
