"""T5 as Hugging Face writes it: config keys, and where each of our parameters lies. Free of torch."""

from __future__ import annotations

import re

from trainwright.errors import UserError
from trainwright.train.models.hf_family import Config, Family
from trainwright.train.models.shape import ModelShape

KINDS = {"relu": "relu", "gated-gelu": "geglu"}
DERIVED = ("dense_act_fn", "is_gated_act", "dropout_rate", "initializer_factor", "n_positions", "classifier_dropout",
           "feed_forward_proj", "scale_decoder_outputs", "output_past")  # fmt: skip
TOP = {
    "embed.weight": "shared.weight",
    "head.weight": "lm_head.weight",
    "encoder_norm.weight": "encoder.final_layer_norm.weight",
    "decoder_norm.weight": "decoder.final_layer_norm.weight",
    "encoder_bias.weight": "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
    "decoder_bias.weight": "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
}


def t5_name(shape: ModelShape, name: str) -> str:
    """Hugging Face's name of one of our parameters; `{part}` stands for q, k and v."""
    if name in TOP:
        return TOP[name]
    match = re.fullmatch(r"(encoder|decoder)_blocks\.(\d+)\.(.+)\.weight", name)
    assert match is not None, name
    side, layer, part = match.groups()
    last = 2 if side == "decoder" else 1
    gated = shape.activation == "geglu"
    rest = {
        "attention_norm": "0.layer_norm", "attention.qkv": "0.SelfAttention.{part}",
        "attention.out": "0.SelfAttention.o",
        "cross_norm": "1.layer_norm", "cross.q": "1.EncDecAttention.q", "cross.kv": "1.EncDecAttention.{part}",
        "cross.out": "1.EncDecAttention.o", "mlp_norm": f"{last}.layer_norm",
        "mlp.gate": f"{last}.DenseReluDense.wi_0",
        "mlp.up": f"{last}.DenseReluDense.wi_1" if gated else f"{last}.DenseReluDense.wi",
        "mlp.down": f"{last}.DenseReluDense.wo",
    }[part]  # fmt: skip
    return f"{side}.block.{layer}.layer.{rest}.weight"


def _t5(config: Config, where: str) -> Config:
    kind = config.get("feed_forward_proj", "relu")
    if kind not in KINDS:
        raise UserError(f"feed_forward_proj = {kind!r} is not supported", where=where, fix=f"one of {', '.join(KINDS)}")
    if config.get("num_decoder_layers") not in (None, config["num_layers"]):
        raise UserError("the decoder has another number of layers than the encoder", where=where)
    return {"activation": KINDS[kind], "context": config.get("n_positions") or 512}


def _write(shape: ModelShape) -> Config:
    kind = next(theirs for theirs, ours in KINDS.items() if ours == shape.activation)
    return {
        "feed_forward_proj": kind, "num_decoder_layers": shape.layers, "is_encoder_decoder": True, "dropout_rate": 0.0,
        "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128, "decoder_start_token_id": 0,
        "pad_token_id": 0,
    }  # fmt: skip


T5: dict[str, Family] = {
    "t5": Family(
        "T5ForConditionalGeneration",
        {"vocab_size": "vocab", "d_model": "hidden", "d_kv": "head_dim", "d_ff": "ffn", "num_layers": "layers",
         "num_heads": "heads", "layer_norm_epsilon": "norm_eps", "tie_word_embeddings": "tied"},
        features={"kind": "encoder-decoder", "norm": "rmsnorm", "position": "relative"},
        defaults={"layer_norm_epsilon": 1e-6, "tie_word_embeddings": True},
        fixed={"is_encoder_decoder": True, "relative_attention_num_buckets": 32,
               "relative_attention_max_distance": 128},
        special=_t5, special_keys=(*DERIVED, "num_decoder_layers"), write=_write,
    ),
}  # fmt: skip
