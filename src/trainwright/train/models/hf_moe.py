"""The config.json of mixtures of experts: Mixtral, Qwen 3 MoE."""

from __future__ import annotations

from trainwright.errors import UserError
from trainwright.train.models.hf_families import (
    LLAMA_DEFAULTS,
    LLAMA_FIELDS,
    ROPE_KEYS,
    Config,
    Family,
    read_mistral,
    read_qwen,
    write_qwen,
    write_rope,
)
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
}  # fmt: skip
