"""What each Hugging Face model type writes into its config.json: the keys that are fields of a ModelShape, those that
the decoder computes at one value only, and those without influence on the logits. Free of torch."""

from __future__ import annotations

from typing import Any

from trainwright.errors import UserError
from trainwright.train.models.hf_family import Config, Family
from trainwright.train.models.shape import ModelShape

ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh", "gelu_fast": "gelu-tanh",
               "relu": "relu"}  # fmt: skip
# Keys without influence on the logits: bookkeeping, initialisation, dropout, text generation.
IGNORED = frozenset((
    "_name_or_path", "architectures", "auto_map", "dtype", "id2label", "label2id", "model_type", "num_labels",
    "problem_type", "task_specific_params", "tokenizer_class", "tokenizer_name", "torch_dtype",
    "transformers_version", "finetuning_task", "prefix", "verbose", "init_device", "init_config",
    "attn_implementation", "_attn_implementation", "_attn_implementation_autoset", "attn_impl",
    "initializer_range", "output_attentions", "output_hidden_states", "output_scores", "return_dict",
    "return_dict_in_generate", "use_cache", "torchscript", "use_bfloat16", "gradient_checkpointing",
    "pretraining_tp", "chunk_size_feed_forward", "is_decoder", "keys_to_ignore_at_inference", "attention_dropout",
    "hidden_dropout", "classifier_dropout", "resid_pdrop", "embd_pdrop", "emb_pdrop", "attn_pdrop",
    "summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels", "summary_first_dropout",
    "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "cls_token_id", "unk_token_id",
    "decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id", "max_length", "min_length",
    "do_sample", "early_stopping", "num_beams", "num_beam_groups", "diversity_penalty", "temperature", "top_k",
    "top_p", "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences", "remove_invalid_values",
    "suppress_tokens", "begin_suppress_tokens", "exponential_decay_length_penalty", "tf_legacy_loss",
    "tie_encoder_decoder", "learned_pos_emb", "n_ctx", "max_window_layers",
))  # fmt: skip
# Features that no family here has: any other value is refused.
ABSENT: Config = {
    "is_encoder_decoder": False, "add_cross_attention": False, "cross_attention_hidden_size": None, "pruned_heads": {},
}  # fmt: skip
ROPE_KEYS = ("rope_theta", "rope_scaling", "rope_parameters")
YARN_KEYS = ("factor", "beta_fast", "beta_slow", "original_max_position_embeddings", "mscale", "mscale_all_dim")
YARN_DEFAULTS = {"beta_fast": 32.0, "beta_slow": 1.0}
LLAMA3_KEYS = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")


def read_rope(config: Config, where: str, more: tuple[str, ...] = ()) -> Config:
    """Base and scaling of rotary positions. Newer transformers keep both in `rope_parameters`, older ones apart.
    `more` is what else the family may have: `partial` (a part of a head), `yarn`."""
    table = {**(config.get("rope_parameters") or {}), **(config.get("rope_scaling") or {})}
    theta = float(table.pop("rope_theta", None) or config.get("rope_theta") or 10_000.0)
    legacy = table.pop("type", "default")
    kind = table.pop("rope_type", legacy)
    share = table.pop("partial_rotary_factor", None) or config.get("partial_rotary_factor") or 1.0
    if share != 1.0 and "partial" not in more:
        raise UserError("partial rotary embeddings (partial_rotary_factor) are not supported", where=where)
    if kind == "yarn" and "yarn" in more:
        return {"rope_theta": theta, "rope_scaling": _read_yarn(table, where)}
    known = {"default": (), "linear": ("factor",), "llama3": LLAMA3_KEYS}.get(kind)
    if known is None or set(table) - {*known, "original_max_position_embeddings"} or set(known) - set(table):
        raise UserError(f"rope_scaling of type {kind!r} with {sorted(table)} is not supported", where=where)
    part = {} if share == 1.0 else {"rope_dim": _rotary_part(config, share, where)}
    return {"rope_theta": theta, "rope_scaling": tuple(table[key] for key in known) or None, **part}


def _rotary_part(config: Config, share: float, where: str) -> int:
    """Dimensions of a head with rotary positions."""
    width = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    part = int(width * share)
    if part % 2:
        raise UserError(
            f"partial_rotary_factor = {share} gives {part} of {width} dimensions, an odd number", where=where
        )
    return part


def _read_yarn(table: Config, where: str) -> tuple[float, ...]:
    unknown = sorted(set(table) - set(YARN_KEYS))
    if unknown or not table.get("mscale") or not table.get("mscale_all_dim"):
        raise UserError(f"rope_scaling of type 'yarn' with {sorted(table)} is not supported", where=where)
    return tuple(float(table.get(key) or YARN_DEFAULTS[key]) for key in YARN_KEYS)


def rotary_share(shape: ModelShape) -> float:
    return (shape.rope_dim or shape.width_per_head) / shape.width_per_head


