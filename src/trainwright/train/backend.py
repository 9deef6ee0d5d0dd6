"""Chooses the attention kernel and the precision of this process, and describes the choice for the log."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch

from trainwright.errors import UserError
from trainwright.train.float8.recipes import RECIPES, instead, lacking

if TYPE_CHECKING:
    from trainwright.train.engine import EngineOptions

KERNELS = ("cudnn", "flash", "efficient", "math")
PRECISIONS = ("fp32", "bf16", "fp8")
BLOCKWISE_CUDA = (12, 9)  # the first whose cuBLAS has these scales


def choose_backend(options: EngineOptions, device: torch.device) -> list[str]:
    """Set what torch keeps per process, and describe the choice in lines for the log."""
    _check(options, device)
    if options.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is deterministic only with this
        torch.use_deterministic_algorithms(True)
    kernel = _choose_attention(options, device)
    offloaded = f"activations of {options.offload_activations:.0%} of the layers"
    how = "blocks compiled in the first step" if options.compile else "eager"
    return [
        f"attention: {kernel}",
        f"precision: {options.precision}{'' if options.precision == 'fp32' else ' with fp32 master weights'}, {how}",
        f"activation checkpointing: {options.recompute}"
        + (f", {offloaded} in host memory" if options.offload_activations else "")
        + (", optimizer state in host memory" if options.offload_optimizer else ""),
    ]


def _check(options: EngineOptions, device: torch.device) -> None:
    if options.precision not in PRECISIONS:
        raise UserError(f"unknown precision {options.precision!r}", fix=f"one of {', '.join(PRECISIONS)}")
    if options.precision == "fp8":
        _check_float8(options.float8, device)
    if options.recompute not in ("none", "selective", "full"):
        raise UserError(f"unknown recompute {options.recompute!r}", fix="one of none, selective, full")
    if options.attention not in ("auto", *KERNELS):
        raise UserError(f"unknown attention kernel {options.attention!r}", fix=f"auto, {', '.join(KERNELS)}")


def _check_float8(recipe: str, device: torch.device) -> None:
    """Every recipe runs on a CPU, slowly, to try it out."""
    if recipe not in RECIPES:
        raise UserError(f"unknown float8 recipe {recipe!r}", fix=f"one of {', '.join(RECIPES)}")
    if device.type != "cuda":
        return
    capability = torch.cuda.get_device_capability(device)
    lack = lacking(recipe, capability)
    if lack:
        card = f"{torch.cuda.get_device_name(device)} has {'.'.join(map(str, capability))}"
        raise UserError(f"float8 {recipe} needs a GPU of {lack}; {card}", fix=instead(capability))
    cuda = torch.version.cuda or "none"
    if recipe == "blockwise" and tuple(map(int, cuda.split("."))) < BLOCKWISE_CUDA:
        what = f"float8 blockwise needs a torch for CUDA 12.9 or newer; torch {torch.__version__} is for CUDA {cuda}"
        raise UserError(what, fix="float8 rowwise, or another torch")


def _choose_attention(options: EngineOptions, device: torch.device) -> str:
    """On a GPU: cuDNN from Hopper on, where it is fastest, else flash; fp32 has neither."""
    if device.type != "cuda":
        return "SDPA on CPU"
    wanted = options.attention
    if wanted == "auto":
        newer = torch.cuda.get_device_capability(device) >= (9, 0)
        wanted = (
            "efficient" if options.precision == "fp32" else "cudnn" if newer and not options.deterministic else "flash"
        )
    cuda = torch.backends.cuda
    # The efficient kernel stays enabled for inputs that the chosen one rejects.
    cuda.enable_cudnn_sdp(wanted == "cudnn")
    cuda.enable_flash_sdp(wanted == "flash")
    cuda.enable_mem_efficient_sdp(wanted != "math")
    cuda.enable_math_sdp(True)
    return f"{wanted} (rows with several documents, windows and ALiBi: FlexAttention)"
