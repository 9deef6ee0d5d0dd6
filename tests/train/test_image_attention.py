"""Which images the GPU's attention kernel is taken for. The kernel itself: test_engine_gpu.py."""

from types import SimpleNamespace

import pytest
import torch

from trainwright.train.kernels import image_attention
from trainwright.train.kernels.image_attention import fits

# Bytes of shared memory that a block of threads may have: A10G, L4 and L40S (8.6, 8.9), A100 (8.0), H100 and H200.
SMALL, A100, HOPPER = 101_376, 166_912, 232_448


@pytest.mark.parametrize(
    ("tokens", "width", "memory", "taken"),
    [
        (197, 64, HOPPER, True),
        (197, 64, A100, True),
        (197, 64, SMALL, False),  # the backward pass takes 123,136 bytes
        (37, 64, SMALL, True),
        (128, 64, SMALL, True),
        (256, 128, HOPPER, False),  # 237,824
        (128, 128, HOPPER, True),
        (257, 16, HOPPER, False),
        (37, 80, HOPPER, False),  # Triton's ranges are powers of two
        (37, 8, HOPPER, False),  # and its products at least 16 wide
    ],
)
def test_the_kernel_is_taken_where_it_can_run(tokens, width, memory, taken):
    assert fits(tokens, width, memory) == taken


# Bytes of the larger of both kernels, by tokens and width: compiled for 8.0, 8.9, 9.0 and 10.0 with Triton 3.6.
COMPILED = {
    (16, 16): 2048, (32, 16): 5120, (64, 16): 16_392, (128, 16): 23_816, (256, 16): 44_296,
    (16, 32): 3584, (32, 32): 8192, (64, 32): 24_584, (128, 32): 39_176, (256, 32): 71_944,
    (16, 64): 6656, (32, 64): 14_336, (64, 64): 40_968, (128, 64): 70_912, (256, 64): 135_432,
    (16, 128): 12_800, (32, 128): 26_624, (64, 128): 73_736, (128, 128): 132_352, (256, 128): 238_848,
}  # fmt: skip


def test_no_kernel_takes_more_than_is_counted():
    for (tokens, width), size in COMPILED.items():
        assert not fits(tokens, width, size - 1)


def test_compiled_code_reads_the_memory_of_the_card_once(monkeypatch):
    """As a constant, without a break in the graph."""
    read = []
    card = SimpleNamespace(shared_memory_per_block_optin=SMALL)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: (read.append(device), card)[1])

    @torch.compile(fullgraph=True, backend="eager")
    def chosen(x):
        return x + 1 if fits(197, 64, image_attention.shared_memory(x.device)) else x - 1

    assert all(chosen(torch.zeros(2)).eq(-1).all() for _ in range(3))
    assert read == [torch.device("cpu")]
