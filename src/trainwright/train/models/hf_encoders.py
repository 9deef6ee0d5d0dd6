"""BERT, RoBERTa and ESM-2 as Hugging Face writes them: config keys and parameter names. Free of torch."""

from __future__ import annotations

from typing import Any

from trainwright.errors import UserError
from trainwright.train.models.hf_family import Config, Family
from trainwright.train.models.shape import ModelShape

FIELDS = {
    "vocab_size": "vocab", "hidden_size": "hidden", "intermediate_size": "ffn", "num_hidden_layers": "layers",
    "num_attention_heads": "heads", "max_position_embeddings": "context", "layer_norm_eps": "norm_eps",
}  # fmt: skip
FEATURES: Config = {
    "kind": "encoder", "norm": "layernorm", "norm_bias": True, "activation": "gelu", "bias": True, "tied": True,
}  # fmt: skip
DROPOUT = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)
PADDING = {"bert": 0, "roberta": 1, "esm2": 1}
NAMES = {"mask_token_id", "vocab_list", "esmfold_config", "is_folding_model"}  # of ESM-2's config, beside the model


def _table(model: str, blocks: str, head: dict[str, str]) -> dict[str, str]:
    """Our names -> theirs; BERT's layout of a layer is that of all three."""
    layer = f"{model}.encoder.layer.{{}}."
    return {
        "embed.": f"{model}.embeddings.word_embeddings.",
        "positions.": f"{model}.embeddings.position_embeddings.",
        "types.": f"{model}.embeddings.token_type_embeddings.",
        "embed_norm.": f"{model}.embeddings.LayerNorm.",
        "norm.": f"{model}.encoder.emb_layer_norm_after.",
        "attention.qkv.": layer + "attention.self.{part}.",
        "attention.out.": layer + "attention.output.dense.",
        "attention_norm.": layer + ("attention.LayerNorm." if blocks == "pre" else "attention.output.LayerNorm."),
        "mlp.up.": layer + "intermediate.dense.",
        "mlp.down.": layer + "output.dense.",
        "mlp_norm.": layer + ("LayerNorm." if blocks == "pre" else "output.LayerNorm."),
        **head,
    }


TABLES = {
    "bert": _table("bert", "post", {
        "head.dense.": "cls.predictions.transform.dense.", "head.norm.": "cls.predictions.transform.LayerNorm.",
        "head.": "cls.predictions.",
    }),
    "roberta": _table("roberta", "post", {
        "head.dense.": "lm_head.dense.", "head.norm.": "lm_head.layer_norm.", "head.": "lm_head.",
    }),
    "esm2": _table("esm", "pre", {
        "head.dense.": "lm_head.dense.", "head.norm.": "lm_head.layer_norm.", "head.": "lm_head.",
    }),
}  # fmt: skip


def _esm(config: Config, where: str) -> Config:
    if config.get("position_embedding_type", "absolute") != "rotary":
        raise UserError("only rotary positions (ESM-2) are supported, not those of ESM-1b", where=where)
    return {"position": "rope"}


def _write(kind: str, more: Config) -> Any:
    def write(shape: ModelShape) -> Config:
        return {"hidden_act": "gelu", **DROPOUT, "pad_token_id": PADDING[kind], "tie_word_embeddings": True, **more}

    return write


def _bert_like(kind: str, architecture: str, types: int) -> Family:
    more = {"type_vocab_size": types, "position_embedding_type": "absolute"}
    return Family(
        architecture, FIELDS, features={**FEATURES, "position": "learned"},
        defaults={"layer_norm_eps": 1e-12, "type_vocab_size": 2, "max_position_embeddings": 512},
        fixed={"hidden_act": "gelu", "is_decoder": False, "tie_word_embeddings": True, **more},
        special_keys=tuple(DROPOUT), write=_write(kind, more),
    )  # fmt: skip


ENCODERS: dict[str, Family] = {
    "bert": _bert_like("bert", "BertForMaskedLM", 2),
    "roberta": _bert_like("roberta", "RobertaForMaskedLM", 1),
    "esm": Family(
        "EsmForMaskedLM", FIELDS, features={**FEATURES, "family": "esm2"}, special=_esm,
        defaults={"layer_norm_eps": 1e-12, "max_position_embeddings": 1026},
        fixed={"hidden_act": "gelu", "token_dropout": True, "emb_layer_norm_before": False, "tie_word_embeddings": True,
               "rope_theta": 10000.0, "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}},
        special_keys=(*DROPOUT, *NAMES, "position_embedding_type"),
        write=_write("esm2", {"position_embedding_type": "rotary", "token_dropout": True,
                              "emb_layer_norm_before": False, "mask_token_id": 32}),
    ),
}  # fmt: skip


def spellings(name: str) -> tuple[str, ...]:
    """The names a tensor may have: checkpoints that came from TensorFlow call a norm's parameters gamma and beta."""
    old = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
    return (name,) if old == name else (name, old)
