"""How Hugging Face names and lays out the parameters of each family, both ways."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from trainwright.train.models.hf_encoders import TABLES as ENCODER_TABLES
from trainwright.train.models.hf_t5 import t5_name
from trainwright.train.models.hf_vision import table_of
from trainwright.train.models.shape import ModelShape

Read = Callable[[str], Tensor]

LLAMA = {
    "embed.": "model.embed_tokens.",
    "norm.": "model.norm.",
    "head.": "lm_head.",
    "attention_norm.": "model.layers.{}.input_layernorm.",
    "mlp_norm.": "model.layers.{}.post_attention_layernorm.",
    "attention.qkv.": "model.layers.{}.self_attn.{part}_proj.",
    "attention.out.": "model.layers.{}.self_attn.o_proj.",
    "attention.q_norm.": "model.layers.{}.self_attn.q_norm.",
    "attention.k_norm.": "model.layers.{}.self_attn.k_norm.",
    "mlp.gate.": "model.layers.{}.mlp.gate_proj.",
    "mlp.up.": "model.layers.{}.mlp.up_proj.",
    "mlp.down.": "model.layers.{}.mlp.down_proj.",
}
GPT2 = {
    "embed.": "transformer.wte.",
    "positions.": "transformer.wpe.",
    "head.": "lm_head.",
    "norm.": "transformer.ln_f.",
    "attention_norm.": "transformer.h.{}.ln_1.",
    "mlp_norm.": "transformer.h.{}.ln_2.",
    "attention.qkv.": "transformer.h.{}.attn.c_attn.",
    "attention.out.": "transformer.h.{}.attn.c_proj.",
    "mlp.up.": "transformer.h.{}.mlp.c_fc.",
    "mlp.down.": "transformer.h.{}.mlp.c_proj.",
}
FALCON = {
    "embed.": "transformer.word_embeddings.",
    "head.": "lm_head.",
    "norm.": "transformer.ln_f.",
    "attention_norm.": "transformer.h.{}.input_layernorm.",
    "attention.qkv.": "transformer.h.{}.self_attention.query_key_value.",
    "attention.out.": "transformer.h.{}.self_attention.dense.",
    "mlp.up.": "transformer.h.{}.mlp.dense_h_to_4h.",
    "mlp.down.": "transformer.h.{}.mlp.dense_4h_to_h.",
}
FALCON_TWO_NORMS = {
    **FALCON,
    "attention_norm.": "transformer.h.{}.ln_attn.",
    "mlp_norm.": "transformer.h.{}.ln_mlp.",
}
MPT = {
    "embed.": "transformer.wte.",
    "head.": "lm_head.",
    "norm.": "transformer.norm_f.",
    "attention_norm.": "transformer.blocks.{}.norm_1.",
    "mlp_norm.": "transformer.blocks.{}.norm_2.",
    "attention.qkv.": "transformer.blocks.{}.attn.Wqkv.",
    "attention.out.": "transformer.blocks.{}.attn.out_proj.",
    "mlp.up.": "transformer.blocks.{}.ffn.up_proj.",
    "mlp.down.": "transformer.blocks.{}.ffn.down_proj.",
}
PARTS = {
    "bert": "query key value",
    "roberta": "query key value",
    "esm2": "query key value",
    "vit": "query key value",
}  # else q, k, v
TABLES = {
    **ENCODER_TABLES,
    "llama": LLAMA,
    "mistral": LLAMA,
    "qwen2": LLAMA,
    "qwen3": LLAMA,
    "gpt2": GPT2,
    "gpt3": GPT2,
    "mpt": MPT,
}


def huggingface_name(shape: ModelShape, name: str) -> str:
    """Hugging Face's name of one of our parameters; `{part}` stands for q, k and v where they lie apart."""
    if shape.family == "t5":
        return t5_name(shape, name)
    if shape.family == "vit" and "." not in name:
        return table_of(shape)[name]
    table = table_of(shape) if shape.family == "vit" else TABLES.get(shape.family)
    table = table or (FALCON_TWO_NORMS if shape.parallel_norms == 2 else FALCON)
    layer, rest = "", name
    if name.startswith("blocks."):
        _, layer, rest = name.split(".", 2)
    stem, kind = rest.rsplit(".", 1)
    return table[stem + "."].replace("{}", layer) + kind


