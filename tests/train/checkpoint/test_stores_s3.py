"""Checkpoints in S3 when something went wrong there: lost objects, uploads that were cut off, steps saved again."""

import pytest
import torch

from trainwright.errors import UserError
from trainwright.train.checkpoint.checkpointer import Checkpointer, Retention
from trainwright.train.checkpoint.manifest import NAME
from trainwright.train.checkpoint.stores import S3Store, set_aside_newer_than, step_name
from trainwright.train.data import s3 as s3_module


def state(step: int) -> dict:
    return {"model": {"w": torch.full((64,), float(step))}, "step": torch.tensor(step)}


@pytest.fixture
def store(s3, tmp_path):
    return S3Store(s3, tmp_path / "scratch")


@pytest.fixture
def checkpointer(store):
    return Checkpointer(store, Retention(last=5), torch.device("cpu"), {"name": "toy"})


def objects(store, step):
    return sorted(store.remote.names(step_name(step) + "/"))


def test_a_step_that_lost_an_object_is_passed_over(store, checkpointer):
    for step in (1, 2):
        checkpointer.save_now(step, state(step), {})
    store.remote.delete(next(name for name in objects(store, 2) if name.endswith(".distcp")))
    assert store.complete_steps() == [1]
    loaded = state(0)
    assert checkpointer.load(loaded)[0].step == 1
    assert loaded["model"]["w"][0] == 1


def test_what_a_cut_off_upload_left_is_removed_by_the_next_save(store, checkpointer):
    checkpointer.save_now(1, state(1), {})
    store.remote.write(f"{step_name(2)}/__0_0.distcp", b"half of it")
    store.remote.write("notes.txt", b"somebody's own")
    (store.scratch / ".step-00000002.partial").mkdir(parents=True)
    checkpointer.save_now(3, state(3), {})
    assert store.complete_steps() == [3, 1]
    assert objects(store, 2) == []
    assert store.remote.read("notes.txt") == b"somebody's own"
    assert list(store.scratch.glob(".step-*")) == []


def test_a_step_saved_again_is_no_checkpoint_until_it_is_whole(store, checkpointer):
    """Old manifest over new files: a kill between two uploads would leave a checkpoint that was never written."""
    checkpointer.save_now(1, state(1), {})
    checkpointer.save_now(2, state(2), {})
    store.clean(2)
    store.remote.write(f"{step_name(2)}/__0_0.distcp", b"the first new file")
    assert store.complete_steps() == [1]


def test_steps_set_aside_stay_in_the_bucket(store, checkpointer):
    for step in (1, 2, 3):
        checkpointer.save_now(step, state(step), {})
    assert set_aside_newer_than(store, 1) == [3, 2]
    assert store.complete_steps() == [1]
    checkpointer.save_now(4, state(4), {})
    assert store.complete_steps() == [4, 1]
    assert f"{step_name(3)}/manifest.aside.json" in objects(store, 3)
    assert len(objects(store, 3)) == 3


def test_the_copy_to_read_from_does_not_stay_on_the_disk(store, checkpointer):
    checkpointer.save_now(1, state(1), {})
    checkpointer.load(state(0))
    checkpointer.load(state(0))
    checkpointer.save_now(2, state(2), {})
    assert list(store.scratch.iterdir()) == []


def test_a_bucket_that_is_not_there_is_reported(s3, tmp_path):
    with pytest.raises(UserError, match="no bucket 'absent-bucket'"):
        S3Store("s3://absent-bucket/run", tmp_path).complete_steps()


def test_an_answer_that_is_no_xml_is_reported_too(s3, monkeypatch):
    page = b"<html><p>proxy says no<br></html>"
    monkeypatch.setattr(s3_module.Bucket, "_once", lambda *_: (403, {}, page))
    with pytest.raises(UserError, match="S3 answered 403"):
        s3_module.Bucket(s3).read(NAME)
