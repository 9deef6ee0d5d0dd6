"""Loading out of S3: only what a rank asks for travels, in pieces of any size, and every byte arrives."""

import pytest
import torch
from torch.distributed.checkpoint.state_dict_loader import load as load_sharded

from trainwright.train.checkpoint.checkpointer import Checkpointer, Retention
from trainwright.train.checkpoint.stores import S3Store
from trainwright.train.data import s3 as s3_module

STATE = {"model": {f"w{i}": torch.randn(1000, 1000) for i in range(6)}, "step": torch.tensor(5)}
ONE = STATE["model"]["w0"].nbytes


@pytest.fixture
def saved(s3, tmp_path):
    store = S3Store(s3, tmp_path / "scratch")
    Checkpointer(store, Retention(), torch.device("cpu"), {"name": "toy"}).save_now(5, STATE, {})
    return store


@pytest.fixture
def travelled(monkeypatch):
    """How many bytes each request brought."""
    sizes: list[int] = []
    read = s3_module.Bucket.read

    def counted(self, name, start=0, end=None):
        content = read(self, name, start, end)
        sizes.append(len(content))
        return content

    monkeypatch.setattr(s3_module.Bucket, "read", counted)
    return sizes


def test_only_the_tensors_asked_for_travel(saved, travelled):
    wanted = {"model": {"w3": torch.empty(1000, 1000)}}
    reader = saved.reader(saved.manifest(5))
    travelled.clear()
    load_sharded(wanted, storage_reader=reader, no_dist=True)
    assert torch.equal(wanted["model"]["w3"], STATE["model"]["w3"])
    assert ONE < sum(travelled) < 2 * ONE


@pytest.mark.parametrize("part", [1_000_003, 1 << 26])
def test_a_state_arrives_whole_in_pieces_of_any_size(saved, travelled, monkeypatch, part, tmp_path):
    monkeypatch.setattr(s3_module, "PART", part)
    loaded = {"model": {name: torch.empty(1000, 1000) for name in STATE["model"]}, "step": torch.tensor(0)}
    checkpointer = Checkpointer(saved, Retention(), torch.device("cpu"), {"name": "toy"})
    manifest, notes = checkpointer.load(loaded)
    assert (manifest.step, notes, int(loaded["step"])) == (5, [], 5)
    assert all(torch.equal(loaded["model"][name], value) for name, value in STATE["model"].items())
    assert max(travelled) <= part
    assert not list((tmp_path / "scratch").glob("*")), "nothing is left on the disk"