def to_huggingface(shape: ModelShape, name: str, tensor: Tensor) -> dict[str, Tensor]:
    """One of our parameters as Hugging Face keeps it."""
    theirs = huggingface_name(shape, name)
    if ".attention.qkv." in name and shape.family != "falcon":
        parts = ungroup(shape, tensor)
        if "{part}" in theirs:
            names = part_names(shape)
            return {theirs.replace("{part}", part): value for part, value in zip(names, parts, strict=True)}
        tensor = torch.cat(parts)
    if name.endswith(".cross.kv.weight"):
        rows = tensor.view(shape.heads, 2, shape.width_per_head, -1)
        return {theirs.replace("{part}", part): rows[:, n].reshape(-1, shape.hidden) for n, part in enumerate("kv")}
    if shape.family == "vit":
        tensor = tensor.reshape(vision_size(shape, name, tensor))
    return {theirs: tensor.t() if transposed(shape, name) else tensor}


def from_huggingface(shape: ModelShape, name: str, read: Read) -> Tensor:
    """The same parameter from Hugging Face's."""
    theirs = huggingface_name(shape, name)
    if name.endswith(".cross.kv.weight"):
        parts = [read(theirs.replace("{part}", part)) for part in "kv"]
        heads = [part.view(shape.heads, 1, shape.width_per_head, -1) for part in parts]
        return torch.cat(heads, dim=1).reshape(-1, shape.hidden)
    if "{part}" in theirs:
        return group(shape, [read(theirs.replace("{part}", part)) for part in part_names(shape)])
    tensor = read(theirs)
    if shape.family == "vit" and name in ("cls", "positions", "patch.weight"):
        return tensor.flatten(1) if name == "patch.weight" else tensor[0]
    tensor = tensor.t() if transposed(shape, name) else tensor
    if ".attention.qkv." in name and shape.family != "falcon":
        rows = [shape.heads * shape.width_per_head, kv_rows(shape), kv_rows(shape)]
        return group(shape, list(torch.split(tensor, rows)))
    return tensor


def vision_size(shape: ModelShape, name: str, tensor: Tensor) -> tuple[int, ...]:
    """The shape in which Hugging Face keeps a parameter of a vision transformer."""
    if name == "patch.weight":
        return (shape.hidden, shape.channels, shape.patch, shape.patch)
    return (1, *tensor.shape) if name in ("cls", "positions") else tuple(tensor.shape)


def part_names(shape: ModelShape) -> list[str]:
    """How Hugging Face calls the three parts of qkv."""
    return PARTS.get(shape.family, "q k v").split()


def transposed(shape: ModelShape, name: str) -> bool:
    """GPT-2 keeps its linear layers as [in, out]."""
    linear = (".qkv.weight", ".out.weight", ".up.weight", ".down.weight")
    return shape.family in ("gpt2", "gpt3") and name.endswith(linear)


def kv_rows(shape: ModelShape) -> int:
    return shape.kv_heads * shape.width_per_head


def ungroup(shape: ModelShape, tensor: Tensor) -> list[Tensor]:
    """Rows by key-value head (queries, key, value) to all queries, all keys, all values."""
    per = shape.heads // shape.kv_heads
    rows = tensor.view(shape.kv_heads, per + 2, shape.width_per_head, *tensor.shape[1:])
    return [part.reshape(-1, *tensor.shape[1:]) for part in (rows[:, :per], rows[:, per], rows[:, per + 1])]


def group(shape: ModelShape, parts: list[Tensor]) -> Tensor:
    tail = parts[0].shape[1:]
    rows = [part.reshape(shape.kv_heads, -1, shape.width_per_head, *tail) for part in parts]
    return torch.cat(rows, dim=1).reshape(-1, *tail)
