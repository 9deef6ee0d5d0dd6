"""Checkpoints in S3 when something went wrong there: lost objects, uploads that were cut off, steps saved again."""

import pytest
import torch

from trainwright.errors import UserError
from trainwright.train.checkpoint.checkpointer import Checkpointer, Keep
from trainwright.train.checkpoint.manifest import NAME
from trainwright.train.checkpoint.places import Bucket, set_aside_after, step_name
from trainwright.train.data import s3 as s3_module


def state(step: int) -> dict:
    return {"model": {"w": torch.full((64,), float(step))}, "step": torch.tensor(step)}


@pytest.fixture
def place(s3, tmp_path):
    return Bucket(s3, tmp_path / "scratch")


@pytest.fixture
def checkpointer(place):
    return Checkpointer(place, Keep(last=5), torch.device("cpu"), {"name": "toy"})


def objects(place, step):
    return sorted(place.remote.names(step_name(step) + "/"))


def test_a_step_that_lost_an_object_is_passed_over(place, checkpointer):
    for step in (1, 2):
        checkpointer.save_now(step, state(step), {})
    place.remote.delete(next(name for name in objects(place, 2) if name.endswith(".distcp")))
    assert place.whole() == [1]
    loaded = state(0)
    assert checkpointer.load(loaded)[0].step == 1
    assert loaded["model"]["w"][0] == 1


def test_what_a_cut_off_upload_left_is_removed_by_the_next_save(place, checkpointer):
    checkpointer.save_now(1, state(1), {})
    place.remote.write(f"{step_name(2)}/__0_0.distcp", b"half of it")
    place.remote.write("notes.txt", b"somebody's own")
    (place.scratch / ".step-00000002.partial").mkdir(parents=True)
    checkpointer.save_now(3, state(3), {})
    assert place.whole() == [3, 1]
    assert objects(place, 2) == []
    assert place.remote.read("notes.txt") == b"somebody's own"
    assert list(place.scratch.glob(".step-*")) == []


def test_a_step_saved_again_is_no_checkpoint_until_it_is_whole(place, checkpointer):
    """Old manifest over new files: a kill between two uploads would leave a checkpoint that was never written."""
    checkpointer.save_now(1, state(1), {})
    checkpointer.save_now(2, state(2), {})
    place.clean(2)
    place.remote.write(f"{step_name(2)}/__0_0.distcp", b"the first new file")
    assert place.whole() == [1]


def test_steps_set_aside_stay_in_the_bucket(place, checkpointer):
    for step in (1, 2, 3):
        checkpointer.save_now(step, state(step), {})
    assert set_aside_after(place, 1) == [3, 2]
    assert place.whole() == [1]
    checkpointer.save_now(4, state(4), {})
    assert place.whole() == [4, 1]
    assert f"{step_name(3)}/manifest.aside.json" in objects(place, 3)
    assert len(objects(place, 3)) == 3


def test_the_copy_to_read_from_does_not_stay_on_the_disk(place, checkpointer):
    checkpointer.save_now(1, state(1), {})
    checkpointer.load(state(0))
    checkpointer.load(state(0))
    checkpointer.save_now(2, state(2), {})
    assert list(place.scratch.iterdir()) == []


def test_a_bucket_that_is_not_there_is_told(s3, tmp_path):
    with pytest.raises(UserError, match="there is no bucket 'absent-bucket'"):
        Bucket("s3://absent-bucket/run", tmp_path).whole()


def test_an_answer_that_is_no_xml_is_told_too(s3, monkeypatch):
    page = b"<html><p>proxy says no<br></html>"
    monkeypatch.setattr(s3_module.Bucket, "_once", lambda *_: (403, {}, page))
    with pytest.raises(UserError, match="S3 answered 403"):
        s3_module.Bucket(s3).read(NAME)
