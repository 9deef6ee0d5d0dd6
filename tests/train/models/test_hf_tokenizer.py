"""An export holds the tokenizer of the data and its token ids; transformers reads both."""

import json

import pytest
import transformers
from single import corpus, run, settings

from trainwright.train.data.cli import main as data_main
from trainwright.train.models.convert import export_main, import_main

WORDS = "größer: a line of text\n  indented 🚂"


def exported(tmp_path, data, **more):
    config = settings(data, tmp_path / "run")
    from dataclasses import replace

    run(replace(config, steps=2, log_samples=False, **more))
    assert export_main([str(tmp_path / "run"), str(tmp_path / "hf")]) == 0
    return tmp_path / "hf"


@pytest.mark.parametrize("kind", ["bytes", "bpe"])
def test_an_export_has_its_tokenizer_and_the_right_ids(tmp_path, kind):
    data, end = corpus(tmp_path), 256
    if kind == "bpe":
        data, end = str(tmp_path / "bpe"), 0
        data_main(["prepare", str(tmp_path / "a.jsonl"), "-o", data, "--train-bpe", "300", "--workers", "1"])
    folder = exported(tmp_path, data)
    config = json.loads((folder / "config.json").read_text())
    assert (config["bos_token_id"], config["eos_token_id"], config["pad_token_id"]) == (None, end, None)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert tokenizer.eos_token_id == end
    ids = tokenizer(WORDS)["input_ids"]
    assert tokenizer.decode(ids) == WORDS
    if kind == "bytes":
        assert ids == list(WORDS.encode())
    assert transformers.AutoModelForCausalLM.from_pretrained(folder).config.eos_token_id == end


def test_an_imported_tokenizer_comes_out_again(tmp_path):
    folder = exported(tmp_path, corpus(tmp_path))
    (folder / "special_tokens_map.json").write_text('{"eos_token": "<|endoftext|>"}')
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "bos_token_id": 7}))
    import_main([str(folder), str(tmp_path / "again"), "--model", "gpt2-124m-debug"])
    export_main([str(tmp_path / "again" / "checkpoints" / "step-00000000"), str(tmp_path / "out")])
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        assert (tmp_path / "out" / name).read_bytes() == (folder / name).read_bytes()
    assert json.loads((tmp_path / "out" / "config.json").read_text())["bos_token_id"] == 7


def test_a_model_from_a_file_trains_and_exports(tmp_path):
    shape = {"layers": 2, "hidden": 32, "heads": 4, "kv_heads": 2, "ffn": 48, "vocab": 300, "context": 64}
    (tmp_path / "mine.json").write_text(json.dumps(shape))
    folder = exported(tmp_path, corpus(tmp_path), model=str(tmp_path / "mine.json"))
    assert transformers.AutoModelForCausalLM.from_pretrained(folder).config.intermediate_size == 48
