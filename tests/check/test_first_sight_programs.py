"""Training programs that no rule had seen (sets F and T): what was noise or false there,
and beside it what must still be found. Each sample is written for this test and holds the pattern only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from reported import rows, shown

from trainwright.check.finding import Finding


@pytest.fixture
def run(run: Callable[..., list[Finding]]) -> Callable[..., list[str]]:
    return lambda name, text, *codes: shown(run(name, text, *codes))


SCRIPT = """import torch, torch.distributed as dist
from torch.utils.data import DataLoader
dist.init_process_group("nccl")
{body}
loss.backward()
"""

TWINS = """
class Stopper:
    def choose(self, loss):
        return self.judge(loss)
    def judge(self, loss):
        torch.save({}, "best.pt")
def fit(model):
    stopper.choose(1)
def fit_with_ddp(local_rank, model):
    if local_rank == 0:
        stopper.choose(1)
"""


def test_a_save_on_the_way_without_a_process_group_is_one_of_one_process(run) -> None:  # type: ignore[no-untyped-def]
    assert run("a.py", SCRIPT.format(body=TWINS), "PYT002") == []
    for test in ("not args.distributed", "world_size == 1", "not self.ddp"):
        assert run("a.py", SCRIPT.format(body=f"if {test}:\n    torch.save(state, path)"), "PYT002") == []
    unguarded = TWINS.replace("fit_with_ddp", "fit_on_nodes")
    assert run("a.py", SCRIPT.format(body=unguarded), "PYT002") == ["info PYT002 9"]


def test_saves_of_one_script_are_one_finding(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(SCRIPT.format(body="torch.save(a, 'a.pt')\ntorch.save(b, 'b.pt')"))
    [finding] = rows(tmp_path, "--select", "PYT002")
    assert [place["line"] for place in finding["also"]] == [5]


def test_a_dataset_that_may_divide_itself_is_not_reported(run) -> None:  # type: ignore[no-untyped-def]
    assert run("a.py", SCRIPT.format(body="loader = DataLoader(FlinkSource(context), batch_size=8)"), "PYT001") == []
    assert run("a.py", SCRIPT.format(body="loader = DataLoader(FlinkSource(c), shuffle=False)"), "PYT001") == []
    shuffled = "loader = DataLoader(MyData(args), batch_size=8, shuffle=True)"
    assert run("a.py", SCRIPT.format(body=shuffled), "PYT001") == ["info PYT001 4"]
    local = "class MyData:\n    def __getitem__(self, i): return i\nloader = DataLoader(MyData(args), batch_size=8)"
    assert run("a.py", SCRIPT.format(body=local), "PYT001") == ["info PYT001 6"]


RESUME = (
    'opts = [torch.optim.AdamW(p)]\nif resume:\n    ck = torch.load("a.pt")\nif rank == 0:\n    torch.save({}, "a.pt")'
)


def test_optimizers_may_be_saved_in_a_list(run) -> None:  # type: ignore[no-untyped-def]
    saved = '{{"model": m, "optimizers": [o.state_dict() for o in opts]}}'.replace("{{", "{").replace("}}", "}")
    assert run("a.py", SCRIPT.format(body=RESUME.replace("{}", saved)), "PYT003") == []
    assert run("a.py", SCRIPT.format(body=RESUME.replace("{}", '{"model": m}')), "PYT003") == ["info PYT003 8"]


def test_a_class_for_several_processes_may_override_the_save(run) -> None:  # type: ignore[no-untyped-def]
    body = (
        "class One:\n    def save(self):\n        torch.save(a, 'a.pt')\n    def fit(self):\n        self.save()\n"
        "class Many(One):\n    def save(self):\n        if self.rank != 0:\n            return\n"
        "        super().save()\n"
    )
    assert run("a.py", SCRIPT.format(body=body), "PYT002") == []
    assert run("a.py", SCRIPT.format(body="torch.save(model, wdir / 'init.pt')"), "PYT002") == []


def test_argparse_takes_the_beginning_of_an_option(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    parser = "from argparse import ArgumentParser\n"
    parser += 'p = ArgumentParser(%s)\np.add_argument("--load-path")\np.add_argument("--seed")\np.parse_args()\n'
    (tmp_path / "c.py").write_text(parser % "")
    assert run("a.sh", "python c.py --load x --see 1\n", "JOB013") == []
    assert run("a.sh", "python c.py --lode epoch9\n", "JOB013") == ["error JOB013 1"]
    (tmp_path / "c.py").write_text(parser.replace("Arg", "FlexibleArg") % "")
    assert run("a.sh", "python c.py --load_path x\n", "JOB013") == []


def test_a_process_group_of_one_process_shares_nothing(run) -> None:  # type: ignore[no-untyped-def]
    text = SCRIPT.format(body="loader = DataLoader(data, shuffle=True)\ntorch.save(a, 'a.pt')")
    assert run("a.py", text, "PYT") == ["info PYT001 4", "info PYT002 5"]
    assert run("a.py", text.replace('"nccl"', '"nccl", world_size=1, rank=0'), "PYT") == []


def test_a_rank_is_asked_for_in_many_ways(run) -> None:  # type: ignore[no-untyped-def]
    assert run("a.py", SCRIPT.format(body="if args.gpu == 0:\n    torch.save(a, 'a.pt')"), "PYT002") == []
    body = (
        "class A:\n    async def fit(self):\n        if self.is_master:\n            await self.save()\n"
        "    async def save(self):\n        torch.save(a, 'a.pt')\n"
    )
    assert run("a.py", SCRIPT.format(body=body), "PYT002") == []
    unguarded = body.replace("if self.is_master", "if epoch % 2")
    assert run("a.py", SCRIPT.format(body=unguarded), "PYT002") == ["info PYT002 9"]


def test_a_download_of_weights_is_no_resume(run) -> None:  # type: ignore[no-untyped-def]
    text = SCRIPT.format(body=RESUME.replace("if resume", "if snapshot_download").replace("{}", '{"model": m}'))
    assert run("a.py", text, "PYT003") == []
