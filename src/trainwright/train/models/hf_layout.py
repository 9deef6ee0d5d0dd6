"""How Hugging Face names and lays out the parameters of each family, both ways."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from trainwright.train.models import hf_gpt_oss as gpt_oss
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
QWEN3_MOE = {
    **LLAMA,
    "mlp.router.": "model.layers.{}.mlp.gate.",
    "mlp.experts.gate": "model.layers.{}.mlp.experts.{expert}.gate_proj.weight",
    "mlp.experts.up": "model.layers.{}.mlp.experts.{expert}.up_proj.weight",
    "mlp.experts.down": "model.layers.{}.mlp.experts.{expert}.down_proj.weight",
}
MIXTRAL = {
    **LLAMA,
    "mlp.router.": "model.layers.{}.block_sparse_moe.gate.",
    "mlp.experts.gate": "model.layers.{}.block_sparse_moe.experts.{expert}.w1.weight",
    "mlp.experts.up": "model.layers.{}.block_sparse_moe.experts.{expert}.w3.weight",
    "mlp.experts.down": "model.layers.{}.block_sparse_moe.experts.{expert}.w2.weight",
}
DEEPSEEK = {
    **QWEN3_MOE,
    "attention.q_down.": "model.layers.{}.self_attn.q_a_proj.",
    "attention.q_norm.": "model.layers.{}.self_attn.q_a_layernorm.",
    "attention.q.": "model.layers.{}.self_attn.q_b_proj.",
    "attention.kv_down.": "model.layers.{}.self_attn.kv_a_proj_with_mqa.",
    "attention.kv_norm.": "model.layers.{}.self_attn.kv_a_layernorm.",
    "attention.kv.": "model.layers.{}.self_attn.kv_b_proj.",
    "mlp.shared.gate.": "model.layers.{}.mlp.shared_experts.gate_proj.",
    "mlp.shared.up.": "model.layers.{}.mlp.shared_experts.up_proj.",
    "mlp.shared.down.": "model.layers.{}.mlp.shared_experts.down_proj.",
}
DEEPSEEK_WIDE_QUERIES = {**DEEPSEEK, "attention.q.": "model.layers.{}.self_attn.q_proj."}
GEMMA = {
    **LLAMA,
    "attention_post_norm.": "model.layers.{}.post_attention_layernorm.",
    "mlp_norm.": "model.layers.{}.pre_feedforward_layernorm.",
    "mlp_post_norm.": "model.layers.{}.post_feedforward_layernorm.",
}
GPT_OSS = {
    **LLAMA,
    "attention.": "model.layers.{}.self_attn.",  # its sinks
    "mlp.router.": "model.layers.{}.mlp.router.",
}
PHI3 = {
    **LLAMA,
    "attention.qkv.": "model.layers.{}.self_attn.qkv_proj.",
    "mlp.gate.": "model.layers.{}.mlp.gate_up_proj.",
}
NEOX = {
    "embed.": "gpt_neox.embed_in.",
    "head.": "embed_out.",
    "norm.": "gpt_neox.final_layer_norm.",
    "attention_norm.": "gpt_neox.layers.{}.input_layernorm.",
    "mlp_norm.": "gpt_neox.layers.{}.post_attention_layernorm.",
    "attention.qkv.": "gpt_neox.layers.{}.attention.query_key_value.",
    "attention.out.": "gpt_neox.layers.{}.attention.dense.",
    "mlp.up.": "gpt_neox.layers.{}.mlp.dense_h_to_4h.",
    "mlp.down.": "gpt_neox.layers.{}.mlp.dense_4h_to_h.",
}
BY_HEAD = ("falcon", "gpt_neox")  # families whose queries, keys and values lie together by head, as ours
PARTS = {"bert": "query key value", "roberta": "query key value", "esm2": "query key value", "vit": "query key value"}
TABLES = {
    **ENCODER_TABLES, "llama": LLAMA, "mistral": LLAMA, "qwen2": LLAMA, "qwen3": LLAMA, "gpt2": GPT2, "gpt3": GPT2,
    "mpt": MPT, "mixtral": MIXTRAL, "qwen3_moe": QWEN3_MOE, "deepseek_v2": DEEPSEEK, "deepseek_v3": DEEPSEEK,
    "gemma2": GEMMA, "gemma3_text": GEMMA, "olmo2": GEMMA, "phi3": PHI3, "gpt_neox": NEOX,
    "gpt_oss": GPT_OSS,
}  # fmt: skip


def names_of(shape: ModelShape) -> dict[str, str]:
    """Our names of parameters, and theirs."""
    if shape.family == "vit":
        return table_of(shape)
    if shape.latent_kv and not shape.latent_q:
        return DEEPSEEK_WIDE_QUERIES
    return TABLES.get(shape.family) or (FALCON_TWO_NORMS if shape.parallel_norms == 2 else FALCON)


def huggingface_name(shape: ModelShape, name: str) -> str:
    """Hugging Face's name of one of our parameters; `{part}` stands for q, k and v where they lie apart."""
    if shape.family == "t5":
        return t5_name(shape, name)
    if shape.family == "vit" and "." not in name:
        return table_of(shape)[name]
    layer, rest = _layer_of(name)
    stem, kind = rest.rsplit(".", 1)
    return names_of(shape)[stem + "."].replace("{}", layer) + kind


