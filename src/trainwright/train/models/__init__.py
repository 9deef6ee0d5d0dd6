"""Models: shapes as data, and one file per kind of model (decoder, encoder, …) with its module as `MODEL`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from trainwright.errors import UserError

if TYPE_CHECKING:
    from trainwright.train.models.shape import ModelShape


def model_class(shape: ModelShape) -> Any:
    """The module of that kind of model. It takes (shape, layers, first, last), has `layers()`, its blocks, and gives
    the loss when called with (x, inputs)."""
    name = f"{__name__}.{shape.kind.replace('-', '_')}"
    try:
        return importlib.import_module(name).MODEL
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise UserError(
            f"{shape.name} can be predicted but not trained: there is no model of kind {shape.kind!r}"
        ) from error
