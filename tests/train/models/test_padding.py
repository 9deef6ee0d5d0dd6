"""The padding id of an export is one that no text has: transformers' positions are those of training, and a batch of
texts gives the logits of each text alone."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from single import run, settings

from trainwright.errors import UserError
from trainwright.train.data.batch import IGNORED
from trainwright.train.data.cli import main as data_main
from trainwright.train.data.special_tokens import SampleTokens
from trainwright.train.models import convert, huggingface, model_class
from trainwright.train.models.encoder import EncoderInputs
from trainwright.train.models.encoder_decoder import Seq2SeqInputs
from trainwright.train.models.hf_tokenizer import with_tokens

transformers, tokenizers = pytest.importorskip("transformers"), pytest.importorskip("tokenizers")
TEXT = "wow! yes! ok! \x01 row"
SIZES = {"layers": 1, "hidden": 16, "heads": 2, "head_dim": 8, "ffn": 16, "vocab": 330, "context": 66}
ENCODER = {**SIZES, "kind": "encoder", "activation": "gelu", "norm": "layernorm", "norm_bias": True, "bias": True,
           "tied": True, "position": "learned"}  # fmt: skip
SHAPES = {
    "roberta": {**ENCODER, "family": "roberta"},
    "bert": {**ENCODER, "family": "bert"},
    "t5": {**SIZES, "kind": "encoder-decoder", "family": "t5", "activation": "geglu", "norm_eps": 1e-6,
           "position": "relative"},
}  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """One text in bytes, in the words of a BPE, and in those of a tokenizer whose end is token 1."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": f"{TEXT} {i % 7} "}) + "\n" for i in range(400)))
    names = ["<unk>", "</s>", "<s>", "<mask>", "wow!", "yes!", "ok!", "\x01", "row", *map(str, range(7))]
    core = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: n for n, w in enumerate(names)}, unk_token="<unk>"))
    core.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    core.add_special_tokens(["<unk>", "</s>", "<s>", "<mask>"])
    core.save(str(folder / "words.json"))
    kinds = {"bytes": [], "bpe": ["--train-bpe", "280"], "words": ["--tokenizer", str(folder / "words.json")]}
    for kind, options in kinds.items():
        data_main(["prepare", str(folder / "a.jsonl"), "-o", str(folder / kind), "--workers", "1", *options])
    return folder


def exported(tmp_path, family, data):
    (tmp_path / "mine.json").write_text(json.dumps(SHAPES[family]))
    config = replace(settings(str(data), tmp_path / "run"), model=str(tmp_path / "mine.json"), steps=1)
    _, trainer = run(replace(config, log_samples=False))
    assert convert.export_main([str(tmp_path / "run"), str(tmp_path / "hf")]) == 0
    return tmp_path / "hf", trainer.parts.loader.samples


def our_logits(folder, tokens):
    shape, read = huggingface.read_folder(folder)
    model = model_class(shape)(shape)
    with torch.no_grad():
        for name, param in model.named_parameters():
            param.copy_(read(name))
        if shape.kind == "encoder-decoder":
            return model(tokens, Seq2SeqInputs(tokens))
        first = 2 if shape.family == "roberta" else 0
        return model(tokens, EncoderInputs(positions=first + torch.arange(tokens.shape[1])[None]))


def their_logits(folder, given):
    [name] = json.loads((folder / "config.json").read_text())["architectures"]
    judge = getattr(transformers, name).from_pretrained(folder, dtype=torch.float32).eval()
    more = {"decoder_input_ids": given["input_ids"]} if "T5" in name else {}
    with torch.no_grad():
        return judge(input_ids=given["input_ids"], attention_mask=given["attention_mask"], **more).logits


