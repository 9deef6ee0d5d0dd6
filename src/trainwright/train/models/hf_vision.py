"""Vision transformers as Hugging Face writes them: with a classifier (ViTForImageClassification), or without (ViTModel,
which DINO's backbones are; `vocab` is then 0). Free of torch."""

from __future__ import annotations

import math
from collections.abc import Sequence

from trainwright.errors import UserError
from trainwright.train.models.hf_family import Config, Family
from trainwright.train.models.shape import ModelShape

TABLE = {
    "cls": "vit.embeddings.cls_token",
    "positions": "vit.embeddings.position_embeddings",
    "patch.": "vit.embeddings.patch_embeddings.projection.",
    "attention.qkv.": "vit.encoder.layer.{}.attention.attention.{part}.",
    "attention.out.": "vit.encoder.layer.{}.attention.output.dense.",
    "attention_norm.": "vit.encoder.layer.{}.layernorm_before.",
    "mlp.up.": "vit.encoder.layer.{}.intermediate.dense.",
    "mlp.down.": "vit.encoder.layer.{}.output.dense.",
    "mlp_norm.": "vit.encoder.layer.{}.layernorm_after.",
    "norm.": "vit.layernorm.",
    "head.": "classifier.",
}


def table_of(shape: ModelShape) -> dict[str, str]:
    return TABLE if shape.vocab else {ours: theirs.removeprefix("vit.") for ours, theirs in TABLE.items()}


def _vit(config: Config, where: str) -> Config:
    side, patch = config["image_size"], config["patch_size"]
    if side % patch:
        raise UserError(f"patches of {patch} pixels do not divide an image of {side}", where=where)
    bare = (config.get("architectures") or [""])[0] == "ViTModel"
    classes = 0 if bare else len(config.get("id2label") or {0: "", 1: ""})
    return {"context": 1 + (side // patch) ** 2, "vocab": classes}


def classes_in(config: Config) -> tuple[str, ...]:
    """The names of the classes, by number, up to the last one that is named; none where none is."""
    table = config.get("id2label") or {}
    names = [str(table.get(str(n), f"LABEL_{n}")) for n in range(len(table))]
    while names and names[-1] == f"LABEL_{len(names) - 1}":
        names.pop()
    return tuple(names)


def label_names(outputs: int, names: Sequence[str] = ()) -> Config:
    """The classes in a config; an output without one has the name that transformers gives it."""
    every = [*names[:outputs], *(f"LABEL_{n}" for n in range(len(names), outputs))]
    ids = {name: n for n, name in reversed(list(enumerate(every)))}  # of two with one name, the first: it is a class
    return {"id2label": {str(n): name for n, name in enumerate(every)}, "label2id": dict(reversed(ids.items()))}


def _write(shape: ModelShape) -> Config:
    return {
        "architectures": ["ViTForImageClassification" if shape.vocab else "ViTModel"],
        **(label_names(shape.vocab) if shape.vocab else {}),
        "hidden_act": "gelu",
        "qkv_bias": True,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "encoder_stride": shape.patch,
        "image_size": shape.patch * math.isqrt(shape.context - 1),
    }


VISION: dict[str, Family] = {
    "vit": Family(
        "ViTForImageClassification",
        {"hidden_size": "hidden", "intermediate_size": "ffn", "num_hidden_layers": "layers",
         "num_attention_heads": "heads", "layer_norm_eps": "norm_eps", "image_size": "image", "patch_size": "patch",
         "num_channels": "channels"},
        features={"kind": "vision", "norm": "layernorm", "norm_bias": True, "activation": "gelu", "bias": True,
                  "position": "learned"},
        defaults={"layer_norm_eps": 1e-12, "image_size": 224, "patch_size": 16, "num_channels": 3},
        fixed={"hidden_act": "gelu", "qkv_bias": True},
        special=_vit, write=_write,
        special_keys=("id2label", "encoder_stride", "pooler_act", "pooler_output_size", "hidden_dropout_prob",
                      "attention_probs_dropout_prob"),
    ),
}  # fmt: skip
