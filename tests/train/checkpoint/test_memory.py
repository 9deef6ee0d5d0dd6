"""The host memory of a save: every tensor has its own place in it, and it goes with the last of them."""

import gc
import mmap
import weakref

import torch

from trainwright.train.checkpoint.memory import HostMemory, host_buffers

STATE = {
    "model": {"w": torch.randn(33, 65), "empty": torch.empty(0, 4), "b": torch.randn(7).bfloat16()},
    "step": torch.tensor(3),
    "name": "kept as it is",
}


def test_room_has_the_shape_of_the_state_and_keeps_what_is_written():
    room = host_buffers(STATE, torch.device("cpu"))
    assert room["name"] == "kept as it is"
    pairs = [(room["model"][name], tensor) for name, tensor in STATE["model"].items()] + [(room["step"], STATE["step"])]
    for place, tensor in pairs:
        assert place.shape == tensor.shape
        assert place.dtype == tensor.dtype
        place.copy_(tensor)
    # Written one after the other, so an overlap would show in an earlier one.
    assert all(torch.equal(place, tensor) for place, tensor in pairs)


def test_each_tensor_has_a_storage_and_pages_of_its_own():
    room = host_buffers(STATE, torch.device("cpu"))
    filled = [room["model"]["w"], room["model"]["b"], room["step"]]
    assert all(t.untyped_storage().nbytes() == t.nbytes for t in filled)
    assert all(t.data_ptr() % mmap.PAGESIZE == 0 for t in filled)
    pages = [t.data_ptr() // mmap.PAGESIZE for t in filled]
    assert pages == sorted(set(pages))


def test_memory_is_given_back_with_its_last_tensor(monkeypatch):
    freed: list[list[int]] = []
    monkeypatch.setattr("trainwright.train.checkpoint.memory._unpin", freed.append)
    memory = HostMemory(mmap.PAGESIZE)
    tensor = memory.like(torch.zeros(4))
    gone = weakref.ref(memory)
    del memory
    gc.collect()
    assert gone() is None
    assert not freed
    del tensor
    gc.collect()
    assert freed == [[]]
