"""Checkpoints: whole or invisible, never doubled, resharded on load, refused when they do not fit."""

import json
import os
import resource
import shutil
import threading
from types import SimpleNamespace

import pytest
import torch
from ranks import run_ranks, start_ranks

from trainwright.errors import UserError
from trainwright.train.checkpoint.checkpointer import Checkpointer, Retention
from trainwright.train.checkpoint.manifest import NAME, read_complete
from trainwright.train.checkpoint.stores import FolderStore, S3Store, step_name

MODEL = {"name": "toy", "hidden": 8, "layers": 2}
CPU = torch.device("cpu")


def values(step: int) -> torch.Tensor:
    return torch.arange(96, dtype=torch.float32).reshape(12, 8) * 0.5 + step


def plain_state(step: int) -> dict:
    return {"model": {"w": values(step)}, "exp_avg": {"w": values(step) * 2}, "step": torch.tensor(step)}


def sharded_state(step: int, shape: tuple[int, ...]) -> dict:
    """The same state spread over a mesh of ranks."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", shape)
    placements = [Shard(0)] if len(shape) == 1 else [Replicate(), Shard(1)]
    spread = {k: distribute_tensor(v["w"], mesh, placements) for k, v in plain_state(step).items() if k != "step"}
    return {**{k: {"w": v} for k, v in spread.items()}, "step": torch.tensor(step)}


def saver(folder, keep=None, store=None) -> Checkpointer:
    return Checkpointer(store or FolderStore(folder), keep or Retention(), CPU, MODEL)


def test_a_saved_step_comes_back_with_its_trainer_state(tmp_path):
    first = saver(tmp_path)
    first.save_now(7, plain_state(7), {"seen": 56})
    state = plain_state(0)
    manifest, notes = saver(tmp_path).load(state)
    assert (manifest.step, manifest.trainer, notes) == (7, {"seen": 56}, [])
    assert torch.equal(state["model"]["w"], values(7))
    assert int(state["step"]) == 7


def test_a_save_works_from_a_copy(tmp_path):
    """Training changes the weights while the files are written; the checkpoint must not see that."""
    checkpointer = saver(tmp_path)
    gate = threading.Event()
    write = checkpointer._write

    def held(*args):
        gate.wait(10)
        write(*args)

    checkpointer._write = held
    state = plain_state(1)
    checkpointer.save(1, state, {})
    state["model"]["w"].zero_()
    gate.set()
    checkpointer.wait()
    loaded = plain_state(0)
    checkpointer.load(loaded)
    assert torch.equal(loaded["model"]["w"], values(1))


@pytest.mark.parametrize("harm", ["no manifest", "short file", "missing file", "cut manifest"])
def test_latest_passes_over_what_is_not_whole(tmp_path, harm):
    checkpointer = saver(tmp_path)
    for step in (1, 2):
        checkpointer.save_now(step, plain_state(step), {})
    newest = tmp_path / step_name(2)
    shard = next(newest.glob("*.distcp"))
    if harm == "no manifest":
        (newest / NAME).unlink()
    elif harm == "short file":
        os.truncate(shard, shard.stat().st_size - 1)
    elif harm == "missing file":
        shard.unlink()
    else:
        (newest / NAME).write_bytes((newest / NAME).read_bytes()[:-20])
    manifest, _ = checkpointer.load(plain_state(0))
    assert manifest.step == 1


def test_damaged_content_is_found_by_its_checksum(tmp_path):
    checkpointer = saver(tmp_path)
    for step in (1, 2):
        checkpointer.save_now(step, plain_state(step), {})
    shard = next((tmp_path / step_name(2)).glob("*.distcp"))
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    manifest, notes = checkpointer.load(plain_state(0))
    assert manifest.step == 1
    assert "step 2 is damaged" in notes[0]


def test_keeps_the_last_and_every_kth(tmp_path):
    checkpointer = saver(tmp_path, Retention(last=2, every=4))
    for step in range(1, 11):
        checkpointer.save_now(step, plain_state(step), {})
    assert FolderStore(tmp_path).complete_steps() == [10, 9, 8, 4]
    assert not list(tmp_path.glob(".step-*"))


def test_the_same_step_again_replaces_it(tmp_path):
    checkpointer = saver(tmp_path)
    checkpointer.save_now(3, plain_state(3), {"timeline": 1})
    checkpointer.save_now(3, plain_state(3), {"timeline": 2})
    assert checkpointer.load(plain_state(0))[0].trainer == {"timeline": 2}


def test_another_models_checkpoint_is_refused_with_both_numbers(tmp_path):
    saver(tmp_path).save_now(1, plain_state(1), {})
    other = Checkpointer(FolderStore(tmp_path), Retention(), CPU, {**MODEL, "hidden": 16})
    with pytest.raises(UserError, match="hidden = 8, this run's model has hidden = 16"):
        other.load(plain_state(0))


def test_an_absent_step_names_those_there_are(tmp_path):
    checkpointer = saver(tmp_path)
    assert checkpointer.load(plain_state(0)) is None
    checkpointer.save_now(4, plain_state(4), {})
    with pytest.raises(UserError, match="step 5") as caught:
        checkpointer.load(plain_state(0), step=5)
    assert caught.value.fix.endswith("one of 4")


def test_no_room_is_an_error_before_the_first_step(tmp_path, monkeypatch):
    checkpointer = saver(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=50))
    with pytest.raises(UserError, match=r"needs [\d,]+ bytes, 50 bytes are free"):
        checkpointer.prepare_saving(plain_state(1))


def full_disk(folder: str) -> str:
    """Runs in a process of its own, because the limit cannot be raised again."""
    from pathlib import Path

    saver(Path(folder)).save_now(1, plain_state(1), {})
    big = {**plain_state(2), "model": {"w": torch.zeros(1_000_000)}}
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
    try:
        saver(Path(folder)).save_now(2, big, {})
    except UserError as error:
        return str(error)
    return "saved"


def test_a_full_disk_is_a_clear_error_and_the_old_checkpoint_stays(tmp_path):
    [message] = run_ranks(full_disk, 1, str(tmp_path))
    assert "no space left for a checkpoint: it needs 0.004 GB" in message
    assert FolderStore(tmp_path).complete_steps() == [1]
    assert saver(tmp_path).load(plain_state(0))[0].step == 1


def save_sharded(folder: str, step: int, shape: tuple[int, ...]) -> None:
    from pathlib import Path

    saver(Path(folder)).save_now(step, sharded_state(step, shape), {"seen": step * 8})


def load_sharded(folder: str, shape: tuple[int, ...]) -> list:
    from pathlib import Path

    state = sharded_state(0, shape) if shape else plain_state(0)
    manifest, _ = saver(Path(folder)).load(state)
    tensor = state["model"]["w"]
    return [manifest.step, (tensor.full_tensor() if shape else tensor).tolist()]


@pytest.mark.parametrize(("world", "shape"), [(1, ()), (2, (2,)), (3, (3,)), (4, (2, 2))])
def test_four_shards_load_into_any_number_of_ranks(tmp_path, world, shape):
    run_ranks(save_sharded, 4, str(tmp_path), 5, (4,))
    assert len(read_complete(tmp_path / step_name(5)).files) == 5  # four ranks and the metadata
    for step, tensor in run_ranks(load_sharded, world, str(tmp_path), shape):
        assert step == 5
        assert torch.equal(torch.tensor(tensor), values(5))


def killed_saver(folder: str) -> None:
    from pathlib import Path

    checkpointer = saver(Path(folder), Retention(last=1))
    for step in (1, 2, 3):
        checkpointer.save_now(step, sharded_state(step, (2,)), {"seen": step})


@pytest.mark.parametrize(
    ("fault", "left"),
    [
        ("1:staged:2", 1),
        ("0:mid-save:2", 1),
        ("1:written:2", 1),
        ("0:before-rename:2", 1),
        ("0:after-rename:2", 2),
        ("0:mid-remove:1", 2),
    ],
)
def test_a_kill_at_any_moment_of_a_save_leaves_a_whole_checkpoint(tmp_path, fault, left):
    processes, _, meeting = start_ranks(killed_saver, 2, str(tmp_path), TRAINWRIGHT_FAULT=fault)
    victim = processes[int(fault[0])]
    victim.join(60)
    assert victim.exitcode == -9
    for process in processes:
        process.kill()
        process.join()
    meeting.unlink(missing_ok=True)
    assert FolderStore(tmp_path).complete_steps()[0] == left
    state = plain_state(0)
    assert saver(tmp_path).load(state)[0].step == left
    assert torch.equal(state["model"]["w"], values(left))
    # The next save sweeps up what the dead one left.
    saver(tmp_path, Retention(last=1)).save_now(9, plain_state(9), {})
    assert sorted(os.listdir(tmp_path)) == [step_name(9)]


def test_s3_shows_a_checkpoint_only_when_it_is_whole(s3, tmp_path):
    store = S3Store(s3, tmp_path / "scratch")
    checkpointer = saver(None, Retention(last=2), store)
    for step in (1, 2, 3):
        checkpointer.save_now(step, plain_state(step), {"seen": step})
    assert store.complete_steps() == [3, 2]
    store.remote.delete(f"{step_name(3)}/{NAME}")
    state = plain_state(0)
    manifest, _ = saver(None, store=S3Store(s3, tmp_path / "other")).load(state)
    assert manifest.step == 2
    assert torch.equal(state["model"]["w"], values(2))
    assert json.loads(store.remote.read(f"{step_name(2)}/{NAME}"))["trainer"] == {"seen": 2}


def save_again_and_again(folder: str, shape: tuple[int, ...]) -> list[str]:
    """Three saves with other values; what ranks send to plan each of them."""
    from pathlib import Path

    from torch.distributed.checkpoint.default_planner import DefaultSavePlanner

    sent, plan = [], DefaultSavePlanner.create_local_plan

    def noted(self):
        made = plan(self)
        sent.append("a plan" if made.usable else "nothing")
        return made

    DefaultSavePlanner.create_local_plan = noted
    saves = saver(Path(folder))
    for step in (1, 2, 3):
        saves.save_now(step, sharded_state(step, shape), {})
    return sent


def test_plans_are_sent_once(tmp_path):
    assert run_ranks(save_again_and_again, 2, str(tmp_path), (2,)) == [["a plan", "nothing", "nothing"]] * 2
    for step, tensor in run_ranks(load_sharded, 1, str(tmp_path), ()):
        assert step == 3
        assert torch.equal(torch.tensor(tensor), values(3))
