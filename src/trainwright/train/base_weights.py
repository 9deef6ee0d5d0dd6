"""The weights that a run starts from (`--base`): a Hugging Face folder, another run, or a checkpoint. Read tensor by
tensor, so that a rank never holds more than one whole tensor."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from trainwright.errors import UserError
from trainwright.train.lora import is_adapter
from trainwright.train.models.hf_config import differences
from trainwright.train.models.hf_layout import Read
from trainwright.train.models.huggingface import CONFIG, find_checkpoint, read_checkpoint, read_folder
from trainwright.train.models.shape import ModelShape
from trainwright.train.optimizer import local, part_of

if TYPE_CHECKING:
    from trainwright.train.engine import Engine

REFERENCE = "reference."  # a frozen copy of the model, beside the one that is trained


def open_base(base: str) -> tuple[ModelShape, Read]:
    """The shape of these weights, and a function that reads one parameter."""
    if (Path(base) / CONFIG).is_file() and next(Path(base).glob("*.safetensors"), None):
        return read_folder(Path(base))
    return read_checkpoint(*find_checkpoint(base))


@torch.no_grad()
def load_base(engine: Engine, base: str) -> None:
    """Overwrite the engine's initial values by these weights; adapters keep theirs."""
    shape, read = open_base(base)
    apart = differences(engine.shape, shape)
    if apart:
        raise UserError(f"the weights are not of {engine.shape.name}: {'; '.join(apart)}", where=base, fix="--model")
    for name, param in {**engine.params, **engine.frozen}.items():
        if is_adapter(name):
            continue
        part = part_of(read(_plain(name)), param)
        if name in engine.params:
            engine.optimizer.write(name, part.to(engine.device))
        else:
            local(param).copy_(part)
    for name, bias in engine.balance.biases().items():  # buffers: no optimizer moves them, but the weights have them
        bias.copy_(read(_plain(name)))


def _plain(name: str) -> str:
    """A parameter's name in the model itself, where the run has the model as policy and as reference."""
    return name.removeprefix(REFERENCE).removeprefix("policy.")
