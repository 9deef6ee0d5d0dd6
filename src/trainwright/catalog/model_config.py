"""Reads the shape of a model that is not in the catalog from its Hugging Face `config.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainwright.errors import UserError
from trainwright.train.models.shape import ModelShape, shape_from

# Our field -> the keys that configurations use for it, the commonest first.
KEYS = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "vocab": ("vocab_size",),
    "context": ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"),
}
_ROTARY = {"rope_theta", "rope_scaling", "rope_parameters", "rotary_pct", "rotary_dim"}
GATED = ("silu", "swish")
# Latent attention, shared experts, state spaces: their FLOPs and memory differ from a plain decoder's.
UNSUPPORTED = ("kv_lora_rank", "n_routed_experts", "n_shared_experts", "ssm_cfg", "state_size", "encoder_layers")


def is_config(name: str) -> bool:
    """Whether a model is named by a path: a JSON file, or a folder with a config.json."""
    return name.endswith(".json") or Path(name, "config.json").is_file()


def from_config(name: str) -> ModelShape:
    """The shape described by a `config.json` or by the folder that holds one. The path becomes the model's name."""
    path = Path(name) if name.endswith(".json") else Path(name, "config.json")
    config = _read(path)
    unsupported = next((key for key in UNSUPPORTED if config.get(key)), None)
    if unsupported is not None:
        raise UserError(
            f"the configuration has {unsupported!r}: only plain decoders are supported", where=str(path),
            fix="name the config.json of a decoder without latent attention, shared experts or state spaces",
        )  # fmt: skip
    sizes = {field: _first_integer(config, keys, path) for field, keys in KEYS.items()}
    experts = int(config.get("num_local_experts") or config.get("num_experts") or 0)
    expert_ffn = config.get("moe_intermediate_size") if experts else None
    row: dict[str, Any] = {
        **sizes,
        "family": str(config.get("model_type", "decoder")),
        "kv_heads": int(config.get("num_key_value_heads") or sizes["heads"]),
        "ffn": int(expert_ffn or config.get("intermediate_size") or config.get("n_inner") or 4 * sizes["hidden"]),
        "head_dim": int(config.get("head_dim") or 0),
        "activation": _activation(config),
        "norm": "rmsnorm" if "rms_norm_eps" in config else "layernorm",
        "position": "rope" if "rms_norm_eps" in config or _ROTARY & config.keys() else "learned",
        "tied": bool(config.get("tie_word_embeddings", False)),
        "window": int(config.get("sliding_window") or 0) if config.get("use_sliding_window", True) else 0,
        "experts": experts,
        "experts_per_token": int(config.get("num_experts_per_tok") or 0),
        "source": str(path),
    }
    return shape_from(name, row)


def _read(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read the model's configuration: {error.strerror}", where=str(path)) from error
    except ValueError as error:
        raise UserError(f"the model's configuration is not JSON: {error}", where=str(path)) from error
    if not isinstance(config, dict):
        raise UserError("the model's configuration is not a JSON object", where=str(path))
    inner = config.get("text_config")  # multimodal models nest the decoder's configuration
    return inner if isinstance(inner, dict) else config


def _first_integer(config: dict[str, Any], names: tuple[str, ...], path: Path) -> int:
    for name in names:
        if isinstance(config.get(name), int):
            return int(config[name])
    raise UserError(
        f"the configuration has no {names[0]!r}", where=str(path),
        fix="name a Hugging Face config.json of a decoder",
    )  # fmt: skip


def _activation(config: dict[str, Any]) -> str:
    act = str(config.get("hidden_act") or config.get("hidden_activation") or config.get("activation_function") or "")
    gated = act in GATED or str(config.get("model_type", "")).startswith("gemma")
    return "swiglu" if gated else "gelu"
