"""Async tensor parallelism: the compiler splits the products beside a gather or a scatter into parts, so that each part
is computed while the next one travels between the GPUs (torch's micro-pipelining over symmetric memory)."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from trainwright.errors import UserError
from trainwright.train.parallel.layout import Layout

WITHOUT = "--no-async-tp"


def enable_async(layout: Layout, device: torch.device) -> str:
    """Let the blocks that are compiled from now on overlap the collectives of this rank's tensor group with their
    products; returns a line for the log."""
    from torch._inductor import config as inductor

    memory = symmetric_memory()
    if not hasattr(inductor, "_micro_pipeline_tp") or memory is None:
        raise UserError(f"torch {torch.__version__} has no async tensor parallelism", fix=WITHOUT)
    require_peers(layout, device)
    inductor._micro_pipeline_tp = True
    memory.enable_symm_mem_for_group(layout.tensor_group.group_name)
    return "async tensor parallelism: products overlap with the collectives beside them"


def symmetric_memory() -> Any:
    try:
        module = importlib.import_module("torch.distributed._symmetric_memory")
    except ImportError:
        return None
    return module if hasattr(module, "enable_symm_mem_for_group") else None


def require_peers(layout: Layout, device: torch.device) -> None:
    """Tensor ranks are neighbours: they must be GPUs of one node that read each other's memory. A process that sees
    only its own GPU cannot tell."""
    visible, own = torch.cuda.device_count(), device.index or 0
    if visible == 1:
        return
    first = own - layout.tensor_rank
    peers = [number for number in range(first, first + layout.plan.tp) if number != own]
    far = [n for n in peers if not 0 <= n < visible or not torch.cuda.can_device_access_peer(own, n)]
    if far:
        what = f"GPU {own} cannot read the memory of its tensor peer {far[0]}"
        raise UserError(
            what, where=f"plan {layout.plan}", fix=f"{WITHOUT}, or a smaller tp within one node with NVLink"
        )
