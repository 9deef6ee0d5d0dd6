"""The config.json of further dense decoders: Gemma 2 and 3, OLMo 2, Phi-3, GPT-NeoX."""

from __future__ import annotations

from trainwright.errors import UserError
from trainwright.train.models.hf_families import (
    LAYER_NORM,
    LLAMA_DEFAULTS,
    LLAMA_FIELDS,
    ROPE_KEYS,
    activation_name,
    activation_of,
    read_rope,
    rotary_share,
    write_rope,
)
from trainwright.train.models.hf_family import Config, Family
from trainwright.train.models.shape import ModelShape

FULL, SLIDING = "full_attention", "sliding_attention"


def full_every(config: Config, usual: int, where: str) -> Config:
    """Which layers have the window: every n-th has none."""
    layers = config["num_hidden_layers"]
    window = config.get("sliding_window") or 0
    kinds = list(config.get("layer_types") or _pattern(usual, layers))
    if set(kinds) == {FULL} or not window:
        return {"window": 0}
    every = kinds.index(FULL) + 1 if FULL in kinds else 0
    if kinds != (_pattern(every, layers) if every else [SLIDING] * layers):
        raise UserError("layer_types: only every n-th layer may attend to everything", where=where)
    return {"window": window, "full_every": every, "window_layers": kinds.count(SLIDING) if every else 0}


def _pattern(every: int, layers: int) -> list[str]:
    return [SLIDING if (layer + 1) % every else FULL for layer in range(layers)]


def layer_types(shape: ModelShape) -> list[str]:
    if not shape.window:
        return [FULL] * shape.layers
    return _pattern(shape.full_every, shape.layers) if shape.full_every else [SLIDING] * shape.layers


def _gemma(config: Config, where: str) -> Config:
    biased = bool(config.get("attention_bias"))
    return {
        "qkv_bias": biased,
        "out_bias": biased,
        "query_scale": float(config["query_pre_attn_scalar"]),
        "score_cap": float(config.get("attn_logit_softcapping") or 0.0),
        "logit_cap": float(config.get("final_logit_softcapping") or 0.0),
    }


def _gemma2(config: Config, where: str) -> Config:
    return {**_gemma(config, where), **read_rope(config, where), **full_every(config, 2, where)}


def _gemma3(config: Config, where: str) -> Config:
    """Layers with the window have a rotary base of their own, and no scaling."""
    nested = config.get("rope_parameters") or {}
    tables = {kind: dict(nested.get(kind) or {}) for kind in (FULL, SLIDING)}
    tables[FULL].setdefault("rope_theta", config.get("rope_theta") or 1e6)
    tables[SLIDING].setdefault("rope_theta", config.get("rope_local_base_freq") or 1e4)
    scaling = config.get("rope_scaling")
    whole = read_rope({"rope_parameters": tables[FULL], "rope_scaling": scaling}, where)
    local = read_rope({"rope_parameters": tables[SLIDING]}, where)
    if local["rope_scaling"] is not None:
        raise UserError("scaled rotary positions in layers with a window are not supported", where=where)
    usual = config.get("sliding_window_pattern") or config.get("_sliding_window_pattern") or 6
    return {
        **_gemma(config, where),
        **whole,
        **full_every(config, usual, where),
        "window_theta": local["rope_theta"],
    }


def _write_gemma(shape: ModelShape) -> Config:
    return {
        "attention_bias": shape.qkv_bias,
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": int(shape.query_scale) or shape.width_per_head,
        "attn_logit_softcapping": shape.score_cap or None,
        "final_logit_softcapping": shape.logit_cap or None,
        "sliding_window": shape.window or shape.context,
        "layer_types": layer_types(shape),
    }


def _write_gemma3(shape: ModelShape) -> Config:
    rope = write_rope(shape)
    full = {"rope_type": "default", **(rope["rope_scaling"] or {}), "rope_theta": shape.rope_theta}
    local = {"rope_type": "default", "rope_theta": shape.window_theta or 1e4}
    return {**_write_gemma(shape), "rope_parameters": {FULL: full, SLIDING: local}}


def _olmo2(config: Config, where: str) -> Config:
    biased = bool(config.get("attention_bias"))
    return {**read_rope(config, where), "qkv_bias": biased, "out_bias": biased}


def _phi3(config: Config, where: str) -> Config:
    return {**read_rope(config, where, ("partial",)), "window": config.get("sliding_window") or 0}


def _write_phi3(shape: ModelShape) -> Config:
    share = {"partial_rotary_factor": rotary_share(shape)}
    # Their default for padding is a token of the published vocabulary.
    return {**write_rope(shape), **share, "sliding_window": shape.window or None, "pad_token_id": None}