def _layer_of(name: str) -> tuple[str, str]:
    """The number of the layer of a parameter, if it has one, and the rest of its name."""
    if not name.startswith("blocks."):
        return "", name
    _, layer, rest = name.split(".", 2)
    return layer, rest


def expert_names(shape: ModelShape, name: str) -> list[list[str]]:
    """Hugging Face keeps every expert's matrices apart: by expert, the names of what lies in one of our tensors."""
    layer, rest = _layer_of(name)
    parts = ("mlp.experts.gate", "mlp.experts.up") if rest.endswith("gate_up") else (rest,)
    names = [names_of(shape)[part].replace("{}", layer) for part in parts]
    return [[theirs.replace("{expert}", str(expert)) for theirs in names] for expert in range(shape.experts)]


def to_huggingface(shape: ModelShape, name: str, tensor: Tensor, read: Read | None = None) -> dict[str, Tensor]:
    """One of our parameters as Hugging Face keeps it. `read` gives our others, where several become one of theirs."""
    if name.endswith("router.bias"):
        return {huggingface_name(shape, name).replace("bias", "e_score_correction_bias"): tensor}
    if shape.family == "phi3" and ".mlp.up." in name:
        return {}  # written together with the gate
    if shape.family == "phi3" and ".mlp.gate." in name and read is not None:
        return {huggingface_name(shape, name): torch.cat([tensor, read(name.replace(".gate.", ".up."))])}
    own = gpt_oss.theirs_of(shape, name)
    if own is not None:
        return {own: gpt_oss.to_theirs(name, tensor)}
    if ".mlp.experts." in name:
        pieces = tensor.flatten(0, 1) if name.endswith("gate_up") else tensor
        names = [theirs for expert in expert_names(shape, name) for theirs in expert]
        return dict(zip(names, pieces, strict=True))
    theirs = huggingface_name(shape, name)
    if ".attention.qkv." in name and shape.family not in BY_HEAD:
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
    if name.endswith("router.bias"):
        return read(huggingface_name(shape, name).replace("bias", "e_score_correction_bias"))
    if shape.family == "phi3" and (".mlp.gate." in name or ".mlp.up." in name):
        both = read(huggingface_name(shape, name.replace(".up.", ".gate."))).chunk(2)
        return both[".mlp.up." in name]
    own = gpt_oss.theirs_of(shape, name)
    if own is not None:
        return gpt_oss.to_ours(shape, name, read(own))
    if ".mlp.experts." in name:
        experts = [torch.stack([read(theirs) for theirs in names]) for names in expert_names(shape, name)]
        return torch.stack(experts) if name.endswith("gate_up") else torch.cat(experts)
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
    if ".attention.qkv." in name and shape.family not in BY_HEAD:
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
