"""How Hugging Face names and lays out the parameters of each family, and its config.json: both ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from trainwright.errors import UserError
from trainwright.train.models.shape import ModelShape, debug_sibling, shapes

Read = Callable[[str], Tensor]

LLAMA = {
    "embed.": "model.embed_tokens.",
    "norm.": "model.norm.",
    "head.": "lm_head.",
    "attention_norm.": "model.layers.{}.input_layernorm.",
    "mlp_norm.": "model.layers.{}.post_attention_layernorm.",
    "attention.qkv.": "model.layers.{}.self_attn.{part}_proj.",
    "attention.out.": "model.layers.{}.self_attn.o_proj.",
    "mlp.gate.": "model.layers.{}.mlp.gate_proj.",
    "mlp.up.": "model.layers.{}.mlp.up_proj.",
    "mlp.down.": "model.layers.{}.mlp.down_proj.",
}
GPT2 = {
    "embed.": "transformer.wte.",
    "positions.": "transformer.wpe.",
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
    "norm.": "transformer.norm_f.",
    "attention_norm.": "transformer.blocks.{}.norm_1.",
    "mlp_norm.": "transformer.blocks.{}.norm_2.",
    "attention.qkv.": "transformer.blocks.{}.attn.Wqkv.",
    "attention.out.": "transformer.blocks.{}.attn.out_proj.",
    "mlp.up.": "transformer.blocks.{}.ffn.up_proj.",
    "mlp.down.": "transformer.blocks.{}.ffn.down_proj.",
}
TABLES = {"llama": LLAMA, "mistral": LLAMA, "gpt2": GPT2, "gpt3": GPT2, "mpt": MPT}


def huggingface_name(shape: ModelShape, name: str) -> str:
    """Hugging Face's name of one of our parameters; `{part}` stands for q, k and v where they lie apart."""
    table = TABLES.get(shape.family) or (FALCON_TWO_NORMS if shape.parallel_norms == 2 else FALCON)
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
            return {theirs.replace("{part}", part): value for part, value in zip("qkv", parts, strict=True)}
        tensor = torch.cat(parts)
    return {theirs: tensor.t() if transposed(shape, name) else tensor}


def from_huggingface(shape: ModelShape, name: str, read: Read) -> Tensor:
    """The same parameter from Hugging Face's."""
    theirs = huggingface_name(shape, name)
    if "{part}" in theirs:
        return group(shape, [read(theirs.replace("{part}", part)) for part in "qkv"])
    tensor = read(theirs)
    tensor = tensor.t() if transposed(shape, name) else tensor
    if ".attention.qkv." in name and shape.family != "falcon":
        rows = [shape.heads * shape.width_per_head, kv_rows(shape), kv_rows(shape)]
        return group(shape, list(torch.split(tensor, rows)))
    return tensor


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


def config_of(shape: ModelShape, dtype: str) -> dict[str, Any]:
    """The config.json of a shape."""
    if shape.family not in (*TABLES, "falcon"):
        raise UserError(f"Hugging Face's layout of the {shape.family} family is not known here")
    common = {"vocab_size": shape.vocab, "tie_word_embeddings": shape.tied, "torch_dtype": dtype, "use_cache": True}
    return {**common, **CONFIGS[shape.family](shape)}


def _llama(shape: ModelShape) -> dict[str, Any]:
    values: dict[str, Any] = {
        "model_type": shape.family,
        "architectures": ["LlamaForCausalLM" if shape.family == "llama" else "MistralForCausalLM"],
        "hidden_size": shape.hidden,
        "intermediate_size": shape.ffn,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.width_per_head,
        "hidden_act": "silu",
        "max_position_embeddings": shape.context,
        "rms_norm_eps": shape.norm_eps,
        "rope_theta": shape.rope_theta,
    }
    if shape.family == "mistral":
        return {**values, "sliding_window": shape.window or None}
    scaling = None
    if shape.rope_scaling:
        names = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
        scaling = {"rope_type": "llama3", **dict(zip(names, shape.rope_scaling, strict=True))}
    return {**values, "rope_scaling": scaling, "attention_bias": False, "mlp_bias": False}


