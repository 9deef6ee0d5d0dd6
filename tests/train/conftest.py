"""What the trainer's tests share."""

from __future__ import annotations

import pytest

from s3_server import s3, s3_endpoint

__all__ = ["s3", "s3_endpoint"]


@pytest.fixture(scope="module")
def one_thread():
    """Where tensors are tiny, threads that wait for each other take longer than what they compute."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
