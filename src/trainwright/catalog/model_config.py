"""Reads the shape of a model that is not in the catalog from its file: as the trainer reads it, or, for decoders that
only other trainers have, from the sizes in the Hugging Face `config.json`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainwright.errors import UserError
from trainwright.files import read_regular
from trainwright.train.models.hf_config import FAMILIES, OBJECT, shape_of_file
from trainwright.train.models.shape import ModelShape, shape_from
from trainwright.train.models.shape_check import WrongModel, is_own, require_fit, require_values

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
# State spaces and encoders: their FLOPs and memory differ from a decoder's.
UNSUPPORTED = ("ssm_cfg", "state_size", "mamba_num_heads", "encoder_layers")


def from_config(name: str) -> ModelShape:
    """The shape described by a JSON file or by the folder that holds a config.json. The path becomes its name."""
    path = Path(name) if name.endswith(".json") else Path(name, "config.json")
    config = _read(path)
    family = FAMILIES.get(str(config.get("model_type", "")))
    try:
        if family is not None or is_own(config):
            shape = shape_of_file(path)
            return replace(shape, name=name, mtp_layers=shape.mtp_layers or _predicted_layers(config))
    except WrongModel:
        raise
    except UserError:
        # What our trainer does not compute, another may: a decoder's sizes are enough to predict it.
        if family is None or family.features.get("kind", "decoder") != "decoder":
            raise
    try:
        return _from_sizes(config, name, path)
    except (TypeError, ValueError) as error:
        what = f"the configuration has a value of a wrong type: {error}"
        raise UserError(what, where=str(path), fix="whole numbers for sizes, as Hugging Face writes them") from error


def _from_sizes(config: dict[str, Any], name: str, path: Path) -> ModelShape:
    unsupported = next((key for key in UNSUPPORTED if config.get(key)), None)
    if unsupported is not None:
        raise UserError(
            f"the configuration has {unsupported!r}: only decoders are supported", where=str(path),
            fix="name the config.json of a decoder without state spaces",
        )  # fmt: skip
    sizes = {field: _first_integer(config, keys, path) for field, keys in KEYS.items()}
    row: dict[str, Any] = {
        **sizes,
        "family": str(config.get("model_type", "decoder")),
        "kv_heads": int(config.get("num_key_value_heads") or sizes["heads"]),
        "ffn": int(config.get("intermediate_size") or config.get("n_inner") or 4 * sizes["hidden"]),
        "head_dim": int(config.get("head_dim") or 0),
        "activation": _activation(config),
        "norm": "rmsnorm" if "rms_norm_eps" in config else "layernorm",
        "position": "rope" if "rms_norm_eps" in config or _ROTARY & config.keys() else "learned",
        "tied": bool(config.get("tie_word_embeddings", False)),
        "window": int(config.get("sliding_window") or 0) if config.get("use_sliding_window", True) else 0,
        "window_layers": list(config.get("layer_types") or []).count("sliding_attention"),
        "source": str(path),
    }
    row = {**row, **_experts(config, row["ffn"]), **_latent_attention(config)}
    keys = {field: next(key for key in names if key in config) for field, names in KEYS.items()}
    require_values(row, str(path), keys)
    require_fit(row, str(path), keys)
    return shape_from(name, row)


def _predicted_layers(config: dict[str, Any]) -> int:
    """The layers of multi-token prediction, which our trainer leaves out."""
    layers = config.get("num_nextn_predict_layers")
    return layers if isinstance(layers, int) else 0


def _experts(config: dict[str, Any], ffn: int) -> dict[str, int]:
    """The fields of a mixture of experts; the first layers of DeepSeek's are plain, and some experts are shared."""
    names = ("num_local_experts", "num_experts", "n_routed_experts")
    experts = next((int(config[name]) for name in names if config.get(name)), 0)
    if not experts:
        return {}
    width = int(config.get("moe_intermediate_size") or ffn)
    shared = int(config.get("shared_expert_intermediate_size") or width * int(config.get("n_shared_experts") or 0))
    dense = int(config.get("first_k_dense_replace") or 0)
    return {
        "experts": experts,
        "experts_per_token": int(config.get("num_experts_per_tok") or config.get("num_experts_per_token") or 1),
        "ffn": width,
        "shared_ffn": shared,
        "dense_layers": dense,
        "dense_ffn": ffn if dense else 0,
        "mtp_layers": int(config.get("num_nextn_predict_layers") or 0),
    }


def _latent_attention(config: dict[str, Any]) -> dict[str, int]:
    if not config.get("kv_lora_rank"):
        return {}
    rope = int(config["qk_rope_head_dim"])
    return {
        "latent_kv": int(config["kv_lora_rank"]),
        "latent_q": int(config.get("q_lora_rank") or 0),
        "rope_dim": rope,
        "head_dim": int(config["qk_nope_head_dim"]) + rope,
        "value_dim": int(config["v_head_dim"]),
    }


def _read(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(read_regular(path))
    except ValueError as error:
        raise UserError(f"the model's configuration is not JSON: {error}", where=str(path), fix=OBJECT) from error
    if not isinstance(config, dict):
        raise UserError("the model's configuration is not a JSON object", where=str(path), fix=OBJECT)
    inner = config.get("text_config")  # multimodal models nest the decoder's configuration
    return inner if isinstance(inner, dict) else config


def _first_integer(config: dict[str, Any], names: tuple[str, ...], path: Path) -> int:
    for name in names:
        if type(config.get(name)) is int:
            return int(config[name])
    raise UserError(
        f"the configuration has no {names[0]!r}", where=str(path),
        fix="name a Hugging Face config.json of a decoder",
    )  # fmt: skip


def _activation(config: dict[str, Any]) -> str:
    act = str(config.get("hidden_act") or config.get("hidden_activation") or config.get("activation_function") or "")
    gated = act in GATED or str(config.get("model_type", "")).startswith("gemma")
    return "swiglu" if gated else "gelu"