def write_rope(shape: ModelShape) -> Config:
    scaling: Config | None = None
    if shape.rope_scaling and len(shape.rope_scaling) == 1:
        scaling = {"rope_type": "linear", "factor": shape.rope_scaling[0]}
    elif shape.rope_scaling and len(shape.rope_scaling) == len(YARN_KEYS):
        scaling = {"rope_type": "yarn", **dict(zip(YARN_KEYS, shape.rope_scaling, strict=True))}
    elif shape.rope_scaling and len(shape.rope_scaling) > len(YARN_KEYS):
        scaling = {"rope_type": "yarn", "truncate": False, **dict(zip(YARN_KEYS[:4], shape.rope_scaling, strict=False))}
    elif shape.rope_scaling:
        scaling = {"rope_type": "llama3", **dict(zip(LLAMA3_KEYS, shape.rope_scaling, strict=True))}
    return {"rope_theta": shape.rope_theta, "rope_scaling": scaling}


def read_llama(config: Config, where: str) -> Config:
    biased = bool(config.get("attention_bias", False))
    return {
        **read_rope(config, where),
        "qkv_bias": biased,
        "out_bias": biased,
        "mlp_bias": bool(config.get("mlp_bias", False)),
    }


def write_llama(shape: ModelShape) -> Config:
    return {
        **write_rope(shape),
        "attention_bias": shape.bias or shape.out_bias,
        "mlp_bias": shape.bias or shape.mlp_bias,
    }


def read_mistral(config: Config, where: str) -> Config:
    return {**read_rope(config, where), "window": config.get("sliding_window") or 0}


def read_qwen(config: Config, where: str) -> Config:
    if set(config.get("layer_types") or ["full_attention"]) != {"full_attention"}:
        raise UserError("sliding attention in some layers (layer_types) is not supported", where=where)
    biased = config["model_type"] == "qwen2" or bool(config.get("attention_bias", False))
    return {**read_rope(config, where), "qkv_bias": biased, "out_bias": bool(config.get("attention_bias", False))}


def write_qwen(shape: ModelShape) -> Config:
    own = {} if shape.family == "qwen2" else {"attention_bias": shape.qkv_bias}
    return {**write_rope(shape), "use_sliding_window": False, **own}


def _gpt2(config: Config, where: str) -> Config:
    return {
        "activation": activation_of(config["activation_function"], "activation_function", where),
        "ffn": config.get("n_inner") or 4 * config["n_embd"],
    }


def _write_gpt2(shape: ModelShape) -> Config:
    return {
        "activation_function": activation_name(shape.activation),
        "n_inner": shape.ffn,
        **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0),
    }


def _falcon(config: Config, where: str) -> Config:
    """`num_kv_heads` counts only in the newer architecture; before, `multi_query` decides."""
    heads, newer = config["num_attention_heads"], bool(config["new_decoder_architecture"])
    kv_heads = config.get("num_kv_heads") or heads if newer else 1 if config["multi_query"] else heads
    return {
        **read_rope(config, where),
        "kv_heads": kv_heads,
        "ffn": config.get("ffn_hidden_size") or 4 * config["hidden_size"],
        "parallel_norms": config.get("num_ln_in_parallel_attn") or (2 if newer else 1),
        "activation": activation_of(config["activation"], "activation", where),
    }


def _write_falcon(shape: ModelShape) -> Config:
    return {
        **write_rope(shape),
        "num_kv_heads": shape.kv_heads,
        "ffn_hidden_size": shape.ffn,
        "new_decoder_architecture": shape.parallel_norms == 2 or shape.kv_heads not in (1, shape.heads),
        "multi_query": shape.kv_heads == 1,
        "num_ln_in_parallel_attn": shape.parallel_norms,
        "parallel_attn": True,
        "alibi": False,
        "activation": "gelu",
    }


MPT_ATTENTION: Config = {
    "attn_type": "multihead_attention", "clip_qkv": None, "softmax_scale": None, "prefix_lm": False, "qk_ln": False,
    "attn_uses_sequence_id": False, "alibi": True, "alibi_bias_max": 8,
}  # fmt: skip


def _mpt(config: Config, where: str) -> Config:
    for key, value in (config.get("attn_config") or {}).items():
        if key in IGNORED or key in ABSENT or value is None:
            continue
        if key not in MPT_ATTENTION:
            raise UserError(f"unknown key 'attn_config.{key}' ({value!r})", where=where)
        if value != MPT_ATTENTION[key]:
            what = f"attn_config.{key} = {value!r} is not supported, only {MPT_ATTENTION[key]!r}"
            raise UserError(what, where=where)
    return {"ffn": 4 * config["d_model"]}


def _write_mpt(shape: ModelShape) -> Config:
    return {
        "expansion_ratio": 4,
        "no_bias": True,
        "attn_config": {"alibi": True, "alibi_bias_max": 8},
    }