def _gpt2(shape: ModelShape) -> dict[str, Any]:
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_embd": shape.hidden,
        "n_inner": shape.ffn,
        "n_layer": shape.layers,
        "n_head": shape.heads,
        "n_positions": shape.context,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": shape.norm_eps,
        **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0),
    }


def _falcon(shape: ModelShape) -> dict[str, Any]:
    return {
        "model_type": "falcon",
        "architectures": ["FalconForCausalLM"],
        "hidden_size": shape.hidden,
        "ffn_hidden_size": shape.ffn,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_kv_heads": shape.kv_heads,
        "new_decoder_architecture": shape.parallel_norms == 2,
        "multi_query": shape.kv_heads == 1,
        "parallel_attn": True,
        "bias": False,
        "alibi": False,
        "activation": "gelu",
        "layer_norm_epsilon": shape.norm_eps,
        "max_position_embeddings": shape.context,
        "rope_theta": shape.rope_theta,
    }


def _mpt(shape: ModelShape) -> dict[str, Any]:
    return {
        "model_type": "mpt",
        "architectures": ["MptForCausalLM"],
        "d_model": shape.hidden,
        "n_layers": shape.layers,
        "n_heads": shape.heads,
        "expansion_ratio": shape.ffn // shape.hidden,
        "max_seq_len": shape.context,
        "no_bias": True,
        "layer_norm_epsilon": shape.norm_eps,
        "attn_config": {"alibi": True, "alibi_bias_max": 8},
    }


CONFIGS = {"llama": _llama, "mistral": _llama, "gpt2": _gpt2, "gpt3": _gpt2, "falcon": _falcon, "mpt": _mpt}


def shape_of(config: dict[str, Any], name: str) -> ModelShape:
    """The shape a config.json describes: the named one if `name` is given, else the first that fits."""
    known = [*shapes().values(), *(debug_sibling(s) for s in shapes().values())]
    fitting = [s for s in known if (not name or s.name == name) and s.family in CONFIGS and fits(s, config)]
    if fitting:
        return fitting[0]
    what = f"is not {name}: {differences(name, config, known)}" if name else "describes no model of the shape table"
    raise UserError(f"config.json {what}", fix="name the model with --model, or add its shape to shapes.toml")


def fits(shape: ModelShape, config: dict[str, Any]) -> bool:
    return not _mismatches(shape, config)


def differences(name: str, config: dict[str, Any], known: list[ModelShape]) -> str:
    shape = next((s for s in known if s.name == name and s.family in CONFIGS), None)
    if shape is None:
        return "no such shape"
    return "; ".join(
        f"{key} is {config.get(key)}, the shape has {value}" for key, value in _mismatches(shape, config).items()
    )


def _mismatches(shape: ModelShape, config: dict[str, Any]) -> dict[str, Any]:
    """Entries of the shape's own config that this one contradicts. What it leaves out is taken as agreed; the length it
    was trained for, dropout and dtype may differ."""
    free = ("max_position_embeddings", "architectures", "torch_dtype", "use_cache", "attn_config", "max_seq_len")
    given, wanted = _flat(config), _flat(config_of(shape, ""))
    apart = {}
    for key, value in wanted.items():
        if key in free or key.endswith("pdrop"):
            continue
        strict = key in ("rope_scaling", "sliding_window")
        if given.get(key) != value and (strict or (value is not None and given.get(key) is not None)):
            apart[key] = value
    return apart


def _flat(config: dict[str, Any]) -> dict[str, Any]:
    """Newer transformers keep base and scaling of rotary positions in one table; older ones apart."""
    rope = dict(config.get("rope_parameters") or {})
    theta = rope.pop("rope_theta", None)
    scaling = config.get("rope_scaling") or (rope if rope.get("rope_type", "default") != "default" else None)
    return {**config, "rope_theta": config.get("rope_theta", theta), "rope_scaling": scaling}