@pytest.mark.parametrize("kind", ["bytes", "bpe", "words"])
@pytest.mark.parametrize("family", sorted(SHAPES))
def test_an_export_pads_with_a_token_that_no_text_has(family, kind, data, tmp_path):
    folder, samples = exported(tmp_path, family, data / kind)
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    one, both = (tokenizer(t, return_tensors="pt", padding=True) for t in (TEXT, [TEXT, f"{TEXT} {TEXT}"]))
    assert tokenizer.pad_token_id == config["pad_token_id"]
    assert tokenizer.eos_token_id == config["eos_token_id"]
    assert config["pad_token_id"] not in one["input_ids"]
    assert tokenizer.unk_token_id is None or tokenizer.unk_token_id not in one["input_ids"]
    assert tokenizer.decode(one["input_ids"][0], skip_special_tokens=True).strip() == TEXT
    alone = their_logits(folder, one)
    assert (our_logits(folder, one["input_ids"]) - alone).abs().max() < 1e-4
    padded = their_logits(folder, both)[:1, : alone.shape[1]]
    assert (padded - alone).abs().max() < 1e-4
    batch = samples.batch([samples.locate(n) for n in range(4)])
    assert config["pad_token_id"] not in batch.tokens
    if family != "t5":
        original = torch.where(batch.targets == IGNORED, batch.tokens, batch.targets)
        assert "yes! ok!" in tokenizer.decode(original[0], skip_special_tokens=True)
        assert (original[:, -1] == one["input_ids"][0, -1]).all(), "the end token of training"
    if family == "roberta":
        assert config["pad_token_id"] == 1


def test_the_export_begins_and_continues_a_run_on_the_same_data(data, tmp_path, capsys):
    folder, _ = exported(tmp_path, "roberta", data / "bpe")
    config = replace(settings(str(data / "bpe"), tmp_path / "again"), model=str(folder), steps=1, log_samples=False)
    convert.import_main([str(folder), str(tmp_path / "again")])
    run(config)
    capsys.readouterr()
    run(replace(config, folder=str(tmp_path / "based"), base=str(folder)))
    assert "another tokenizer" not in capsys.readouterr().err
    assert convert.export_main([str(tmp_path / "again"), str(tmp_path / "out")]) == 0
    configs = [json.loads((f / "config.json").read_text()) for f in (folder, tmp_path / "out")]
    assert configs[0] == configs[1]


@pytest.mark.parametrize("family", ["roberta", "t5"])
def test_a_vocabulary_without_a_spare_id_is_refused(family, data, tmp_path):
    words = json.loads((data / "bpe" / "manifest.json").read_text())["tokenizer"]["vocab"]
    shape = {**SHAPES[family], "vocab": words + 2}  # begin and mask, or the two sentinels of 32 tokens
    (tmp_path / "mine.json").write_text(json.dumps(shape))
    config = replace(settings(str(data / "bpe"), tmp_path / "run"), model=str(tmp_path / "mine.json"), steps=1)
    with pytest.raises(UserError, match="padding token") as caught:
        run(config)
    assert caught.value.fix.endswith("or a model with a larger vocabulary")


def test_a_unigram_gets_its_padding_token_too():
    words = [["<unk>", 0.0], ["a", -1.0], ["</s>", 0.0], ["b", -2.0]]
    core = tokenizers.Tokenizer(tokenizers.models.Unigram([tuple(w) for w in words], 0, False))
    core.add_special_tokens(["<unk>", "</s>"])
    table = json.loads(core.to_str())
    assert not with_tokens(table, SampleTokens({"<s>": 4, "<mask>": 5, "<pad>": 1}, {}, 4, True, (6, 1)), 2)
    got = tokenizers.Tokenizer.from_str(json.dumps(table))
    assert got.encode("ab<mask>").ids == [4, 6, 3, 5, 2]
    assert got.token_to_id("<pad>") == 1


def test_a_run_of_a_version_in_which_a_word_was_padding_is_not_continued(tmp_path, data):
    (tmp_path / "mine.json").write_text(json.dumps(SHAPES["roberta"]))
    config = replace(settings(str(data / "bpe"), tmp_path / "run"), model=str(tmp_path / "mine.json"), steps=1)
    config = replace(config, log_samples=False, checkpoint_every="1")
    run(config)
    run(replace(config, steps=2))
    for path in (tmp_path / "run" / "checkpoints").glob("*/manifest.json"):
        manifest = json.loads(path.read_text())
        assert manifest["trainer"].pop("exchanged")
        path.write_text(json.dumps(manifest))
    with pytest.raises(UserError, match="padding and a word of the text had one id"):
        run(replace(config, steps=3))
