"""The config.json of mixtures of experts: Mixtral, Qwen 3 MoE, DeepSeek V2 and V3, GPT-OSS."""

from __future__ import annotations

from trainwright.errors import UserError
from trainwright.train.models.hf_decoders import full_every, layer_types
from trainwright.train.models.hf_families import (
    LLAMA_DEFAULTS,
    LLAMA_FIELDS,
    ROPE_KEYS,
    YARN_DEFAULTS,
    YARN_KEYS,
    read_mistral,
    read_qwen,
    read_rope,
    write_qwen,
    write_rope,
)
from trainwright.train.models.hf_family import Config, Family
from trainwright.train.models.shape import ModelShape

# Keys of a router that change the training and not the logits.
ROUTER_LOSS = {"router_aux_loss_coef": "balance_loss"}


def _qwen3_moe(config: Config, where: str) -> Config:
    plain = sorted(config.get("mlp_only_layers") or [])
    step = config.get("decoder_sparse_step", 1)
    if step != 1 or plain != list(range(len(plain))):
        what = f"dense layers {plain} with decoder_sparse_step = {step}: only the first layers may be dense"
        raise UserError(what, where=where)
    experts = config.get("num_local_experts") or config["num_experts"]  # newer transformers write the first
    own = {"experts": experts, "dense_layers": len(plain), "dense_ffn": config["intermediate_size"] if plain else 0}
    return {**read_qwen(config, where), **own}


def _write_qwen3_moe(shape: ModelShape) -> Config:
    return {
        **write_qwen(shape),
        "intermediate_size": shape.dense_ffn or shape.ffn,
        "num_experts": shape.experts,
        "mlp_only_layers": list(range(shape.dense_layers)),
        "decoder_sparse_step": 1,
    }


def _deepseek(config: Config, where: str) -> Config:
    heads, rope = config["num_attention_heads"], config["qk_rope_head_dim"]
    if (config.get("num_key_value_heads") or heads) != heads:
        raise UserError("num_key_value_heads must be num_attention_heads under latent attention", where=where)
    dense = min(config.get("first_k_dense_replace") or 0, config["num_hidden_layers"])
    biased = bool(config.get("attention_bias"))
    limited = config.get("topk_method") != "greedy"
    return {
        **read_rope(config, where, ("yarn",)),
        "kv_heads": heads,
        "head_dim": config["qk_nope_head_dim"] + rope,
        "rope_dim": rope,
        "rope_pairs": bool(config.get("rope_interleave", True)),
        "latent_q": config.get("q_lora_rank") or 0,
        "shared_ffn": config["moe_intermediate_size"] * (config.get("n_shared_experts") or 0),
        "dense_layers": dense,
        "dense_ffn": config["intermediate_size"] if dense else 0,
        "router_groups": (config.get("n_group") or 0) if limited else 0,
        "router_top_groups": (config.get("topk_group") or 0) if limited else 0,
        "qkv_bias": biased,
        "out_bias": biased,
    }


def _write_deepseek(shape: ModelShape) -> Config:
    limited = {"topk_method": "group_limited_greedy" if shape.router_groups else "greedy"}
    return {
        **write_rope(shape),
        "num_key_value_heads": shape.heads,
        "qk_nope_head_dim": shape.width_per_head - shape.rope_dim,
        "qk_rope_head_dim": shape.rope_dim,
        "q_lora_rank": shape.latent_q or None,
        "n_shared_experts": shape.shared_ffn // shape.ffn,
        "first_k_dense_replace": shape.dense_layers,
        "intermediate_size": shape.dense_ffn or shape.ffn,
        "n_group": shape.router_groups or 1,
        "topk_group": shape.router_top_groups or 1,
        "attention_bias": shape.qkv_bias,
        **({"rope_interleave": shape.rope_pairs} if shape.router == "sigmoid" else limited),
    }