def _neox(config: Config, where: str) -> Config:
    share = config.get("rotary_pct")
    base = {"rope_theta": config.get("rotary_emb_base"), "partial_rotary_factor": 0.25 if share is None else share}
    biased, parallel = bool(config.get("attention_bias", True)), bool(config.get("use_parallel_residual", True))
    return {
        **read_rope({**base, **config}, where, ("partial",)),
        "kv_heads": config["num_attention_heads"],
        "qkv_bias": biased,
        "out_bias": biased,
        "parallel_block": parallel,
        "parallel_norms": 2 if parallel else 1,
        "activation": activation_of(config.get("hidden_act", "gelu"), "hidden_act", where),
    }


def _write_neox(shape: ModelShape) -> Config:
    rope = write_rope(shape)
    share = {"rope_theta": shape.rope_theta, "partial_rotary_factor": rotary_share(shape)}
    return {
        "rope_parameters": {"rope_type": "default", **(rope["rope_scaling"] or {}), **share},
        "attention_bias": shape.qkv_bias,
        "use_parallel_residual": shape.parallel_block,
        "hidden_act": activation_name(shape.activation),
    }


GEMMA_FEATURES: Config = {"activation": "geglu", "norm_offset": True, "post_norms": True, "embed_scale": True}
GEMMA_DEFAULTS: Config = {
    "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "head_dim": 256, "query_pre_attn_scalar": 256,
    "sliding_window": 4096, "num_key_value_heads": 4,
}  # fmt: skip
GEMMA_FIXED: Config = {
    "hidden_activation": "gelu_pytorch_tanh", "hidden_act": "gelu_pytorch_tanh", "use_bidirectional_attention": False,
}  # fmt: skip
GEMMA_KEYS = (
    *ROPE_KEYS, "attention_bias", "query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping",
    "sliding_window", "layer_types",
)  # fmt: skip
GEMMA3_KEYS = tuple(key for key in GEMMA_KEYS if key != "attn_logit_softcapping")
NO_HEAD_DIM = {k: v for k, v in LLAMA_FIELDS.items() if k != "head_dim"}
DECODERS: dict[str, Family] = {
    "gemma2": Family(
        "Gemma2ForCausalLM", LLAMA_FIELDS, features=GEMMA_FEATURES, fixed=GEMMA_FIXED, special=_gemma2,
        defaults={**GEMMA_DEFAULTS, "max_position_embeddings": 8192, "attn_logit_softcapping": 50.0,
                  "final_logit_softcapping": 30.0},
        special_keys=GEMMA_KEYS, write=lambda shape: {**_write_gemma(shape), **write_rope(shape)},
    ),
    "gemma3_text": Family(
        "Gemma3ForCausalLM", LLAMA_FIELDS, features={**GEMMA_FEATURES, "qk_norm": True},
        fixed={**GEMMA_FIXED, "attn_logit_softcapping": None},  # transformers does not compute it
        special=_gemma3, defaults={**GEMMA_DEFAULTS, "max_position_embeddings": 131072},
        special_keys=(*GEMMA3_KEYS, "rope_local_base_freq", "sliding_window_pattern", "_sliding_window_pattern"),
        write=_write_gemma3,
    ),
    "olmo2": Family(
        "Olmo2ForCausalLM", NO_HEAD_DIM, features={"wide_qk_norm": True, "pre_norms": False, "post_norms": True},
        fixed={"hidden_act": "silu"}, defaults={**LLAMA_DEFAULTS, "rms_norm_eps": 1e-5}, special=_olmo2,
        special_keys=(*ROPE_KEYS, "attention_bias"),
        write=lambda shape: {**write_rope(shape), "attention_bias": shape.qkv_bias},
    ),
    "phi3": Family(
        "Phi3ForCausalLM", NO_HEAD_DIM, fixed={"hidden_act": "silu", "attention_bias": False}, special=_phi3,
        defaults={**LLAMA_DEFAULTS, "rms_norm_eps": 1e-5, "max_position_embeddings": 4096},
        special_keys=(*ROPE_KEYS, "partial_rotary_factor", "sliding_window", "original_max_position_embeddings"),
        write=_write_phi3,
    ),
    "gpt_neox": Family(
        "GPTNeoXForCausalLM",
        {"vocab_size": "vocab", "hidden_size": "hidden", "intermediate_size": "ffn", "num_hidden_layers": "layers",
         "num_attention_heads": "heads", "max_position_embeddings": "context", "layer_norm_eps": "norm_eps",
         "tie_word_embeddings": "tied"},
        features={**LAYER_NORM, "mlp_bias": True},
        defaults={"layer_norm_eps": 1e-5, "tie_word_embeddings": False, "max_position_embeddings": 2048},
        special=_neox, write=_write_neox,
        special_keys=(*ROPE_KEYS, "rotary_pct", "rotary_emb_base", "partial_rotary_factor", "attention_bias",
                      "use_parallel_residual", "hidden_act"),
    ),
}  # fmt: skip
