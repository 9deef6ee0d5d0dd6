"""Model shapes as the control side sees them: the trainer's table, further published models, a user's own config.json,
and a parameter count for every kind of model, encoders and vision transformers included."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

from trainwright.catalog import model_config
from trainwright.errors import UserError, did_you_mean
from trainwright.train.models.shape import (
    DEBUG,
    ModelShape,
    active_parameter_count,
    attention_parameters,
    block_parameters,
    debug_sibling,
    is_file,
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
    "known_shapes",
    "lookup",
    "mlp_parameters",
    "model",
    "models",
    "parameter_count",
    "parameters_text",
    "shape_from",
    "shapes",
]

MORE_SHAPES = Path(__file__).with_name("data") / "model_shapes.toml"
RELATIVE_BUCKETS = 32  # T5's distance buckets; one table in the encoder, one in the decoder
TOKEN_TYPES = {"bert": 2, "roberta": 1}


def models() -> tuple[ModelShape, ...]:
    """The models that the trainer lists."""
    return tuple(shapes().values())


@cache
def known_shapes() -> dict[str, ModelShape]:
    """The trainer's shapes, and published ones that can only be predicted, by name."""
    more = tomllib.loads(MORE_SHAPES.read_text(encoding="utf-8"))
    return {name: shape_from(name, row) for name, row in more.items() if isinstance(row, dict)} | shapes()


def model(name: str) -> ModelShape:
    """A model by its catalog name, by NAME-debug, or by the path of its config.json; a wrong name is a UserError."""
    if is_file(name):
        return model_config.from_config(name)
    shape = find_model(name)
    if shape is None:
        raise UserError(
            f"there is no model named {name!r}",
            fix=did_you_mean(name.lower(), [*known_shapes(), *(known + DEBUG for known in known_shapes())])
            or "`trainwright catalog list --kind models` lists them; the path of a Hugging Face config.json works too",
        )
    return shape


def find_model(name: str) -> ModelShape | None:
    """As `model`, for names only: None where the catalog has no such model."""
    known, word = known_shapes(), name.lower()
    if word in known:
        return known[word]
    base = word.removesuffix(DEBUG)
    return debug_sibling(known[base]) if base != word and base in known else None


def parameter_count(shape: ModelShape) -> int:
    """The number of trainable parameters, as in the published checkpoint of that kind."""
    count = {
        "encoder": _encoder,
        "encoder-decoder": _encoder_decoder,
        "vision": _vision,
    }.get(shape.kind, decoder_parameter_count)
    return count(shape)


def parameters_text(count: int) -> str:
    """`8.03 B`, `124 M`: to three digits."""
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
    embed = shape.channels * shape.patch**2 * shape.hidden + shape.hidden
    head = shape.vocab * shape.hidden + shape.vocab
    body = position_parameters(shape) + shape.hidden + shape.layers * block_parameters(shape)
    return embed + body + norm_parameters(shape) + head