def _gpt_oss(config: Config, where: str) -> Config:
    biased = bool(config.get("attention_bias", True))
    windows = full_every(config, 2, where)
    return {**_read_gpt_oss_rope(config, where), **windows, "qkv_bias": biased, "out_bias": biased}


def _read_gpt_oss_rope(config: Config, where: str) -> Config:
    """YaRN without rounding to whole dimensions; cosine and sine are scaled as its paper says."""
    table = {**(config.get("rope_parameters") or config.get("rope_scaling") or GPT_OSS_YARN)}
    theta = float(table.pop("rope_theta", None) or config.get("rope_theta") or GPT_OSS_THETA)
    if table.get("rope_type", table.get("type")) != "yarn":
        return read_rope({"rope_parameters": {**table, "rope_theta": theta}}, where)
    wanted = {"rope_type", "type", "truncate", *YARN_KEYS[:4]}
    if set(table) - wanted or table.get("truncate") is not False:
        raise UserError(f"rope_scaling of type 'yarn' with {sorted(table)} is not supported", where=where)
    numbers = tuple(float(table.get(key) or YARN_DEFAULTS[key]) for key in YARN_KEYS[:4])
    return {"rope_theta": theta, "rope_scaling": (*numbers, 1.0, 0.0, 0.0)}


def _write_gpt_oss(shape: ModelShape) -> Config:
    return {
        **write_rope(shape),
        "hidden_act": "silu",
        "attention_bias": shape.qkv_bias,
        "sliding_window": shape.window or None,
        "layer_types": layer_types(shape),
    }


