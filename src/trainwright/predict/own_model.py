"""A model that is not in the catalog, by its Hugging Face `config.json`: what a prediction needs of it, no more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainwright.errors import UserError
from trainwright.train.models.shape import ModelShape, shape_from

# What we call it -> what configurations call it, the commonest first.
KEYS = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "vocab": ("vocab_size",),
    "context": ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"),
}
_ROTARY = {"rope_theta", "rope_scaling", "rope_parameters", "rotary_pct", "rotary_dim"}
GATED = ("silu", "swish")
# Attention through a low rank, experts beside experts, state spaces: another arithmetic than a plain decoder's.
ANOTHER = ("kv_lora_rank", "n_routed_experts", "n_shared_experts", "ssm_cfg", "state_size", "encoder_layers")


def is_file(name: str) -> bool:
    return name.endswith(".json") or Path(name, "config.json").is_file()


def from_config(name: str) -> ModelShape:
    """The shape that a `config.json`, or the folder that holds one, describes. It is called by its path."""
    path = Path(name) if name.endswith(".json") else Path(name, "config.json")
    said = _read(path)
    wrong = next((key for key in ANOTHER if said.get(key)), None)
    if wrong is not None:
        raise UserError(
            f"the configuration has {wrong!r}: this is no plain decoder, and would be predicted wrong", where=str(path)
        )
    sizes = {ours: _one_of(said, theirs, path) for ours, theirs in KEYS.items()}
    experts = int(said.get("num_local_experts") or said.get("num_experts") or 0)
    wide = said.get("moe_intermediate_size") if experts else None
    row: dict[str, Any] = {
        **sizes,
        "family": str(said.get("model_type", "decoder")),
        "kv_heads": int(said.get("num_key_value_heads") or sizes["heads"]),
        "ffn": int(wide or said.get("intermediate_size") or said.get("n_inner") or 4 * sizes["hidden"]),
        "head_dim": int(said.get("head_dim") or 0),
        "activation": _activation(said),
        "norm": "rmsnorm" if "rms_norm_eps" in said else "layernorm",
        "position": "rope" if "rms_norm_eps" in said or _ROTARY & said.keys() else "learned",
        "tied": bool(said.get("tie_word_embeddings", False)),
        "window": int(said.get("sliding_window") or 0) if said.get("use_sliding_window", True) else 0,
        "experts": experts,
        "experts_per_token": int(said.get("num_experts_per_tok") or 0),
        "source": str(path),
    }
    return shape_from(name, row)


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read the model's configuration: {error.strerror}", where=str(path)) from error
    except ValueError as error:
        raise UserError(f"the model's configuration is not JSON: {error}", where=str(path)) from error
    if not isinstance(found, dict):
        raise UserError("the model's configuration is not a JSON object", where=str(path))
    inner = found.get("text_config")  # of a model that also sees
    return inner if isinstance(inner, dict) else found


def _one_of(said: dict[str, Any], names: tuple[str, ...], path: Path) -> int:
    for name in names:
        if isinstance(said.get(name), int):
            return int(said[name])
    raise UserError(
        f"the configuration says nothing of {names[0]!r}", where=str(path),
        fix="name a Hugging Face config.json of a decoder",
    )  # fmt: skip


def _activation(said: dict[str, Any]) -> str:
    act = str(said.get("hidden_act") or said.get("hidden_activation") or said.get("activation_function") or "")
    gated = act in GATED or str(said.get("model_type", "")).startswith("gemma")
    return "swiglu" if gated else "gelu"
