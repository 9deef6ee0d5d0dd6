"""Model shapes as the control side sees them: the trainer's table of published models, and a parameter count for every
kind of model, encoders and vision transformers included."""

from __future__ import annotations

import math

from trainwright.errors import UserError
from trainwright.train.models.shape import (
    ModelShape,
    active_parameter_count,
    attention_parameters,
    block_parameters,
    debug_sibling,
    lookup,
    mlp_parameters,
    norm_parameters,
    position_parameters,
    shape_from,
    shapes,
)
from trainwright.train.models.shape import parameter_count as decoder_parameter_count

__all__ = [
    "ModelShape",
    "active_parameter_count",
    "attention_parameters",
    "block_parameters",
    "debug_sibling",
    "find_model",
    "lookup",
    "mlp_parameters",
    "model",
    "models",
    "parameter_count",
    "parameters_text",
    "shape_from",
    "shapes",
]

RELATIVE_BUCKETS = 32  # T5's distance buckets; one table in the encoder, one in the decoder
TOKEN_TYPES = {"bert": 2, "roberta": 1}
IMAGE = 224
COLOURS = 3


def models() -> tuple[ModelShape, ...]:
    return tuple(shapes().values())


def model(name: str) -> ModelShape:
    """The published shape of that name (or its `-debug` sibling); a wrong name is a UserError with the nearest one."""
    return lookup(name)


def find_model(name: str) -> ModelShape | None:
    """As `model`, but None for a name nobody published."""
    try:
        return lookup(name.lower())
    except UserError:
        return None


def parameter_count(shape: ModelShape) -> int:
    """Every trainable number, as the published checkpoint of that kind holds them."""
    count = {
        "encoder": _encoder,
        "encoder-decoder": _encoder_decoder,
        "vision": _vision,
    }.get(shape.kind, decoder_parameter_count)
    return count(shape)


def parameters_text(count: int) -> str:
    """`8.03 B`, `124 M`: three digits, as people say it."""
    scale, letter = (1e9, "B") if count >= 1e9 else (1e6, "M")
    value = count / scale
    return f"{value:.0f} {letter}" if value >= 100 else f"{value:.3g} {letter}"


def _encoder(shape: ModelShape) -> int:
    """Token tables and blocks, then BERT's pooler or ESM-2's language head."""
    wide = shape.hidden * shape.hidden + shape.hidden
    body = shape.vocab * shape.hidden + position_parameters(shape) + shape.layers * block_parameters(shape)
    if shape.family == "esm2":
        return body + norm_parameters(shape) + wide + norm_parameters(shape) + shape.vocab
    return body + TOKEN_TYPES.get(shape.family, 0) * shape.hidden + norm_parameters(shape) + wide


def _encoder_decoder(shape: ModelShape) -> int:
    tables = shape.vocab * shape.hidden * (1 if shape.tied else 2)
    cross = attention_parameters(shape) + norm_parameters(shape)
    layers = shape.layers * (2 * block_parameters(shape) + cross)
    relative = 2 * RELATIVE_BUCKETS * shape.heads if shape.position == "relative" else 0
    return tables + layers + relative + 2 * norm_parameters(shape)


def _vision(shape: ModelShape) -> int:
    """Patches, class token, positions, blocks, last norm and the classifier (`vocab` classes)."""
    patch = IMAGE // math.isqrt(shape.context - 1)
    embed = COLOURS * patch * patch * shape.hidden + shape.hidden
    head = shape.vocab * shape.hidden + shape.vocab
    body = position_parameters(shape) + shape.hidden + shape.layers * block_parameters(shape)
    return embed + body + norm_parameters(shape) + head
