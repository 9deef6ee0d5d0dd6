"""An export names the special tokens that its objective trained with: transformers fills masks and finds sentinels."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from single import corpus, run, settings

from trainwright.train.data.cli import main as data_main
from trainwright.train.models.convert import export_main, import_main

transformers = pytest.importorskip("transformers")


def data_of(kind, tmp_path):
    data = corpus(tmp_path)
    if kind == "bpe":
        data = str(tmp_path / "bpe")
        data_main(["prepare", str(tmp_path / "a.jsonl"), "-o", data, "--train-bpe", "300", "--workers", "1"])
    return data


def exported(tmp_path, model, data, **more):
    config = replace(settings(data, tmp_path / "run"), model=model, steps=1, log_samples=False, **more)
    _, trainer = run(config)
    assert export_main([str(tmp_path / "run"), str(tmp_path / "hf")]) == 0
    return tmp_path / "hf", trainer.parts.loader.samples


@pytest.mark.parametrize("kind", ["bytes", "bpe"])
@pytest.mark.parametrize("model", ["roberta-base-debug", "bert-base-debug"])
def test_transformers_fills_the_mask_of_an_export(model, kind, tmp_path):
    folder, samples = exported(tmp_path, model, data_of(kind, tmp_path))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    special = samples.special
    assert (tokenizer.mask_token_id, tokenizer.cls_token_id) == (special.mask, special.begin)
    ids = tokenizer(f"line {tokenizer.mask_token} line")["input_ids"]
    assert (ids[0], ids[-1]) == (special.begin, special.end), "between begin and end, as in training"
    assert ids.count(special.mask) == 1
    assert tokenizer.decode(tokenizer("line 7 ")["input_ids"], skip_special_tokens=True) == "line 7 "
    filled = transformers.pipeline("fill-mask", model=str(folder))(f"line {tokenizer.mask_token} line")
    assert len(filled) == 5
    import_main([str(folder), str(tmp_path / "again")])
    export_main([str(tmp_path / "again"), str(tmp_path / "out")])
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert again.mask_token_id == special.mask
    configs = [json.loads((f / "config.json").read_text()) for f in (folder, tmp_path / "out")]
    assert configs[0] == configs[1]
    assert configs[0]["bos_token_id"] == special.begin


def test_esm2_drops_the_mask_that_it_was_trained_with(tmp_path):
    shape = {"layers": 2, "hidden": 32, "heads": 4, "ffn": 48, "vocab": 300, "context": 66, "kind": "encoder",
             "family": "esm2", "activation": "gelu", "norm": "layernorm", "norm_bias": True, "bias": True}  # fmt: skip
    (tmp_path / "mine.json").write_text(json.dumps(shape))
    folder, samples = exported(tmp_path, str(tmp_path / "mine.json"), corpus(tmp_path))
    config = transformers.AutoConfig.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, tokenizer_type=None)
    assert config.mask_token_id == samples.special.mask == tokenizer.mask_token_id != 32


@pytest.mark.parametrize("kind", ["bytes", "bpe"])
def test_the_sentinels_of_t5_have_names(kind, tmp_path):
    folder, samples = exported(tmp_path, "t5-v1.1-small-debug", data_of(kind, tmp_path))
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    names = [f"<extra_id_{n}>" for n in range(len(samples.sentinels))]
    assert tokenizer.convert_tokens_to_ids(names) == samples.sentinels.tolist()
    ids = tokenizer("line <extra_id_0> line")["input_ids"]
    assert (ids.count(int(samples.sentinels[0])), ids[-1]) == (1, samples.end)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
    assert torch.isfinite(model(input_ids=torch.tensor([ids]), labels=torch.tensor([ids])).loss)


def test_a_decoder_keeps_the_tokenizer_of_its_data(tmp_path):
    folder, _ = exported(tmp_path, "gpt2-124m-debug", corpus(tmp_path))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert tokenizer.mask_token is None
    assert tokenizer("ab")["input_ids"] == list(b"ab")