def activation_of(theirs: Any, key: str, where: str) -> str:
    if theirs not in ACTIVATIONS:
        raise UserError(f"{key} = {theirs!r} is not supported", where=where, fix=f"one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[theirs]


def activation_name(ours: str) -> str:
    return {name: theirs for theirs, name in reversed(ACTIVATIONS.items())}[ours]


OPTIONAL = ("head_dim", "num_key_value_heads")
LLAMA_FIELDS = {
    "vocab_size": "vocab", "hidden_size": "hidden", "intermediate_size": "ffn", "num_hidden_layers": "layers",
    "num_attention_heads": "heads", "num_key_value_heads": "kv_heads", "head_dim": "head_dim",
    "max_position_embeddings": "context", "rms_norm_eps": "norm_eps", "tie_word_embeddings": "tied",
}  # fmt: skip
LLAMA_DEFAULTS = {"rms_norm_eps": 1e-6, "tie_word_embeddings": False, "max_position_embeddings": 2048}
QWEN: dict[str, Any] = {
    "special": read_qwen,
    "write": write_qwen,
    "fixed": {"hidden_act": "silu", "use_sliding_window": False},
    "defaults": {**LLAMA_DEFAULTS, "max_position_embeddings": 32768},
}
LAYER_NORM = {"norm": "layernorm", "norm_bias": True}
DENSE: dict[str, Family] = {
    "llama": Family(
        "LlamaForCausalLM", LLAMA_FIELDS, defaults=LLAMA_DEFAULTS, fixed={"hidden_act": "silu"}, special=read_llama,
        special_keys=(*ROPE_KEYS, "attention_bias", "mlp_bias"), write=write_llama,
    ),
    "mistral": Family(
        "MistralForCausalLM", LLAMA_FIELDS, fixed={"hidden_act": "silu"}, special=read_mistral,
        defaults={**LLAMA_DEFAULTS, "num_key_value_heads": 8, "sliding_window": 4096,
                  "max_position_embeddings": 131072},
        special_keys=(*ROPE_KEYS, "sliding_window"),
        write=lambda shape: {**write_rope(shape), "sliding_window": shape.window or None},
    ),
    "qwen2": Family(
        "Qwen2ForCausalLM", {k: v for k, v in LLAMA_FIELDS.items() if k != "head_dim"},
        special_keys=(*ROPE_KEYS, "layer_types", "sliding_window"), **QWEN,
    ),
    "qwen3": Family(
        "Qwen3ForCausalLM", LLAMA_FIELDS, features={"qk_norm": True},
        special_keys=(*ROPE_KEYS, "layer_types", "sliding_window", "attention_bias"),
        **{**QWEN, "defaults": {**QWEN["defaults"], "head_dim": 128}},
    ),
    "gpt2": Family(
        "GPT2LMHeadModel",
        {"vocab_size": "vocab", "n_embd": "hidden", "n_layer": "layers", "n_head": "heads", "n_positions": "context",
         "layer_norm_epsilon": "norm_eps", "tie_word_embeddings": "tied"},
        features={**LAYER_NORM, "position": "learned", "bias": True},
        defaults={"layer_norm_epsilon": 1e-5, "tie_word_embeddings": True, "activation_function": "gelu_new"},
        fixed={"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "reorder_and_upcast_attn": False},
        special=_gpt2, special_keys=("n_inner", "activation_function"), write=_write_gpt2,
    ),
    "falcon": Family(
        "FalconForCausalLM",
        {"vocab_size": "vocab", "hidden_size": "hidden", "num_hidden_layers": "layers", "num_attention_heads": "heads",
         "layer_norm_epsilon": "norm_eps", "tie_word_embeddings": "tied", "bias": "bias",
         "max_position_embeddings": "context"},
        features={**LAYER_NORM, "parallel_block": True},
        defaults={"layer_norm_epsilon": 1e-5, "tie_word_embeddings": True, "bias": False, "activation": "gelu",
                  "multi_query": True, "new_decoder_architecture": False, "max_position_embeddings": 2048},
        fixed={"parallel_attn": True, "alibi": False, "apply_residual_connection_post_layernorm": False},
        special=_falcon, write=_write_falcon,
        special_keys=(*ROPE_KEYS, "num_kv_heads", "ffn_hidden_size", "new_decoder_architecture", "multi_query",
                      "num_ln_in_parallel_attn", "activation"),
    ),
    "mpt": Family(
        "MptForCausalLM",
        {"vocab_size": "vocab", "d_model": "hidden", "n_layers": "layers", "n_heads": "heads", "max_seq_len": "context",
         "layer_norm_epsilon": "norm_eps", "tie_word_embeddings": "tied"},
        features={"norm": "layernorm", "position": "alibi", "activation": "gelu"},
        defaults={"layer_norm_epsilon": 1e-5, "tie_word_embeddings": True},
        fixed={"no_bias": True, "logit_scale": None, "embedding_fraction": 1.0, "norm_type": "low_precision_layernorm",
               "expansion_ratio": 4},  # transformers computes 4 whatever the config says
        special=_mpt, special_keys=("attn_config",), write=_write_mpt,
    ),
}  # fmt: skip