GPT_OSS_THETA = 150_000.0
GPT_OSS_YARN: Config = {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                        "original_max_position_embeddings": 4096}  # fmt: skip
DEEPSEEK_FIELDS = {
    **{k: v for k, v in LLAMA_FIELDS.items() if k not in ("intermediate_size", "head_dim", "num_key_value_heads")},
    "moe_intermediate_size": "ffn", "n_routed_experts": "experts", "num_experts_per_tok": "experts_per_token",
    "kv_lora_rank": "latent_kv", "v_head_dim": "value_dim", "routed_scaling_factor": "router_scale",
    "aux_loss_alpha": "balance_loss",
}  # fmt: skip
DEEPSEEK_KEYS = (
    *ROPE_KEYS, "intermediate_size", "num_key_value_heads", "n_shared_experts", "q_lora_rank", "qk_nope_head_dim",
    "qk_rope_head_dim", "qk_head_dim", "head_dim", "n_group", "topk_group", "first_k_dense_replace", "attention_bias",
    "output_router_logits", "num_local_experts", "num_experts", "ep_size", "seq_aux",
)  # fmt: skip
DEEPSEEK_FIXED: Config = {"hidden_act": "silu", "moe_layer_freq": 1}
MIXTURES: dict[str, Family] = {
    "mixtral": Family(
        "MixtralForCausalLM",
        {**LLAMA_FIELDS, **ROUTER_LOSS, "num_local_experts": "experts", "num_experts_per_tok": "experts_per_token"},
        defaults={**LLAMA_DEFAULTS, "rms_norm_eps": 1e-5, "max_position_embeddings": 131072, "num_local_experts": 8,
                  "num_key_value_heads": 8, "num_experts_per_tok": 2, "router_aux_loss_coef": 0.001,
                  "rope_theta": 1e6},
        fixed={"hidden_act": "silu", "router_jitter_noise": 0.0}, special=read_mistral,
        special_keys=(*ROPE_KEYS, "sliding_window", "output_router_logits"),
        write=lambda shape: {**write_rope(shape), "sliding_window": shape.window or None},
    ),
    "qwen3_moe": Family(
        "Qwen3MoeForCausalLM",
        {**{k: v for k, v in LLAMA_FIELDS.items() if k != "intermediate_size"}, **ROUTER_LOSS,
         "moe_intermediate_size": "ffn", "num_experts_per_tok": "experts_per_token",
         "norm_topk_prob": "router_normalise"},
        features={"qk_norm": True},
        defaults={**LLAMA_DEFAULTS, "max_position_embeddings": 32768, "num_experts": 128, "num_experts_per_tok": 8,
                  "num_key_value_heads": 4, "router_aux_loss_coef": 0.001, "norm_topk_prob": False,
                  "moe_intermediate_size": 768, "intermediate_size": 6144, "head_dim": None},
        fixed={"hidden_act": "silu", "use_sliding_window": False}, special=_qwen3_moe,
        special_keys=(*ROPE_KEYS, "layer_types", "sliding_window", "attention_bias", "intermediate_size",
                      "mlp_only_layers", "decoder_sparse_step", "output_router_logits", "num_experts",
                      "num_local_experts"),
        write=_write_qwen3_moe,
    ),
    "deepseek_v2": Family(
        "DeepseekV2ForCausalLM", DEEPSEEK_FIELDS, features={"router_normalise": False, "rope_pairs": True},
        defaults={**LLAMA_DEFAULTS, "moe_intermediate_size": 1407, "n_routed_experts": 64, "kv_lora_rank": 512,
                  "q_lora_rank": 1536, "v_head_dim": 128, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
                  "n_shared_experts": 2, "routed_scaling_factor": 1.0, "topk_method": "greedy",
                  "aux_loss_alpha": 0.0, "num_experts_per_tok": 6},
        # transformers does not normalise the weights, whatever the config says
        fixed={**DEEPSEEK_FIXED, "norm_topk_prob": False, "mlp_bias": False, "scoring_func": "softmax"},
        special=_deepseek, special_keys=(*DEEPSEEK_KEYS, "topk_method"), write=_write_deepseek,
    ),
    "deepseek_v3": Family(
        "DeepseekV3ForCausalLM", {**DEEPSEEK_FIELDS, "norm_topk_prob": "router_normalise"},
        features={"router": "sigmoid", "router_bias": True},
        defaults={**LLAMA_DEFAULTS, "max_position_embeddings": 4096, "moe_intermediate_size": 2048,
                  "n_routed_experts": 256, "kv_lora_rank": 512, "q_lora_rank": 1536, "v_head_dim": 128,
                  "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "n_shared_experts": 1, "n_group": 8,
                  "topk_group": 4, "first_k_dense_replace": 3, "routed_scaling_factor": 2.5, "norm_topk_prob": True,
                  "num_experts_per_tok": 8, "aux_loss_alpha": 0.0},
        fixed={**DEEPSEEK_FIXED, "topk_method": "noaux_tc", "scoring_func": "sigmoid"}, special=_deepseek,
        # Multi-token prediction has layers of its own; the logits do not depend on them.
        special_keys=(*DEEPSEEK_KEYS, "rope_interleave", "num_nextn_predict_layers", "num_mtp_layers"),
        write=_write_deepseek,
    ),
    "gpt_oss": Family(
        "GptOssForCausalLM",
        {**LLAMA_FIELDS, **ROUTER_LOSS, "num_local_experts": "experts", "num_experts_per_tok": "experts_per_token"},
        features={"activation": "swiglu-clamped", "sinks": True, "router_linear_bias": True, "mlp_bias": True},
        defaults={**LLAMA_DEFAULTS, "rms_norm_eps": 1e-5, "max_position_embeddings": 131072, "num_local_experts": 128,
                  "num_experts_per_tok": 4, "router_aux_loss_coef": 0.001, "sliding_window": 128, "head_dim": 64,
                  "num_key_value_heads": 8},
        fixed={"hidden_act": "silu", "swiglu_alpha": 1.702, "swiglu_limit": 7.0}, special=_gpt_oss,
        # The published configs repeat two values under names of their own.
        special_keys=(*ROPE_KEYS, "attention_bias", "sliding_window", "layer_types", "output_router_logits",
                      "experts_per_token", "initial_context_length"),
        write=_write_gpt_oss,
    ),
}  # fmt: skip
