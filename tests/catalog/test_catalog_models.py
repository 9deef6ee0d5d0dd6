"""Parameter counts of the kinds the trainer's own table does not cover, judged by transformers on the meta device."""

import pytest

from trainwright.catalog.models import find_model, model, models, parameter_count, parameters_text

PUBLISHED_MILLIONS = {
    "t5-small": 60.5,
    "t5-base": 222.9,
    "t5-large": 737.7,
    "t5-3b": 2851.6,
    "t5-11b": 11307.3,
    "t5-v1.1-small": 77.0,
    "t5-v1.1-base": 247.6,
    "t5-v1.1-large": 783.2,
    "t5-v1.1-xl": 2849.8,
    "bert-base": 109.5,
    "bert-large": 335.1,
    "roberta-base": 124.6,
    "roberta-large": 355.4,
    "vit-s-16": 22.1,
    "vit-b-16": 86.6,
    "vit-l-16": 304.3,
    "vit-h-14": 632.0,
    "esm2-8m": 7.5,
    "esm2-35m": 33.5,
    "esm2-150m": 148.1,
    "esm2-650m": 651.0,
    "esm2-3b": 2839.0,
    "esm2-15b": 15129.1,
    "llama3-8b": 8030.3,
    "llama3.1-405b": 405853.4,
    "mixtral-8x7b": 46702.8,
    "gpt2-124m": 124.4,
    "falcon-7b": 6921.7,
    "mpt-7b": 6649.3,
}


@pytest.mark.parametrize(("name", "millions"), PUBLISHED_MILLIONS.items())
def test_published_counts(name, millions):
    assert parameter_count(model(name)) / 1e6 == pytest.approx(millions, rel=0.01)


def test_every_model_that_is_no_decoder_is_in_the_table_above():
    assert {m.name for m in models() if m.kind != "decoder"} <= set(PUBLISHED_MILLIONS)


def built(shape):
    """The Hugging Face model of that shape, without its weights."""
    import torch
    import transformers as hf

    common = {
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "intermediate_size": shape.ffn,
    }
    text = common | {"vocab_size": shape.vocab, "max_position_embeddings": shape.context}
    with torch.device("meta"):
        if shape.family == "bert":
            return hf.BertModel(hf.BertConfig(**text))
        if shape.family == "roberta":
            return hf.RobertaModel(hf.RobertaConfig(**text, type_vocab_size=1))
        if shape.family == "esm2":
            rotary = {"position_embedding_type": "rotary", "pad_token_id": 1, "mask_token_id": 32}
            return hf.EsmForMaskedLM(hf.EsmConfig(**text, **rotary, emb_layer_norm_before=False))
        if shape.family == "vit":
            patch = 16 if shape.context == 197 else 14
            return hf.ViTForImageClassification(hf.ViTConfig(**common, patch_size=patch, num_labels=shape.vocab))
        t5 = hf.T5Config(
            vocab_size=shape.vocab,
            d_model=shape.hidden,
            d_kv=shape.width_per_head,
            d_ff=shape.ffn,
            num_layers=shape.layers,
            num_heads=shape.heads,
        )
        return hf.T5ForConditionalGeneration(t5)


@pytest.mark.parametrize("name", ["bert-base", "roberta-base", "vit-b-16", "vit-h-14", "t5-small", "t5-3b", "esm2-8m"])
def test_counts_are_those_of_transformers(name):
    pytest.importorskip("transformers")
    real = {id(p): p.numel() for p in built(model(name)).parameters()}
    # ESM-2's contact head (one number a head and layer) is no part of the language model.
    assert parameter_count(model(name)) == pytest.approx(sum(real.values()), rel=1e-4)


def test_names():
    assert find_model("LLAMA3-8B") == model("llama3-8b")
    assert find_model("llama3-8b-debug").layers == 4
    assert find_model("lama") is None
    assert [parameters_text(n) for n in (8_030_261_248, 405_853_388_800, 124_439_808)] == ["8.03 B", "406 B", "124 M"]
