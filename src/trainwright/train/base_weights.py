"""The weights that a run starts from (`--base`): a Hugging Face folder, another run, or a checkpoint. Read tensor by
tensor, so that a rank never holds more than one whole tensor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from trainwright.errors import UserError
from trainwright.train.base_pin import FOLDER, RANDOM, Base
from trainwright.train.lora import is_adapter
from trainwright.train.models.hf_config import differences
from trainwright.train.models.hf_layout import Read
from trainwright.train.models.huggingface import find_checkpoint, read_checkpoint, read_folder
from trainwright.train.models.shape import ModelShape, is_published, lookup
from trainwright.train.optimizer import local, part_of

if TYPE_CHECKING:
    from trainwright.train.engine import Engine


def open_base(base: Base) -> tuple[ModelShape, Read]:
    """The shape of these weights, and a function that reads one parameter."""
    if base.kind == FOLDER:
        return read_folder(Path(base.place))
    return read_checkpoint(*find_checkpoint(base.place, base.step))


@torch.no_grad()
def load_base(engine: Engine, base: Base) -> None:
    """Overwrite the engine's initial values by these weights; adapters keep theirs."""
    if base.kind == RANDOM:
        return
    shape, read = open_base(base)
    # An objective that brings its own head needs no classifier.
    wanted = engine.shape if engine.objective.base_name("head.weight") else replace(engine.shape, vocab=0)
    apart = differences(wanted, shape)
    if apart:
        what = f"the weights are not of {engine.shape.name}: {'; '.join(apart)}"
        raise UserError(what, where=str(base), fix=_model_of(base, shape))
    objective, everything = engine.objective, {**engine.params, **engine.frozen}
    names = {name: objective.base_name(name) for name in everything if not is_adapter(name)}
    anew = {ours for ours, theirs in names.items() if not theirs or without_classifier(shape, theirs)}
    if anew and engine.options.lora is not None:
        what = f"the weights have no {sorted(anew)[0].rpartition('.')[0]}, and LoRA would leave it untrained"
        raise UserError(what, where=str(base), fix="leave --lora-rank out: the whole model is trained")
    for name, theirs in names.items():
        if name in anew:
            continue
        param = everything[name]
        part = part_of(read(theirs), param)
        if name in engine.params:
            engine.optimizer.write(name, part.to(engine.device))
        else:
            local(param).copy_(part)
    for name, bias in engine.balance.biases().items():  # buffers: no optimizer moves them, but the weights have them
        bias.copy_(read(objective.base_name(name)))
    if anew:
        heads = "the heads of student and teacher" if len(anew) > 2 else "the classifier"
        engine.notes.append(f"base: the backbone of {base}; {heads} begin{'s' * (len(anew) <= 2)} anew")


def _model_of(base: Base, shape: ModelShape) -> str:
    """The option that names the model of these weights."""
    if base.kind == FOLDER:
        return f"--model {base.place}"
    known = is_published(shape.name) and not differences(lookup(shape.name), shape)
    return f"--model {shape.name}" if known else "--model with the file or folder that describes these weights"


def without_classifier(shape: ModelShape, name: str) -> bool:
    """Whether a parameter belongs to a classifier that these weights, a backbone of images, do not have."""
    return shape.kind == "vision" and not shape.vocab and name.startswith("head.")
